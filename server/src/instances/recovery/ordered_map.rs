//! A function applied on several threads, with its results in the order of its arguments.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope, scope};

/// Inputs of which the results are not taken yet: for each thread one at work and one that waits.
const AHEAD: usize = 2;

/// See the module.
pub(super) struct OrderedMap<'a, I, O> {
    map: &'a (dyn Fn(I) -> O + Sync),
    /// Inputs on their way to the threads, each with the way back of its result.
    inputs: Sender<(I, Sender<O>)>,
    /// The results, in the order of the inputs.
    results: VecDeque<Receiver<O>>,
    threads: usize,
}

/// Calls `run` with a map that applies this function on so many threads, which end with it. With none, or if
/// the system gives none, the caller's is used.
pub(super) fn map_in_order<I: Send, O: Send, R>(
    threads: usize,
    map: impl Fn(I) -> O + Sync,
    run: impl FnOnce(&mut OrderedMap<'_, I, O>) -> R,
) -> R {
    let (inputs, received) = mpsc::channel::<(I, Sender<O>)>();
    let received = Mutex::new(received);
    let work = || {
        let next = || received.lock().unwrap_or_else(PoisonError::into_inner).recv();
        while let Ok((input, result)) = next() {
            // Nobody waits for it after an error.
            let _ = result.send(map(input));
        }
    };
    scope(|scope| {
        let threads = (0..threads).take_while(|_| spawn(scope, &work)).count();
        // Dropped before the threads are awaited, also if it panics: they end with their inputs.
        run(&mut OrderedMap { map: &map, inputs, results: VecDeque::new(), threads })
    })
}

fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, work: &'scope (impl Fn() + Sync)) -> bool {
    Builder::new().name("recovery".to_owned()).spawn_scoped(scope, work).is_ok()
}

impl<I, O> OrderedMap<'_, I, O> {
    /// Adds an input. Returns the oldest result if so many are outstanding that it has to be awaited.
    pub(super) fn push(&mut self, input: I) -> Option<O> {
        if self.threads == 0 {
            return Some((self.map)(input));
        }
        let (result, receiver) = mpsc::channel();
        self.inputs.send((input, result)).expect("the receiver outlives this");
        self.results.push_back(receiver);
        if self.results.len() > AHEAD * self.threads { self.pop() } else { None }
    }

    /// The oldest result that was not taken; `None` if there is none.
    pub(super) fn pop(&mut self) -> Option<O> {
        let result = self.results.pop_front()?;
        Some(result.recv().expect("its thread has not panicked"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_inputs() {
        for threads in [0, 1, 2, 5] {
            let results = map_in_order(
                threads,
                |input: u32| input * 2,
                |map| {
                    let pushed: Vec<u32> = (0..100).filter_map(|input| map.push(input)).collect();
                    assert_eq!(pushed.len(), 100 - AHEAD * threads, "so many may be outstanding");
                    pushed.into_iter().chain(std::iter::from_fn(|| map.pop())).collect::<Vec<_>>()
                },
            );
            assert_eq!(results, (0..100).map(|input| input * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn inputs_are_mapped_on_all_threads_at_once() {
        let barrier = Barrier::new(3);
        let wait = |()| _ = barrier.wait();
        map_in_order(3, wait, |map| {
            (0..3).for_each(|_| _ = map.push(()));
            assert_eq!(std::iter::from_fn(|| map.pop()).count(), 3);
        });
    }

    #[test]
    fn a_panic_on_either_side_ends_all_threads() {
        let panics = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).unwrap_err();
        panics(&|| map_in_order(2, |()| panic!("of the function"), |map| _ = (map.push(()), map.pop())));
        panics(&|| map_in_order(2, |()| (), |_| panic!("of the caller")));
    }
}
