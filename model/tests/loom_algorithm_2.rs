//! Algorithm 2 as the paper prints it, in every interleaving, and [`StickyCas`] in the same scenarios. SPEC
//! section 9 says what these tests show:
//!
//! - in lock step the printed algorithm is correct, as long as nobody appends NULL;
//! - out of lock step it overwrites an entry, and each time because the entry was written between the moment
//!   at which another process read the counter and the moment at which that process read the cell;
//! - a process that is delayed between its read of the cell and its CAS overwrites nothing: the CAS fails. So
//!   no entry is overwritten either when the counter and the cell are read together;
//! - a crash between the two CAS leaves a hole;
//! - an append of NULL leaves a hole if it is alone in its phase, and makes two appends succeed if its CAS
//!   comes first, in lock step too.
//!
//! In the same scenarios [`StickyCas`] neither overwrites nor leaves a hole.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p stickycas-model --release \
//!     --test loom_algorithm_2 -- --nocapture
//! ```
//!
//! The paper's registers are atomic, so the executions of the printed algorithm are exactly the interleavings
//! of its steps: they are enumerated here, without threads. Ours runs in threads under loom, which also tries
//! what weak memory allows.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test, in functions that tests share")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};

use loom::thread;
use stickycas_model::access::AppendAnswer;
use stickycas_model::sticky_cas::StickyCas;
use stickycas_model::types::Position;

/// The paper's NULL. Processes append their own number.
const NULL: u32 = 0;
const LIMIT: usize = 3;

/// The steps of an append on shared memory, in order. The last two are its CAS.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Step {
    ReadCounter,
    ReadCell,
    AdvanceCounter,
    WriteCell,
    Done,
}

use Step::{AdvanceCounter, Done, ReadCell, ReadCounter, WriteCell};

/// Whether steps of another process may come between an append's read of the counter and its read of the
/// cell.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// As printed: two steps.
    Apart,
    /// One step.
    Together,
}

/// What the processes share (Algorithm 2: `class StickyCAS`). Positions count from 0 here, from 1 in the
/// paper.
#[derive(Clone, Default)]
struct Memory {
    counter: u32,
    proposed_list: [u32; LIMIT],
}

/// StickyCAS-append as printed, by one process.
#[derive(Clone)]
struct Append {
    value: u32,
    next: Step,
    k: u32,
    m: u32,
    answer: Option<AppendAnswer>,
}

impl Append {
    fn new(value: u32) -> Self {
        Self { value, next: ReadCounter, k: 0, m: NULL, answer: None }
    }

    /// Executes the next step.
    fn step(&mut self, memory: &mut Memory) {
        let cell = self.k as usize;
        self.next = match self.next {
            ReadCounter => {
                self.k = memory.counter; //                           int k <- counter_sh
                ReadCell
            }
            // As printed, cell k is read before the check; a list that is full has no such cell.
            ReadCell if cell >= LIMIT => {
                self.answer = Some(AppendAnswer::LimitReached);
                Done
            }
            ReadCell => {
                self.m = memory.proposed_list[cell]; //               value m <- proposedList_sh[k]
                AdvanceCounter
            }
            AdvanceCounter => {
                if memory.counter == self.k {
                    memory.counter += 1; //                           counter_sh.CAS(k, k+1)
                }
                WriteCell
            }
            // if (proposedList_sh[k].CAS(m, val)) return "Append Success" else return "Append Failed"
            WriteCell if memory.proposed_list[cell] == self.m => {
                memory.proposed_list[cell] = self.value;
                self.answer = Some(AppendAnswer::Success(Position::new(self.k)));
                Done
            }
            WriteCell => {
                self.answer = Some(AppendAnswer::Failed);
                Done
            }
            Done => Done,
        };
    }
}

/// What can be wrong with a list, given the answers of the appends (A1, A3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// An append was answered that its value stands, and it does not.
    Overwritten,
    /// Two appends were answered that they won one position.
    TwoWinners,
    /// There is an empty cell before a full one.
    Hole,
}

/// The end of an execution: each append's value and answer (`None`: it crashed), and the cells. The same
/// judge for both objects.
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

fn none() -> BTreeSet<BTreeSet<Fault>> {
    BTreeSet::from([BTreeSet::new()])
}

