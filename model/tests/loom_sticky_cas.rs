//! The StickyCAS object under loom: each scenario runs once for every interleaving of its threads and for
//! every value that the memory model lets a load return. Small scenarios of two threads are explored in full
//! (`ALL`), larger ones and those of three threads with few preemptions. Why nothing is left out of that: see
//! `src/sync.rs`.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_sticky_cas -- --nocapture
//! ```
//!
//! In every execution of every scenario: nothing is overwritten, there is no hole, each position has one
//! winner, what is read was completely written before (the values hold a cell that the checker watches), and
//! each value, winner or loser, is dropped exactly once. Each scenario also says which outcomes there are,
//! all of which must occur: an exploration that left something out would show.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, in functions that tests share")]
#![allow(unsafe_code, reason = "the checker's threads cannot borrow, and its cells hand out pointers")]

use std::collections::BTreeSet;
use std::fmt::Debug;
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

/// Every interleaving there is.
const ALL: Option<usize> = None;
/// Every interleaving that takes the processor from a running thread at most twice; three times if
/// STICKYCAS_LONG is set (`scripts/verify --all loom`). `LOOM_MAX_PREEMPTIONS` sets the bound of all
/// scenarios instead.
fn few_preemptions() -> Option<usize> {
    Some(if std::env::var_os("STICKYCAS_LONG").is_some() { 3 } else { 2 })
}

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

    /// A thread that is alone in each of so many phases: it reads the counter, and appends. Its values are
    /// named from `first` on.
    fn append_in_turn(&self, first: u32, phases: u32) -> thread::JoinHandle<Answers> {
        self.spawn(move |run| {
            let phase = |name| (name, run.list.turn().append(run.value(name)));
            (first..first + phases).map(phase).collect()
        })
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

/// Runs the scenario in every interleaving with at most so many preemptions, and says what came out.
fn outcomes<O: Ord + Clone + Debug + Send + 'static>(
    name: &str,
    preemptions: Option<usize>,
    scenario: impl Fn() -> O + Send + Sync + 'static,
) -> BTreeSet<O> {
    let executions = Arc::new(AtomicUsize::new(0));
    let outcomes: Arc<Mutex<BTreeSet<O>>> = Arc::default();
    let (counted, noted) = (Arc::clone(&executions), Arc::clone(&outcomes));
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = checker.preemption_bound.or(preemptions);
    checker.check(move || {
        let outcome = scenario();
        counted.fetch_add(1, Ordering::Relaxed);
        noted.lock().unwrap().insert(outcome);
    });
    let outcomes = outcomes.lock().unwrap().clone();
    println!("{name}: {} executions, outcomes {outcomes:?}", executions.load(Ordering::Relaxed));
    outcomes
}

/// The lists with these names, each read as its digits.
fn lists<const N: usize>(lists: [&str; N]) -> BTreeSet<Vec<u32>> {
    let names = |list: &str| list.chars().map(|name| name.to_digit(10).unwrap()).collect();
    lists.into_iter().map(names).collect()
}

