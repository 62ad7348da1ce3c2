//! The StickyCAS object under loom: each scenario runs once for every interleaving of its threads and for
//! every value that the memory model lets a load return. With two threads the exploration is full; with
//! three, it covers every interleaving with at most [`PREEMPTIONS_OF_THREE`] preemptions. Why it finds them
//! all: see `src/sync.rs`.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_sticky_cas -- --nocapture
//! ```
//!
//! In every execution of every scenario: nothing is overwritten, there is no hole, each position has one
//! winner, what is read was completely written before (the values hold a cell that the checker watches), and
//! each value, winner or loser, is dropped exactly once.

#![cfg(loom)]
#![allow(unsafe_code, reason = "the checker's threads cannot borrow, and its cells hand out pointers")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use loom::cell::UnsafeCell;
use loom::thread;
use stickycas_model::access::AppendAnswer::{self, Failed, LimitReached, Success};
use stickycas_model::sticky_cas::{StickyCas, Turn};
use stickycas_model::types::Position;

/// A value that the checker watches: reading it before it was completely written is an error, and so is
/// leaking it.
struct Watched {
    name: UnsafeCell<u32>,
    _leaks: loom::alloc::Track<()>,
    dropped: Arc<AtomicUsize>,
}

impl Watched {
    fn name(&self) -> u32 {
        // SAFETY: nothing writes a value after it was made. The checker makes sure of it.
        self.name.with(|name| unsafe { *name })
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Three threads are run in every interleaving with at most so many preemptions. `LOOM_MAX_PREEMPTIONS`
/// overrides it.
const PREEMPTIONS_OF_THREE: usize = 2;

type Answers = Vec<(u32, AppendAnswer)>;

/// One execution: the object, shared by its threads. The counters are of std, so the checker does not see
/// them.
#[derive(Clone)]
struct Run {
    list: Arc<StickyCas<Watched>>,
    made: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Run {
    fn with_limit(limit: u32) -> Self {
        Self { list: Arc::new(StickyCas::with_limit(limit)), made: Arc::default(), dropped: Arc::default() }
    }

    fn value(&self, name: u32) -> Watched {
        self.made.fetch_add(1, Ordering::Relaxed);
        let dropped = Arc::clone(&self.dropped);
        Watched { name: UnsafeCell::new(name), _leaks: loom::alloc::Track::new(()), dropped }
    }

    /// A turn that any thread of this execution may use.
    fn turn(&self) -> Turn<'static, Watched> {
        // SAFETY: the list lives until `finish` drops it, and every scenario joins its threads before that.
        unsafe { &*Arc::as_ptr(&self.list) }.turn()
    }

    /// One process alone in its phase: reads the counter, and appends.
    fn phase(&self, name: u32) -> AppendAnswer {
        self.list.turn().append(self.value(name))
    }

    fn spawn<R: 'static>(&self, body: impl FnOnce(&Self) -> R + 'static) -> thread::JoinHandle<R> {
        let run = self.clone();
        thread::spawn(move || body(&run))
    }

    fn names(&self) -> Vec<u32> {
        self.list.iter().map(Watched::name).collect()
    }

    /// The names that stand in the end, after the object has proved itself against what the appends were
    /// told. `crashed` are those that stopped after writing their cell, and so were told nothing.
    fn finish(self, answers: Answers, crashed: &[u32]) -> Vec<u32> {
        // The next phase helps whoever stopped half-way.
        let end = self.list.turn().position();
        let names = self.names();
        assert_eq!(names.len(), end.index(), "the list has no hole");
        assert_eq!(self.list.len(), end.get());

        let mut winners: Vec<Option<u32>> = vec![None; names.len()];
        for (name, answer) in answers {
            if let Success(position) = answer {
                let earlier = winners[position.index()].replace(name);
                assert_eq!(earlier, None, "a position has one winner");
                assert_eq!(names[position.index()], name, "what was written stays");
            } else {
                assert!(!names.contains(&name), "an append that failed added nothing");
            }
        }
        for (winner, name) in winners.iter().zip(&names) {
            assert!(winner.is_some() || crashed.contains(name), "an entry was told success");
        }

        let (made, dropped) = (Arc::clone(&self.made), Arc::clone(&self.dropped));
        let losers = made.load(Ordering::Relaxed) - names.len();
        assert_eq!(dropped.load(Ordering::Relaxed), losers, "losers were dropped, entries were not");
        drop(self);
        assert_eq!(
            dropped.load(Ordering::Relaxed),
            made.load(Ordering::Relaxed),
            "each value is dropped once"
        );
        names
    }
}

/// Runs the scenario in every interleaving of its threads and says how many executions that took. With three
/// threads they are too many: there, in every interleaving that takes the processor from a thread at most so
/// many times.
fn every_interleaving(name: &str, threads: u32, scenario: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    let mut checker = loom::model::Builder::new();
    if threads > 2 && checker.preemption_bound.is_none() {
        checker.preemption_bound = Some(PREEMPTIONS_OF_THREE);
    }
    checker.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scenario();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{name}: {executions} executions");
    assert!(executions > 1, "the threads of a scenario must meet");
}

fn join<R>(threads: Vec<thread::JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn at(position: u32) -> AppendAnswer {
    Success(Position::new(position))
}

/// All appends of one phase have one turn, whichever threads carry them out: one wins, at once.
fn one_phase(threads: u32) {
    every_interleaving(&format!("one phase, {threads} threads"), threads, move || {
        let run = Run::with_limit(2);
        let turn = run.turn();
        let append = |name| run.spawn(move |run| (name, turn.append(run.value(name))));
        let answers = join((1..=threads).map(append).collect());
        let successes = answers.iter().filter(|(_, answer)| *answer == at(0)).count();
        let failures = answers.iter().filter(|(_, answer)| *answer == Failed).count();
        assert_eq!((successes, failures), (1, threads as usize - 1));
        assert_eq!(run.list.len(), 1, "whoever has its answer knows the counter past the cell");
        assert_eq!(run.finish(answers, &[]).len(), 1);
    });
}

#[test]
fn two_threads_of_one_phase_have_one_winner() {
    one_phase(2);
}

#[test]
fn three_threads_of_one_phase_have_one_winner() {
    one_phase(3);
}

/// Threads that each go through phases of their own, at any speed: a turn may be old when it is used.
fn phases_of_their_own(threads: u32, phases: u32, limit: u32) {
    every_interleaving(
        &format!("{threads} threads, {phases} phases each, limit {limit}"),
        threads,
        move || {
            let run = Run::with_limit(limit);
            let appends = |thread: u32| {
                let names = (0..phases).map(move |phase| thread * 10 + phase);
                run.spawn(move |run| names.map(|name| (name, run.phase(name))).collect::<Answers>())
            };
            let answers: Answers = join((1..=threads).map(appends).collect()).concat();
            let full = answers.iter().any(|(_, answer)| *answer == LimitReached);
            let names = run.finish(answers, &[]);
            assert!(!names.is_empty(), "somebody wins the first position");
            assert!(!full || names.len() == limit as usize, "the limit is reached only by a full list");
        },
    );
}

#[test]
fn two_threads_in_two_phases_each_leave_no_hole() {
    phases_of_their_own(2, 2, 4);
}

#[test]
fn three_threads_in_a_phase_each_leave_no_hole() {
    phases_of_their_own(3, 1, 3);
}

#[test]
fn the_limit_holds_however_the_phases_meet() {
    phases_of_their_own(2, 2, 1);
    phases_of_their_own(3, 1, 1);
}

#[test]
fn a_delayed_thread_overwrites_nothing() {
    every_interleaving("a delayed turn, 2 threads", 2, || {
        let run = Run::with_limit(4);
        let old = run.turn();
        let delayed = run.spawn(move |run| vec![(1, old.append(run.value(1)))]);
        let punctual = run.spawn(|run| vec![(2, run.phase(2)), (3, run.phase(3))]);
        let answers = join(vec![delayed, punctual]).concat();
        assert!(
            matches!(answers[0].1, Failed) || answers[0].1 == at(0),
            "an old turn wins its own position or none"
        );
        let names = run.finish(answers, &[]);
        // The punctual thread fails at most once: in the phase whose position the delayed one takes.
        assert!(
            names.len() >= 2 || names == [1, 3] || names == [1],
            "the punctual thread goes on: {names:?}"
        );
        assert_eq!(names.last(), Some(&3), "two phases by one thread: the second is behind the delayed turn");
    });
}

#[test]
fn two_delayed_threads_of_one_phase_and_one_of_the_next_leave_no_hole() {
    every_interleaving("a phase of two, both delayed, and the next phase, 3 threads", 3, || {
        let run = Run::with_limit(3);
        let old = run.turn();
        let delayed = [1, 2].map(|name| run.spawn(move |run| (name, old.append(run.value(name)))));
        let next = run.spawn(|run| (3, run.phase(3)));
        let answers = join(delayed.into_iter().chain([next]).collect());
        let [one, two, three] = [answers[0].1, answers[1].1, answers[2].1];
        assert!([one, two].iter().filter(|answer| **answer == Failed).count() >= 1);
        assert!(
            three == at(1) || (three == at(0)) != (one == at(0) || two == at(0)),
            "one winner of position 0"
        );
        run.finish(answers, &[]);
    });
}

/// Readers beside `writers`: two looks each. Each look is a prefix of the next, and of the final list.
/// Answers with the lengths that were seen: where a checker leaves out interleavings, it shows here.
fn readers_beside(writers: u32, phases: u32) -> BTreeSet<(usize, usize)> {
    let looks: Arc<Mutex<BTreeSet<(usize, usize)>>> = Arc::default();
    let note = Arc::clone(&looks);
    every_interleaving(
        &format!("a reader beside {writers} writers of {phases} phases"),
        1 + writers,
        move || {
            let run = Run::with_limit(3);
            let noted = Arc::clone(&note);
            let reader = run.spawn(move |run| {
                let first = run.names();
                let length = run.list.len();
                let second = run.names();
                assert!(
                    first.len() <= length as usize && length as usize <= second.len(),
                    "the list only grows"
                );
                assert!(second.starts_with(&first), "entries never change");
                noted.lock().unwrap().insert((first.len(), second.len()));
                let entry = run.list.get(Position::new(0)).map(Watched::name);
                assert!(second.first().is_none_or(|name| Some(*name) == entry), "get and iter show one list");
                second
            });
            let appends = |thread: u32| {
                let names = (0..phases).map(move |phase| thread * 10 + phase);
                run.spawn(move |run| names.map(|name| (name, run.phase(name))).collect::<Answers>())
            };
            let answers = join((1..=writers).map(appends).collect()).concat();
            let seen = reader.join().unwrap();
            assert!(run.finish(answers, &[]).starts_with(&seen), "a reader sees a prefix of the list");
        },
    );
    let looks = looks.lock().unwrap().clone();
    looks
}

const EVERY_PAIR_OF_LOOKS: [(usize, usize); 6] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)];