/// The results of all interleavings of a scenario.
#[derive(Default)]
struct Found {
    interleavings: usize,
    /// The sets of faults that an execution had.
    kinds: BTreeSet<BTreeSet<Fault>>,
    /// Executions that overwrite an entry.
    overwrite: usize,
    /// Of these, executions in which each lost entry was written while another process was between its two
    /// reads.
    between_the_reads: usize,
    /// Executions in which a process wrote a cell while another one was between its read of that cell and its
    /// CAS.
    between_cell_and_cas: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interleavings, kinds, overwrite, between_the_reads, between_cell_and_cas } = self;
        write!(
            f,
            "{interleavings} interleavings; {overwrite} overwrite an entry, {between_the_reads} of them by a gap "
        )?;
        write!(
            f,
            "between reading counter and cell; {between_cell_and_cas} have a write between another's read of the "
        )?;
        write!(f, "cell and its CAS; faults: {kinds:?}")
    }
}

/// Processes 1 to n append at once with the printed algorithm: an execution up to some step.
#[derive(Clone)]
struct Execution {
    memory: Memory,
    appends: Vec<Append>,
    /// The process and the kind of each step so far.
    trace: Vec<(u32, Step)>,
}

impl Execution {
    fn new(processes: u32) -> Self {
        Self::of(1..=processes)
    }

    fn of(values: impl IntoIterator<Item = u32>) -> Self {
        let appends = values.into_iter().map(Append::new).collect();
        Self { memory: Memory::default(), appends, trace: Vec::new() }
    }

    /// Every execution from here on. In lock step no process is a step ahead of another one that is behind.
    fn explore(&self, reads: Reads, lock_step: bool, found: &mut Found) {
        if self.appends.iter().all(|append| append.next == Done) {
            return self.judge(found);
        }
        for (index, append) in self.appends.iter().enumerate() {
            let behind = self.appends.iter().any(|other| other.next < append.next);
            if append.next == Done || (lock_step && behind) {
                continue;
            }
            let mut after = self.clone();
            after.step(index);
            if reads == Reads::Together && after.appends[index].next == ReadCell {
                after.step(index);
            }
            after.explore(reads, lock_step, found);
        }
    }

    fn step(&mut self, index: usize) {
        let append = &mut self.appends[index];
        self.trace.push((append.value, append.next));
        append.step(&mut self.memory);
    }

    fn judge(&self, found: &mut Found) {
        let faults = faults(&self.answers(), &self.memory.proposed_list);
        let lost = || {
            self.appends.iter().filter(|append| match append.answer {
                Some(AppendAnswer::Success(position)) => {
                    self.memory.proposed_list[position.index()] != append.value
                }
                _ => false,
            })
        };
        found.interleavings += 1;
        if faults.contains(&Fault::Overwritten) {
            found.overwrite += 1;
            let gap = |append| self.is_written_between(append, ReadCounter, ReadCell);
            found.between_the_reads += usize::from(lost().all(gap));
        }
        let won =
            self.appends.iter().filter(|append| matches!(append.answer, Some(AppendAnswer::Success(_))));
        let mut late = won.filter(|append| self.is_written_between(append, ReadCell, WriteCell));
        found.between_cell_and_cas += usize::from(late.next().is_some());
        found.kinds.insert(faults);
    }

    /// Whether this append wrote its cell between these two steps of another append that names the same cell.
    fn is_written_between(&self, append: &Append, first: Step, second: Step) -> bool {
        let at = |value, step| self.trace.iter().position(|taken| *taken == (value, step));
        let write = at(append.value, WriteCell);
        let mut others =
            self.appends.iter().filter(|other| other.value != append.value && other.k == append.k);
        others.any(|other| at(other.value, first) < write && write < at(other.value, second))
    }

    fn answers(&self) -> Vec<(u32, Option<AppendAnswer>)> {
        self.appends.iter().map(|append| (append.value, append.answer)).collect()
    }
}

fn explore(name: &str, processes: u32, reads: Reads, lock_step: bool) -> Found {
    let mut found = Found::default();
    Execution::new(processes).explore(reads, lock_step, &mut found);
    println!("{name}, {processes} at once: {found}");
    found
}

#[test]
fn as_printed_it_is_correct_in_lock_step() {
    for processes in [2, 3] {
        let found = explore("as printed in lock step", processes, Reads::Apart, true);
        assert_eq!(found.kinds, none());
    }
}