fn join<R>(threads: Vec<thread::JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn at(position: u32) -> AppendAnswer {
    Success(Position::new(position))
}

/// All appends of one phase have one turn, whichever threads carry them out: one wins, at once.
fn one_phase(threads: u32, preemptions: Option<usize>) -> BTreeSet<Vec<u32>> {
    outcomes(&format!("one phase, {threads} threads"), preemptions, move || {
        let run = Run::with_limit(2);
        let turn = run.turn();
        let append = |name| run.spawn(move |run| (name, turn.append(run.value(name))));
        let answers = join((1..=threads).map(append).collect());
        let successes = answers.iter().filter(|(_, answer)| *answer == at(0)).count();
        let failures = answers.iter().filter(|(_, answer)| *answer == Failed).count();
        assert_eq!((successes, failures), (1, threads as usize - 1));
        assert_eq!(run.list.len(), 1, "whoever has its answer knows the counter past the cell");
        run.finish(answers, &[])
    })
}

#[test]
fn two_threads_of_one_phase_have_one_winner() {
    assert_eq!(one_phase(2, ALL), lists(["1", "2"]));
}

#[test]
fn three_threads_of_one_phase_have_one_winner() {
    assert_eq!(one_phase(3, few_preemptions()), lists(["1", "2", "3"]));
}

/// Threads that each go through phases of their own, at any speed: a turn may be old when it is used. Thread
/// 1 appends 1 (and then 2), thread 3 appends 3 (and then 4), thread 5 appends 5.
fn own_phases(threads: u32, phases: u32, limit: u32, preemptions: Option<usize>) -> BTreeSet<Vec<u32>> {
    let name = format!("{threads} threads, {phases} phases each, limit {limit}");
    outcomes(&name, preemptions, move || {
        let run = Run::with_limit(limit);
        let appends = |thread| run.append_in_turn(2 * thread + 1, phases);
        let answers = join((0..threads).map(appends).collect()).concat();
        let full = answers.iter().any(|(_, answer)| *answer == LimitReached);
        let names = run.finish(answers, &[]);
        assert!(!full || names.len() == limit as usize, "the limit is reached only by a full list");
        names
    })
}

#[test]
fn two_threads_in_phases_of_their_own_leave_no_hole() {
    assert_eq!(own_phases(2, 1, 2, ALL), lists(["1", "3", "13", "31"]));
}

#[test]
fn two_threads_in_two_phases_each_leave_no_hole() {
    let found = own_phases(2, 2, 4, Some(3));
    // Whoever loses a phase does so to the other one, so each phase of a thread adds an entry of either.
    assert!(found.iter().all(|names| (2..=4).contains(&names.len())), "{found:?}");
    assert!(
        found.is_superset(&lists(["12", "34", "1234", "3412", "1324", "3142", "132", "314"])),
        "{found:?}"
    );
}

#[test]
fn three_threads_in_a_phase_each_leave_no_hole() {
    let found = own_phases(3, 1, 3, few_preemptions());
    assert!(found.is_superset(&lists(["1", "3", "5", "13", "51", "35", "135", "315", "531"])), "{found:?}");
}

#[test]
fn the_limit_holds_however_the_phases_meet() {
    assert_eq!(own_phases(2, 1, 1, ALL), lists(["1", "3"]));
    assert_eq!(own_phases(2, 2, 1, few_preemptions()), lists(["1", "3"]));
    assert_eq!(own_phases(3, 1, 1, few_preemptions()), lists(["1", "3", "5"]));
}

#[test]
fn a_delayed_thread_overwrites_nothing() {
    let found = outcomes("a delayed turn, 2 threads", ALL, || {
        let run = Run::with_limit(4);
        let old = run.turn();
        let delayed = run.spawn(move |run| vec![(1, old.append(run.value(1)))]);
        let punctual = run.append_in_turn(2, 2);
        let answers = join(vec![delayed, punctual]).concat();
        assert!(
            matches!(answers[0].1, Failed) || answers[0].1 == at(0),
            "an old turn wins its position or none"
        );
        run.finish(answers, &[])
    });
    // The punctual thread fails only in the phase whose position the delayed one takes.
    assert_eq!(found, lists(["123", "13", "23"]));
}

#[test]
fn delayed_threads_of_two_phases_leave_no_hole() {
    let found = outcomes("a phase of two, both delayed, and the next phase", few_preemptions(), || {
        let run = Run::with_limit(3);
        let old = run.turn();
        let delayed = [1, 2].map(|name| run.spawn(move |run| vec![(name, old.append(run.value(name)))]));
        let next = run.append_in_turn(3, 1);
        let answers = join(delayed.into_iter().chain([next]).collect()).concat();
        run.finish(answers, &[])
    });
    assert_eq!(found, lists(["1", "2", "3", "13", "23"]));
}

/// A reader that looks twice beside `writers`. Each look is a prefix of the next, and of the final list.
/// Answers with the lengths that it saw.
fn readers_beside(writers: u32, phases: u32, preemptions: Option<usize>) -> BTreeSet<(usize, usize)> {
    let name = format!("a reader beside {writers} writers of {phases} phases");
    outcomes(&name, preemptions, move || {
        let run = Run::with_limit(3);
        let reader = run.spawn(|run| {
            let first = run.names();
            let length = run.list.len() as usize;
            let second = run.names();
            assert!(first.len() <= length && length <= second.len(), "the list only grows");
            assert!(second.starts_with(&first), "entries never change");
            let entry = run.list.get(Position::new(0)).map(Watched::name);
            assert!(second.first().is_none_or(|name| Some(*name) == entry), "get and iter show one list");
            (first, second)
        });
        let appends = |thread| run.append_in_turn(2 * thread + 1, phases);
        let answers = join((0..writers).map(appends).collect()).concat();
        let (first, second) = reader.join().unwrap();
        assert!(run.finish(answers, &[]).starts_with(&second), "a reader sees a prefix of the list");
        (first.len(), second.len())
    })
}

const EVERY_PAIR_OF_LOOKS: [(usize, usize); 6] = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)];