#[test]
fn a_reader_beside_one_writer_sees_prefixes() {
    assert!(readers_beside(1, 2).iter().eq(&EVERY_PAIR_OF_LOOKS));
}

#[test]
fn a_reader_beside_two_writers_sees_prefixes() {
    assert!(readers_beside(2, 1).iter().eq(&EVERY_PAIR_OF_LOOKS));
}

/// A writer that stops for ever between its cell and the counter, beside `others`, each in a phase of its
/// own.
fn a_crash_beside(others: u32) {
    every_interleaving(
        &format!("a crash between cell and counter, {others} others"),
        1 + others,
        move || {
            let run = Run::with_limit(3);
            let crashing = run.spawn(|run| run.list.turn().append_and_crash_before_the_counter(run.value(1)));
            let next = |name| run.spawn(move |run| (name, run.phase(name)));
            let answers = join((2..2 + others).map(next).collect());
            let crashed = if crashing.join().unwrap() { &[1][..] } else { &[] };
            let names = run.finish(answers, crashed);
            assert!(
                crashed.iter().all(|name| names.contains(name)),
                "what was written counts, although nobody was told"
            );
        },
    );
}

#[test]
fn who_comes_after_a_crashed_writer_helps() {
    a_crash_beside(1);
}

#[test]
fn two_who_come_after_a_crashed_writer_help() {
    a_crash_beside(2);
}

