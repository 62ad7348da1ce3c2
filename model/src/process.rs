//! The acts of a process: the interface that a correct process and every Byzantine strategy share, and the
//! correct process itself (paper, Algorithm 1; SPEC D1 to D3).
//!
//! A [`Behaviour`] gives its next [`Act`] at the start, after each answer and after each refusal. It may base
//! it on nothing but its [`View`]. The simulator and the client's driver perform the act, so the same code
//! runs in both.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::entries::Entries;
use crate::params::{AppendWindow, Params, ValueError};
use crate::predicates::appends_again;
use crate::types::{AccessNumber, Phase, Position, ProcessId, RawValue, Value};

/// The knowledge of a process so far.
#[derive(Clone, Debug)]
pub struct View {
    /// The process.
    pub me: ProcessId,
    /// The parameters of the instance, known to all.
    pub params: Arc<Params>,
    /// The entries that it has read up to the first position that it has not.
    first: Entries,
    /// Those after that position, in the order of their positions. Nearly always none.
    later: Vec<(Position, Value)>,
    /// Whether the list was sealed when it last read.
    pub sealed: bool,
    /// Length of the list when it last read.
    pub length: u32,
    /// How many of its accesses have been answered, in this life and earlier ones.
    pub answered: u64,
    /// How many of its accesses have been refused in a row, in this life.
    pub refused: u64,
    /// How many of the reads that Algorithm 1 as printed makes one after the other have been answered, in
    /// this life.
    pub reads: u64,
    /// The answer of its append and the phase of it, once known: of the one that won, or else of its last.
    pub append: Option<(Phase, AppendAnswer)>,
    /// The phase of its last answer.
    pub phase: Option<Phase>,
}

impl View {
    /// The view of a process that has learnt nothing.
    #[must_use]
    pub fn new(me: ProcessId, params: Arc<Params>) -> Self {
        Self {
            me,
            params,
            first: Entries::default(),
            later: Vec::new(),
            sealed: false,
            length: 0,
            answered: 0,
            refused: 0,
            reads: 0,
            append: None,
            phase: None,
        }
    }

    /// The view of a process that has learnt nothing, in the memory of this one.
    pub(crate) fn begin_again(&mut self, me: ProcessId, params: Arc<Params>) {
        let mut first = std::mem::take(&mut self.first);
        first.clear();
        *self = Self { first, ..Self::new(me, params) };
    }

    /// Takes in an answer; `entries` are those that a read returned, from its start on. No phase: a read of
    /// an instance that is over (F10).
    pub fn learn(&mut self, phase: Option<Phase>, answer: Answer, entries: impl IntoIterator<Item = Value>) {
        self.note(phase, answer);
        if let Answer::Read(ReadAnswer { start, .. }) = answer {
            let mut position = start;
            for value in entries {
                self.hold(position, value);
                position = Position::new(position.get().saturating_add(1));
            }
        }
    }

    /// The same with the list itself, which goes at least as far as the answer: the view shares its entries
    /// where it can.
    pub(crate) fn learn_sharing(&mut self, phase: Option<Phase>, answer: Answer, list: &Arc<Vec<Value>>) {
        self.note(phase, answer);
        let Answer::Read(ReadAnswer { start, count, .. }) = answer else { return };
        if count == 0 {
            // Its start may lie behind the end.
            return;
        }
        let read = start.index()..start.index() + count as usize;
        if read.start > self.first.len() || !self.later.is_empty() {
            for (position, value) in (start.get()..).zip(&list[read]) {
                self.hold(Position::new(position), value.clone());
            }
        } else if read.end > self.first.len() {
            self.first = Entries::sharing(list, read.end);
        }
    }

    /// Takes in all of an answer but the entries.
    fn note(&mut self, phase: Option<Phase>, answer: Answer) {
        self.answered += 1;
        self.refused = 0;
        self.phase = phase.or(self.phase);
        match answer {
            Answer::Append(answer) => {
                if !matches!(self.append, Some((_, AppendAnswer::Success(_)))) {
                    self.append = phase.map(|phase| (phase, answer)).or(self.append);
                }
            }
            Answer::Read(ReadAnswer { start, length, sealed, .. }) => {
                self.reads += u64::from(start == self.next_printed_read());
                self.length = length;
                self.sealed = sealed;
            }
        }
    }

    /// The entries that it has read, in the order of their positions.
    pub fn held(&self) -> impl Iterator<Item = (Position, &Value)> + Clone {
        let first = (0..).map(Position::new).zip(self.first.iter());
        first.chain(self.later.iter().map(|(position, value)| (*position, value)))
    }

