//! Algorithm 2 as the paper prints it, under the same checker as ours, so that what is said about it in
//! `src/sticky_cas.rs` is shown and not claimed: correct in lock step; out of lock step it overwrites; and a
//! crash between its two CAS leaves a hole. The same scenarios find neither in [`StickyCas`].
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_algorithm_2 -- --nocapture
//! ```
//!
//! Every read of the printed algorithm is an exchange that changes nothing: the paper's registers are atomic,
//! so a read returns the latest value, and a fault that is found is not one of weak memory.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, in functions that tests share")]

use std::collections::BTreeSet;
use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering::SeqCst};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use stickycas_model::access::AppendAnswer;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::Position;

/// The paper's NULL. Processes append their own number.
const NULL: u32 = 0;
const LIMIT: usize = 3;

/// The steps of an append on shared memory. The last two are its CAS.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Step {
    ReadCounter,
    ReadCell,
    AdvanceCounter,
    WriteCell,
}

use Step::{AdvanceCounter, ReadCell, ReadCounter, WriteCell};

/// Algorithm 2: `class StickyCAS`. Positions count from 0 here, from 1 in the paper.
struct AsPrinted {
    counter: AtomicU32,
    proposed_list: [AtomicU32; LIMIT],
    /// Not in the paper: how many steps all threads together have done, if they go in lock step.
    steps: (Mutex<u32>, Condvar),
}

impl AsPrinted {
    fn new() -> Self {
        Self {
            counter: AtomicU32::new(0),
            proposed_list: std::array::from_fn(|_| AtomicU32::new(NULL)),
            steps: (Mutex::new(0), Condvar::new()),
        }
    }

    /// StickyCAS-append. `before` runs before each step; the process crashes there if it answers `false`.
    fn append(&self, value: u32, before: impl Fn(Step) -> bool) -> Option<AppendAnswer> {
        before(ReadCounter).then_some(())?;
        let k = read(&self.counter); //                                  int k <- counter_sh
        before(ReadCell).then_some(())?;
        // As printed, cell k is read before the check; a list that is full has no such cell.
        let m = self.proposed_list.get(k as usize).map_or(NULL, read); // value m <- proposedList_sh[k]
        if k as usize >= LIMIT {
            return Some(AppendAnswer::LimitReached);
        }
        before(AdvanceCounter).then_some(())?;
        let _ = self.counter.compare_exchange(k, k + 1, SeqCst, SeqCst); // counter_sh.CAS(k, k+1)
        before(WriteCell).then_some(())?;
        // if (proposedList_sh[k].CAS(m, val)) return "Append Success" else return "Append Failed"
        match self.proposed_list[k as usize].compare_exchange(m, value, SeqCst, SeqCst) {
            Ok(_) => Some(AppendAnswer::Success(Position::new(k))),
            Err(_) => Some(AppendAnswer::Failed),
        }
    }

    /// The lock step of a warp: begins this step once all of so many threads are done with the one before.
    fn lock_step(&self, step: Step, threads: u32) {
        if step == ReadCounter {
            return;
        }
        let (done, changed) = &self.steps;
        let mut done = done.lock().unwrap();
        *done += 1;
        changed.notify_all();
        while *done < step as u32 * threads {
            done = changed.wait(done).unwrap();
        }
    }

    fn cells(&self) -> Vec<u32> {
        self.proposed_list.iter().map(read).collect()
    }
}

fn read(atomic: &AtomicU32) -> u32 {
    atomic.fetch_add(0, SeqCst)
}

/// What can be wrong with a list, given what the appends were told (A1, A3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// An append was told that its value stands, and it does not.
    Overwritten,
    /// Two appends were told that they won one position.
    TwoWinners,
    /// There is an empty cell before a full one.
    Hole,
}

/// The same judge for both objects.
fn faults(answers: &[(u32, Option<AppendAnswer>)], cells: &[u32]) -> BTreeSet<Fault> {
    let mut faults = BTreeSet::new();
    let mut won = BTreeSet::new();
    for (value, answer) in answers {
        if let Some(AppendAnswer::Success(position)) = answer {
            if cells[position.index()] != *value {
                faults.insert(Fault::Overwritten);
            }
            if !won.insert(*position) {
                faults.insert(Fault::TwoWinners);
            }
        }
    }
    if cells.windows(2).any(|pair| pair[0] == NULL && pair[1] != NULL) {
        faults.insert(Fault::Hole);
    }
    faults
}