#[test]
fn the_phase_after_a_crash_has_the_next_position() {
    every_interleaving("two threads in the phase after a crash", 2, || {
        let run = Run::with_limit(3);
        let crashing = run.spawn(|run| run.list.turn().append_and_crash_before_the_counter(run.value(1)));
        assert!(crashing.join().unwrap());
        assert_eq!(run.list.len(), 0, "the counter lags behind the cell");
        // Two threads help at once, then append.
        let phase = |name| run.spawn(move |run| (name, run.list.turn().append(run.value(name))));
        let answers = join(vec![phase(2), phase(3)]);
        assert!(answers.iter().any(|(_, answer)| *answer == at(1)), "nobody is held up by the crash");
        let names = run.finish(answers, &[1]);
        assert_eq!(names[0], 1);
    });
}

#[test]
fn a_value_whose_writer_crashed_is_freed_even_if_nobody_comes() {
    every_interleaving("a crash beside a loser, then the object is dropped", 2, || {
        let run = Run::with_limit(2);
        let turn = run.turn();
        let crash = |name| run.spawn(move |run| turn.append_and_crash_before_the_counter(run.value(name)));
        let wrote = join(vec![crash(1), crash(2)]);
        assert_ne!(wrote[0], wrote[1]);
        let (made, dropped) = (Arc::clone(&run.made), Arc::clone(&run.dropped));
        assert!(run.list.is_empty());
        drop(run);
        assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
    });
}
