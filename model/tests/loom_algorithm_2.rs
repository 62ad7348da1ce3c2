//! Algorithm 2 as the paper prints it, in every interleaving, under the same checker as [`StickyCas`]. SPEC section 9
//! says what these tests show:
//!
//! - in lock step the printed algorithm is correct;
//! - out of lock step it overwrites an entry, and each time because the entry was written between the moment at which
//!   another process read the counter and the moment at which that process read the cell;
//! - a process that is delayed between its read of the cell and its CAS overwrites nothing: the CAS fails. So nothing is
//!   overwritten either when the counter and the cell are read together;
//! - a crash between the two CAS leaves a hole.
//!
//! In the same scenarios [`StickyCas`] neither overwrites nor leaves a hole.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_algorithm_2 -- --nocapture
//! ```
//!
//! The paper's registers are atomic, so each step of the printed algorithm is one critical section: a fault that is found
//! is not one of weak memory, and the executions are exactly the interleavings of the steps.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, in functions that tests share")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use loom::sync::{Condvar, Mutex, MutexGuard};
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

/// Whether steps of another process may come between an append's read of the counter and its read of the cell.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// As printed: two steps.
    Apart,
    /// One step.
    Together,
}

/// Algorithm 2: `class StickyCAS`. Positions count from 0 here, from 1 in the paper.
struct AsPrinted {
    memory: Mutex<Memory>,
    reads: Reads,
    /// Not in the paper: how many steps all threads together have done, if they go in lock step.
    steps: (Mutex<u32>, Condvar),
}

/// What the processes share, and the order of their steps.
struct Memory {
    counter: u32,
    proposed_list: [u32; LIMIT],
    trace: Vec<(u32, Step)>,
}

impl AsPrinted {
    fn new(reads: Reads) -> Self {
        let memory = Memory { counter: 0, proposed_list: [NULL; LIMIT], trace: Vec::new() };
        Self { memory: Mutex::new(memory), reads, steps: (Mutex::new(0), Condvar::new()) }
    }

    /// StickyCAS-append. `before` runs before each step; the process crashes there if it answers `false`.
    fn append(&self, value: u32, before: impl Fn(Step) -> bool) -> Option<AppendAnswer> {
        before(ReadCounter).then_some(())?;
        let mut memory = self.step(value, ReadCounter);
        let k = memory.counter; //                            int k <- counter_sh
        if self.reads == Reads::Apart {
            drop(memory);
            before(ReadCell).then_some(())?;
            memory = self.step(value, ReadCell);
        }
        // As printed, cell k is read before the check; a list that is full has no such cell.
        let cell = k as usize;
        let m = memory.proposed_list.get(cell).copied(); //   value m <- proposedList_sh[k]
        drop(memory);
        let Some(m) = m else { return Some(AppendAnswer::LimitReached) };
        before(AdvanceCounter).then_some(())?;
        let mut memory = self.step(value, AdvanceCounter);
        if memory.counter == k {
            memory.counter = k + 1; //                        counter_sh.CAS(k, k+1)
        }
        drop(memory);
        before(WriteCell).then_some(())?;
        let mut memory = self.step(value, WriteCell);
        // if (proposedList_sh[k].CAS(m, val)) return "Append Success" else return "Append Failed"
        if memory.proposed_list[cell] != m {
            return Some(AppendAnswer::Failed);
        }
        memory.proposed_list[cell] = value;
        Some(AppendAnswer::Success(Position::new(k)))
    }

    /// Begins a step, which lasts as long as the guard lives.
    fn step(&self, value: u32, step: Step) -> MutexGuard<'_, Memory> {
        let mut memory = self.memory.lock().unwrap();
        memory.trace.push((value, step));
        memory
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

/// An execution: what each value's append was answered (`None`: it crashed), the cells at the end, and, of the printed
/// algorithm, the order of the steps.
struct Execution {
    answers: Vec<(u32, Option<AppendAnswer>)>,
    cells: Vec<u32>,
    trace: Vec<(u32, Step)>,
}

impl Execution {
    /// The same judge for both objects.
    fn faults(&self) -> BTreeSet<Fault> {
        let mut faults = BTreeSet::new();
        let mut won = BTreeSet::new();
        for (value, answer) in &self.answers {
            if let Some(AppendAnswer::Success(position)) = answer {
                if self.cells[position.index()] != *value {
                    faults.insert(Fault::Overwritten);
                }
                if !won.insert(*position) {
                    faults.insert(Fault::TwoWinners);
                }
            }
        }
        if self.cells.windows(2).any(|pair| pair[0] == NULL && pair[1] != NULL) {
            faults.insert(Fault::Hole);
        }
        faults
    }

    /// Whether a process wrote a cell, to keep, between two such steps of another process.
    fn writes_between(&self, first: Step, second: Step) -> bool {
        let at = |value, step| self.trace.iter().position(|taken| *taken == (value, step));
        let overwritten = self.answers.iter().filter_map(|(value, answer)| match answer {
            Some(AppendAnswer::Success(position)) if self.cells[position.index()] != *value => Some(*value),
            _ => None,
        });
        let mut overwritten = overwritten.peekable();
        overwritten.peek().is_some()
            && overwritten.all(|written| {
                let others = self.answers.iter().map(|(other, _)| *other).filter(|other| *other != written);
                let write = at(written, WriteCell);
                others.into_iter().any(|other| at(other, first) < write && write < at(other, second))
            })
    }
}

/// What all interleavings of a scenario came to.
#[derive(Default)]
struct Found {
    executions: usize,
    /// The sets of faults that an execution had.
    kinds: BTreeSet<BTreeSet<Fault>>,
    /// Executions in which an entry is overwritten.
    overwrite: usize,
    /// Of these, executions in which each lost entry was written while another process was between its two reads.
    between_the_reads: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { executions, kinds, overwrite, between_the_reads } = self;
        write!(
            f,
            "{executions} interleavings, {overwrite} overwrite an entry, of these {between_the_reads} by a "
        )?;
        write!(f, "write between the other's reads of counter and cell; faults: {kinds:?}")
    }
}