/// Runs the scenario in every interleaving: the sets of faults that an execution had.
fn explore<S>(name: &str, scenario: S) -> BTreeSet<BTreeSet<Fault>>
where
    S: Fn() -> (Vec<(u32, Option<AppendAnswer>)>, Vec<u32>) + Send + Sync + 'static,
{
    let found: Arc<std::sync::Mutex<Vec<BTreeSet<Fault>>>> = Arc::default();
    let finds = Arc::clone(&found);
    loom::model(move || {
        let (answers, cells) = scenario();
        finds.lock().unwrap().push(faults(&answers, &cells));
    });
    let found = found.lock().unwrap();
    let kinds: BTreeSet<_> = found.iter().cloned().collect();
    println!("{name}: {} executions, {kinds:?}", found.len());
    kinds
}

fn none() -> BTreeSet<BTreeSet<Fault>> {
    BTreeSet::from([BTreeSet::new()])
}

/// Processes 1 and 2 append at once with the printed algorithm.
fn two_at_once(lock_step: bool) -> (Vec<(u32, Option<AppendAnswer>)>, Vec<u32>) {
    let object = Arc::new(AsPrinted::new());
    let append = |value| {
        let object = Arc::clone(&object);
        thread::spawn(move || {
            let before = |step| {
                if lock_step {
                    object.lock_step(step, 2);
                }
                true
            };
            (value, object.append(value, before))
        })
    };
    let answers = [append(1), append(2)].map(|process| process.join().unwrap()).to_vec();
    (answers, object.cells())
}

#[test]
fn as_printed_it_is_correct_in_lock_step() {
    let kinds = explore("as printed, lock step", || two_at_once(true));
    assert_eq!(kinds, none());
}

#[test]
fn as_printed_it_overwrites_out_of_lock_step() {
    let kinds = explore("as printed, no lock step", || two_at_once(false));
    assert!(kinds.contains(&BTreeSet::from([Fault::Overwritten, Fault::TwoWinners])), "{kinds:?}");
}

/// Process 1 is alone in its phase and crashes before a step; process 2 appends in the next phase.
fn a_crash_and_the_next_phase(crash: Step) -> (Vec<(u32, Option<AppendAnswer>)>, Vec<u32>) {
    let object = Arc::new(AsPrinted::new());
    let append = |value, crashes: bool| {
        let object = Arc::clone(&object);
        let process = thread::spawn(move || object.append(value, |step| !crashes || step < crash));
        (value, process.join().unwrap())
    };
    let answers = vec![append(1, true), append(2, false)];
    (answers, object.cells())
}

#[test]
fn as_printed_a_crash_between_its_two_cas_leaves_a_hole() {
    for crash in [ReadCounter, ReadCell, AdvanceCounter] {
        let kinds = explore("as printed, a crash before both CAS", move || a_crash_and_the_next_phase(crash));
        assert_eq!(kinds, none());
    }
    let kinds = explore("as printed, a crash between its CAS", || a_crash_and_the_next_phase(WriteCell));
    assert_eq!(kinds, BTreeSet::from([BTreeSet::from([Fault::Hole])]));
}

/// The cells of ours, padded like the printed ones.
fn cells_of(object: &StickyCas<u32>) -> Vec<u32> {
    let _ = object.turn(); // the next phase
    let mut cells: Vec<u32> = object.iter().copied().collect();
    cells.resize(LIMIT, NULL);
    cells
}

#[test]
fn ours_does_not_overwrite_out_of_lock_step() {
    let kinds = explore("ours, no lock step", || {
        let object = Arc::new(StickyCas::with_limit(LIMIT as u32));
        let append = |value| {
            let object = Arc::clone(&object);
            thread::spawn(move || (value, Some(object.turn().append(value))))
        };
        let answers = [append(1), append(2)].map(|process| process.join().unwrap()).to_vec();
        (answers, cells_of(&object))
    });
    assert_eq!(kinds, none());
}

#[test]
fn ours_has_no_hole_after_a_crash_between_cell_and_counter() {
    let kinds = explore("ours, a crash between cell and counter", || {
        let object = Arc::new(StickyCas::with_limit(LIMIT as u32));
        assert!(object.turn().append_and_crash_before_the_counter(1));
        let next = Arc::clone(&object);
        let answer = thread::spawn(move || next.turn().append(2)).join().unwrap();
        assert_eq!(answer, AppendAnswer::Success(Position::new(1)));
        (vec![(1, None), (2, Some(answer))], cells_of(&object))
    });
    assert_eq!(kinds, none());
}