#[test]
fn as_printed_it_overwrites_between_reading_counter_and_cell() {
    for (processes, interleavings, overwrite) in [(2, 70, 6), (3, 34_650, 6_678)] {
        let found = explore("as printed", processes, Reads::Apart, false);
        assert_eq!((found.interleavings, found.overwrite), (interleavings, overwrite));
        assert!(found.kinds.contains(&BTreeSet::from([Fault::Overwritten, Fault::TwoWinners])));
        assert_eq!(found.between_the_reads, found.overwrite, "no other gap overwrites");
    }
}

#[test]
fn a_delay_between_reading_the_cell_and_its_cas_is_harmless() {
    for (processes, interleavings) in [(2, 20), (3, 1_680)] {
        let found = explore("counter and cell read together", processes, Reads::Together, false);
        assert_eq!(found.interleavings, interleavings);
        assert!(found.between_cell_and_cas > 0, "the delay happened");
        assert_eq!(found.kinds, none());
    }
}

#[test]
fn as_printed_a_crash_between_its_two_cas_leaves_a_hole() {
    for crash in [ReadCounter, ReadCell, AdvanceCounter, WriteCell] {
        // Process 1 is alone in its phase and crashes before this step; process 2 appends in the next phase.
        let mut execution = Execution::new(2);
        while execution.appends[0].next < crash {
            execution.step(0);
        }
        while execution.appends[1].next < Done {
            execution.step(1);
        }
        let found = faults(&execution.answers(), &execution.memory.proposed_list);
        println!("as printed, a crash before {crash:?}: {found:?}");
        let expected = if crash == WriteCell { BTreeSet::from([Fault::Hole]) } else { BTreeSet::new() };
        assert_eq!(found, expected);
    }
}

/// Case (a) of the proof of Theorem 1: a Byzantine process appends NULL. Its CAS from NULL to NULL succeeds
/// and leaves the cell empty.
#[test]
fn as_printed_an_empty_value_breaks_it_even_in_lock_step() {
    let mut found = Found::default();
    Execution::of([NULL, 2]).explore(Reads::Apart, true, &mut found);
    println!("as printed in lock step, one of them NULL: {found}");
    // Its CAS comes first, and the next one succeeds too; or second, and fails.
    let two = BTreeSet::from([Fault::Overwritten, Fault::TwoWinners]);
    assert_eq!(found.kinds, BTreeSet::from([BTreeSet::new(), two]));

    // It is alone in its phase, and another process appends in the next.
    let mut execution = Execution::of([NULL, 2]);
    for index in [0, 1] {
        while execution.appends[index].next < Done {
            execution.step(index);
        }
    }
    let found = faults(&execution.answers(), &execution.memory.proposed_list);
    assert_eq!(found, BTreeSet::from([Fault::Hole]));
}

/// Runs a scenario of ours in every interleaving: the sets of faults that an execution had.
fn check_ours<S>(name: &str, scenario: S) -> BTreeSet<BTreeSet<Fault>>
where
    S: Fn() -> (Vec<(u32, Option<AppendAnswer>)>, Vec<u32>) + Send + Sync + 'static,
{
    let found: Arc<Mutex<Vec<BTreeSet<Fault>>>> = Arc::default();
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

/// The cells of ours, padded like the printed ones.
fn cells_of(object: &StickyCas<u32>) -> Vec<u32> {
    let _ = object.turn(); // the next phase
    let mut cells: Vec<u32> = object.iter().copied().collect();
    cells.resize(LIMIT, NULL);
    cells
}

#[test]
fn ours_does_not_overwrite_out_of_lock_step() {
    let kinds = check_ours("ours, no lock step", || {
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
    let kinds = check_ours("ours, a crash between cell and counter", || {
        let object = Arc::new(StickyCas::with_limit(LIMIT as u32));
        assert!(object.turn().append_and_crash_before_the_counter(1));
        let next = Arc::clone(&object);
        let answer = thread::spawn(move || next.turn().append(2)).join().unwrap();
        assert_eq!(answer, AppendAnswer::Success(Position::new(1)));
        (vec![(1, None), (2, Some(answer))], cells_of(&object))
    });
    assert_eq!(kinds, none());
}