    /// Entries never change, so the first copy of one is as good as any (R2).
    #[inline]
    fn hold(&mut self, position: Position, value: Value) {
        // Nearly always it is the next one.
        if position.index() == self.first.len() {
            self.first.push(value);
            self.close_gap();
        } else if position.index() > self.first.len()
            && let Err(index) = self.later.binary_search_by_key(&position, |(position, _)| *position)
        {
            self.later.insert(index, (position, value));
        }
    }

    /// Entries that come after the first ones without a gap become some of them.
    #[inline]
    fn close_gap(&mut self) {
        let next = self.first.len();
        let unbroken = |(index, (position, _)): (usize, &(Position, Value))| position.index() == next + index;
        let count = self.later.iter().enumerate().take_while(|entry| unbroken(*entry)).count();
        for (_, value) in self.later.drain(..count) {
            self.first.push(value);
        }
    }

    /// Where Algorithm 1 as printed reads next: its j-th read starts at (j-1)*r.
    fn next_printed_read(&self) -> Position {
        let reads = u32::try_from(self.reads).unwrap_or(u32::MAX);
        Position::new(reads.saturating_mul(self.params.read_size()))
    }

    /// The last access was refused.
    pub fn learn_refusal(&mut self) {
        self.refused += 1;
    }

    /// The first position whose entry it does not hold. A client that restarts may receive the answer to a
    /// read of its earlier life, from a later position than its new life has reached; so it may hold entries
    /// after this position.
    #[must_use]
    pub fn end(&self) -> Position {
        Position::new(u32::try_from(self.first.len()).unwrap_or(u32::MAX))
    }

    /// The entries that a decision counts: those that it holds of the first T, which is W for q = 1 (D1).
    pub fn counted(&self) -> Entries {
        let last = self.params.counted_entries();
        let mut counted = self.first.first(last as usize);
        for (_, value) in self.later.iter().take_while(|(position, _)| position.get() < last) {
            counted.push(value.clone());
        }
        counted
    }
}

/// The next act of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Sends its next access.
    Access {
        /// The operation; not checked, so that a Byzantine process can send a malformed one.
        op: RawOp,
        /// When it is sent.
        when: SendTime,
    },
    /// Reports this decision and leaves.
    Decide(Value),
    /// Sends nothing more, and stays.
    Silent,
    /// Stops without a message.
    Crash,
}

/// The operation of an access as a process sends it, unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// Append these bytes, which may be no value.
    Append(RawValue),
    /// Read from this position on.
    Read(Position),
}

impl RawOp {
    /// The checked operation. The server checks it once, before the machine gets it.
    ///
    /// # Errors
    /// When the bytes to append are no value of this instance (P3).
    #[inline]
    pub fn checked(&self, params: &Params) -> Result<Op, ValueError> {
        Ok(match self {
            Self::Append(raw) => Op::Append(params.checked(raw.clone())?),
            Self::Read(start) => Op::Read { start: *start },
        })
    }
}

impl From<Op> for RawOp {
    fn from(op: Op) -> Self {
        match op {
            Op::Append(value) => Self::Append(RawValue::from(&value)),
            Op::Read { start } => Self::Read(start),
        }
    }
}

/// When an access is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendTime {
    /// As soon as it can be.
    Ready,
    /// Just before the process's patience would be spent.
    LastMoment,
}

impl Act {
    /// Append this value as soon as possible.
    #[must_use]
    pub fn append(value: &Value) -> Self {
        Self::Access { op: RawOp::Append(value.into()), when: SendTime::Ready }
    }

    /// Read from this position on, as soon as possible.
    #[must_use]
    pub fn read(start: Position) -> Self {
        Self::Access { op: RawOp::Read(start), when: SendTime::Ready }
    }
}

/// The acts of a process, given its knowledge.
pub trait Behaviour: Send {
    /// The next act. Called at the start and after each answer or refusal; not called again after
    /// [`Act::Decide`], [`Act::Silent`] or [`Act::Crash`].
    fn act(&mut self, view: &View) -> Act;
}

/// A correct process: Algorithm 1, with append rounds (D1, K2).
#[derive(Clone, Debug)]
pub struct Correct {
    proposal: Value,
}

impl Correct {
    /// A correct process that proposes this value.
    #[must_use]
    pub fn new(proposal: Value) -> Self {
        Self { proposal }
    }
}

impl Behaviour for Correct {
    fn act(&mut self, view: &View) -> Act {
        // Algorithm 1, line 2, in each of the first q phases until one append wins (K2).
        if is_to_append(view) {
            return Act::append(&self.proposal);
        }
        read_and_decide(view)
    }
}