#[test]
fn a_reader_beside_one_writer_sees_prefixes() {
    assert_eq!(readers_beside(1, 2, ALL), EVERY_PAIR_OF_LOOKS.into());
}

#[test]
fn a_reader_beside_two_writers_sees_prefixes() {
    assert_eq!(readers_beside(2, 1, few_preemptions()), EVERY_PAIR_OF_LOOKS.into());
}

/// A writer, 9, that stops for ever between its cell and the counter, beside others, each in a phase of its
/// own.
fn a_crash_beside(others: u32, preemptions: Option<usize>) -> BTreeSet<Vec<u32>> {
    let name = format!("a crash between cell and counter, {others} others");
    outcomes(&name, preemptions, move || {
        let run = Run::with_limit(3);
        let crashing = run.spawn(|run| run.list.turn().append_and_crash_before_the_counter(run.value(9)));
        let answers = join((1..=others).map(|name| run.append_in_turn(name, 1)).collect()).concat();
        let crashed = if crashing.join().unwrap() { &[9][..] } else { &[] };
        let names = run.finish(answers, crashed);
        assert!(crashed.iter().all(|name| names.contains(name)), "what was written counts, told or not");
        names
    })
}

#[test]
fn who_comes_after_a_crashed_writer_helps() {
    assert_eq!(a_crash_beside(1, ALL), lists(["9", "1", "91", "19"]));
}

#[test]
fn two_who_come_after_a_crashed_writer_help() {
    let found = a_crash_beside(2, few_preemptions());
    assert!(found.is_superset(&lists(["9", "1", "2", "91", "92", "19", "912", "921", "192"])), "{found:?}");
}

#[test]
fn the_phase_after_a_crash_has_the_next_position() {
    let found = outcomes("two threads in phases of their own after a crash", few_preemptions(), || {
        let run = Run::with_limit(3);
        assert!(run.list.turn().append_and_crash_before_the_counter(run.value(9)));
        assert_eq!(run.list.len(), 0, "the counter lags behind the cell");
        let answers = join(vec![run.append_in_turn(1, 1), run.append_in_turn(2, 1)]).concat();
        run.finish(answers, &[9])
    });
    assert_eq!(found, lists(["91", "92", "912", "921"]));
}

#[test]
fn a_value_whose_writer_crashed_is_freed_even_if_nobody_comes() {
    let found = outcomes("two crashes in one phase, then the object is dropped", ALL, || {
        let run = Run::with_limit(2);
        let turn = run.turn();
        let crash = |name| run.spawn(move |run| turn.append_and_crash_before_the_counter(run.value(name)));
        let wrote = join(vec![crash(1), crash(2)]);
        let (made, dropped) = (Arc::clone(&run.made), Arc::clone(&run.dropped));
        assert!(run.list.is_empty());
        drop(run);
        assert_eq!(dropped.load(Ordering::Relaxed), made.load(Ordering::Relaxed));
        wrote
    });
    assert_eq!(found, BTreeSet::from([vec![true, false], vec![false, true]]));
}