/// Runs the scenario in every interleaving.
fn explore(name: &str, scenario: impl Fn() -> Execution + Send + Sync + 'static) -> Found {
    let found: Arc<std::sync::Mutex<Found>> = Arc::default();
    let finds = Arc::clone(&found);
    loom::model(move || {
        let execution = scenario();
        let faults = execution.faults();
        let mut found = finds.lock().unwrap();
        found.executions += 1;
        found.overwrite += usize::from(faults.contains(&Fault::Overwritten));
        found.between_the_reads += usize::from(execution.writes_between(ReadCounter, ReadCell));
        found.kinds.insert(faults);
    });
    let found = std::mem::take(&mut *found.lock().unwrap());
    println!("{name}: {found}");
    found
}

fn none() -> BTreeSet<BTreeSet<Fault>> {
    BTreeSet::from([BTreeSet::new()])
}

/// Processes 1 to `processes` append at once with the printed algorithm.
fn at_once(processes: u32, reads: Reads, lock_step: bool) -> Execution {
    let object = Arc::new(AsPrinted::new(reads));
    let append = |value| {
        let object = Arc::clone(&object);
        thread::spawn(move || {
            let before = |step| {
                if lock_step {
                    object.lock_step(step, processes);
                }
                true
            };
            (value, object.append(value, before))
        })
    };
    let threads: Vec<_> = (1..=processes).map(append).collect();
    let answers = threads.into_iter().map(|process| process.join().unwrap()).collect();
    execution(&object, answers)
}

fn execution(object: &AsPrinted, answers: Vec<(u32, Option<AppendAnswer>)>) -> Execution {
    let memory = object.memory.lock().unwrap();
    Execution { answers, cells: memory.proposed_list.to_vec(), trace: memory.trace.clone() }
}

#[test]
fn as_printed_it_is_correct_in_lock_step() {
    let found = explore("as printed, 2 in lock step", || at_once(2, Reads::Apart, true));
    assert_eq!(found.kinds, none());
}

#[test]
fn as_printed_it_overwrites_between_reading_counter_and_cell() {
    for (processes, interleavings) in [(2, 70), (3, 34_650)] {
        let found = explore(&format!("as printed, {processes} at once"), move || {
            at_once(processes, Reads::Apart, false)
        });
        assert_eq!(found.executions, interleavings);
        assert!(found.kinds.contains(&BTreeSet::from([Fault::Overwritten, Fault::TwoWinners])));
        assert!(found.overwrite > 0);
        assert_eq!(found.between_the_reads, found.overwrite, "no other gap overwrites");
    }
}

#[test]
fn a_delay_between_reading_the_cell_and_its_cas_is_harmless() {
    for (processes, interleavings) in [(2, 20), (3, 1_680)] {
        let found = explore(&format!("counter and cell read together, {processes} at once"), move || {
            at_once(processes, Reads::Together, false)
        });
        assert_eq!((found.executions, found.overwrite), (interleavings, 0));
        assert_eq!(found.kinds, none());
    }
}

/// Process 1 is alone in its phase and crashes before a step; process 2 appends in the next phase.
fn a_crash_and_the_next_phase(crash: Step) -> Execution {
    let object = Arc::new(AsPrinted::new(Reads::Apart));
    let append = |value, crashes: bool| {
        let object = Arc::clone(&object);
        let process = thread::spawn(move || object.append(value, |step| !crashes || step < crash));
        (value, process.join().unwrap())
    };
    let answers = vec![append(1, true), append(2, false)];
    execution(&object, answers)
}

#[test]
fn as_printed_a_crash_between_its_two_cas_leaves_a_hole() {
    for crash in [ReadCounter, ReadCell, AdvanceCounter] {
        let found = explore("as printed, a crash before both CAS", move || a_crash_and_the_next_phase(crash));
        assert_eq!(found.kinds, none());
    }
    let found = explore("as printed, a crash between its CAS", || a_crash_and_the_next_phase(WriteCell));
    assert_eq!(found.kinds, BTreeSet::from([BTreeSet::from([Fault::Hole])]));
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
    let found = explore("ours, 2 at once", || {
        let object = Arc::new(StickyCas::with_limit(LIMIT as u32));
        let append = |value| {
            let object = Arc::clone(&object);
            thread::spawn(move || (value, Some(object.turn().append(value))))
        };
        let answers = [append(1), append(2)].map(|process| process.join().unwrap()).to_vec();
        Execution { answers, cells: cells_of(&object), trace: Vec::new() }
    });
    assert_eq!(found.kinds, none());
}

#[test]
fn ours_has_no_hole_after_a_crash_between_cell_and_counter() {
    let found = explore("ours, a crash between cell and counter", || {
        let object = Arc::new(StickyCas::with_limit(LIMIT as u32));
        assert!(object.turn().append_and_crash_before_the_counter(1));
        let next = Arc::clone(&object);
        let answer = thread::spawn(move || next.turn().append(2)).join().unwrap();
        assert_eq!(answer, AppendAnswer::Success(Position::new(1)));
        let answers = vec![(1, None), (2, Some(answer))];
        Execution { answers, cells: cells_of(&object), trace: Vec::new() }
    });
    assert_eq!(found.kinds, none());
}