/// Whether the next access of a correct process appends (K2): its first one does, and those that follow until
/// an append wins or its warp has had its q-th phase.
#[must_use]
pub fn is_to_append(view: &View) -> bool {
    match view.append {
        None => view.answered == 0,
        Some((phase, AppendAnswer::Failed)) => appends_again(&view.params, phase),
        Some((_, AppendAnswer::Success(_) | AppendAnswer::LimitReached)) => false,
    }
}

/// The act of a correct process after its append: lines 3 and 4 of Algorithm 1.
#[must_use]
pub fn read_and_decide(view: &View) -> Act {
    // Line 3: ProposedList <- StickyCAS-read(ceil(n/p)), r entries a phase.
    if let Some(start) = next_read(view) {
        return Act::read(start);
    }
    // Line 4: return mode(ProposedList).
    match mode(&view.counted()) {
        Some(value) => Act::Decide(value.clone()),
        // Sealed without any entry: it decides nothing (D1).
        None => Act::Silent,
    }
}

/// The start of the next read of a correct process; `None` when it has read enough to decide (D1).
#[must_use]
pub fn next_read(view: &View) -> Option<Position> {
    match view.params.spec().append_window {
        // No more than T entries can stand (K1): W for q = 1.
        AppendWindow::FirstAccess => {
            let end = view.end();
            let complete =
                end.get() >= view.params.counted_entries() || (view.sealed && end.get() >= view.length);
            (!complete).then_some(end)
        }
        // As printed: c reads, one after the other, whatever they return.
        AppendWindow::Open => (view.reads < u64::from(view.params.reads())).then(|| view.next_printed_read()),
    }
}

/// The most frequent value; of those that are equally frequent, the smallest (D1; paper, footnote 1). `None`
/// for no values.
#[must_use]
pub fn mode<'a, I>(values: I) -> Option<&'a Value>
where
    I: IntoIterator<Item = &'a Value, IntoIter: Clone>,
{
    let values = values.into_iter();
    if values.clone().nth(FEW).is_none() { mode_of_few(values) } else { mode_of_many(values) }
}

/// Up to so many values are counted without sorting.
const FEW: usize = 16;

fn mode_of_few<'a>(mut values: impl Iterator<Item = &'a Value> + Clone) -> Option<&'a Value> {
    let mut best: Option<(usize, &Value)> = None;
    while let Some(value) = values.next() {
        // The first of several that are equal counts them all, and each later one fewer.
        let count = 1 + values.clone().filter(|other| *other == value).count();
        if best.is_none_or(|(most, least)| count > most || (count == most && value < least)) {
            best = Some((count, value));
        }
        let (_, left) = values.size_hint();
        if best.is_some_and(|(most, _)| left.is_some_and(|left| left < most)) {
            break;
        }
    }
    best.map(|(_, value)| value)
}

fn mode_of_many<'a>(values: impl Iterator<Item = &'a Value>) -> Option<&'a Value> {
    let mut sorted: Vec<&Value> = values.collect();
    sorted.sort_unstable();
    let mut best: Option<&[&Value]> = None;
    for run in sorted.chunk_by(|a, b| a == b) {
        // Runs come in increasing order of value, so only a longer one is better.
        if best.is_none_or(|best| run.len() > best.len()) {
            best = Some(run);
        }
    }
    best.map(|run| run[0])
}

/// The report of a process at its end. The report of a correct process is a result; that of a Byzantine one
/// is evidence against the process itself and nothing else (V5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The process.
    pub process: ProcessId,
    /// Its decision, if it came to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    /// The phase of its last answer, in which it ended. `None` if it had no answer in this life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The entries that it decided from, in the order of their positions; the decision of a correct process
    /// is their mode. Empty if an earlier life of it had decided.
    pub from: Entries,
    /// How it ended.
    pub ended: ProcessEnd,
    /// The access whose answer it still waited for, on a session that stood, when the run was given up (V1).
    /// `None` if it waited for none, or its session was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unanswered: Option<AccessNumber>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessEnd {
    /// It decided, and the server has taken its report.
    Decided,
    /// It stopped without a decision. A correct process does so only when the sealed list is empty (D1).
    NothingToDecide,
    /// It could not go on, or was stopped before it decided; the reason in words.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn few_values_and_many_are_counted_alike(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            // Of few different values, so that some are equally frequent.
            let values: Vec<Value> = bytes.iter().map(|byte| Value::new(&[byte % 5]).unwrap()).collect();
            prop_assert_eq!(mode_of_few(values.iter()), mode_of_many(values.iter()));
        }
    }
}
