//! The answers that are kept for those who ask again (SPEC F8b): of each process the last ones, as many as its pipeline
//! is long.
//!
//! # As numbers, and few
//! An entry never changes and knows its phase, so what was answered follows from the phase of an access and from what
//! was asked: a read of phase t saw the entries won before t. Kept are only these two, in 16 bytes.
//!
//! # By access number
//! Answers with the same number lie side by side for all processes, since they come about together: what a phase writes
//! is one piece of memory, and there is none for numbers that nobody has come to.

use crate::access::{Answer, AppendAnswer, Op};
use crate::types::{AccessNumber, Phase, Position, ProcessId};

use super::Machine;
use super::member::{Member, Session};

/// An access that was executed: enough to recognise it and to answer it again, and no copy of any value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) phase: Phase,
    /// Where a read started; of an append the fingerprint of its value. Whoever forges a collision fools only itself: it
    /// is told the first answer instead of being refused.
    pub(super) content: u32,
    pub(super) session: Session,
    pub(super) append: bool,
}

impl Kept {
    const NOTHING: Self = Self { phase: Phase::FIRST, content: 0, session: Session::NONE, append: false };

    fn is_answer_to(&self, op: &Op) -> bool {
        match op {
            Op::Append(value) => self.append && self.content == value.fingerprint(),
            Op::Read { start } => !self.append && self.content == start.get(),
        }
    }
}

/// Numbers whose answers share one piece of memory. A correct process has at least one append and one read.
const NUMBERS: usize = 2;

/// The kept answers of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    /// By number, in a ring of as many as are kept, and by process.
    pieces: Vec<Box<[Kept]>>,
    processes: usize,
    limit: u32,
}

impl Answers {
    /// For an instance that keeps `limit` answers of each process, in the memory of this one.
    pub(super) fn reset(&mut self, processes: u32, limit: u32) {
        if self.processes != processes as usize {
            self.pieces.clear();
        }
        // What is left in it is never looked at: no number is asked for that was not executed.
        (self.processes, self.limit) = (processes as usize, limit);
    }

    /// Keeps the answer to an executed access, letting go of the oldest beyond the limit.
    #[inline]
    pub(super) fn keep(&mut self, process: ProcessId, number: AccessNumber, kept: Kept) {
        let (piece, place) = self.place(process, number);
        if self.pieces.len() <= piece {
            self.grow(piece);
        }
        self.pieces[piece][place] = kept;
    }

    #[cold]
    fn grow(&mut self, piece: usize) {
        if self.pieces.is_empty() {
            self.pieces.reserve_exact(1);
        }
        let nothing = || vec![Kept::NOTHING; NUMBERS * self.processes].into_boxed_slice();
        self.pieces.resize_with(piece + 1, nothing);
    }

    /// The answer to this access of a process whose last executed one is `last`; `None` if it is too long ago.
    pub(super) fn get(&self, process: ProcessId, number: AccessNumber, last: u64) -> Option<Kept> {
        let behind = last.checked_sub(number.get())?;
        let (piece, place) = self.place(process, number);
        (behind < self.limit.into()).then(|| self.pieces[piece][place])
    }

    fn place(&self, process: ProcessId, number: AccessNumber) -> (usize, usize) {
        let (index, limit) = (number.get() - 1, u64::from(self.limit));
        // A mask where it can be, as by default: a division takes as long as the rest.
        let slot = if limit.is_power_of_two() { index & (limit - 1) } else { index % limit } as usize;
        (slot / NUMBERS, slot % NUMBERS * self.processes + process.index())
    }
}

/// What is known of an access number that was used before.
pub(super) enum Known {
    /// The same access waits.
    Waiting,
    /// The same access was executed.
    Answered(Phase, Answer),
    /// Another access had this number, on this session (`None`: a unary call).
    Other(Session),
    /// It is too long ago.
    Forgotten,
}

impl Machine {
    /// What is known of a number of this process below its next (F8b to F8d).
    #[cold]
    pub(super) fn known(&self, process: ProcessId, number: AccessNumber, op: &Op) -> Known {
        let member = &self.members[process.index()];
        if let Some((_, session, first)) = member.queue(&self.queues).find(|(waiting, ..)| *waiting == number)
        {
            return if first == *op { Known::Waiting } else { Known::Other(session) };
        }
        match self.answers.get(process, number, self.executed(process, member)) {
            Some(kept) if kept.is_answer_to(op) => Known::Answered(kept.phase, self.answer_of(process, kept)),
            Some(kept) => Known::Other(kept.session),
            None => Known::Forgotten,
        }
    }

    /// The number of the last access of a process that was executed, 0 if none was: they are executed in order.
    pub(super) fn executed(&self, process: ProcessId, member: &Member) -> u64 {
        let not = u64::from(member.waiting()) + u64::from(self.rare[process.index()].withdrawn);
        member.next.get() - 1 - not
    }

    /// What was answered.
    pub(super) fn answer_of(&self, process: ProcessId, kept: Kept) -> Answer {
        if kept.append {
            return Answer::Append(self.append_answer(process, kept.phase));
        }
        let sealed = self.sealed.is_some_and(|since| since <= kept.phase);
        Answer::Read(self.read(Position::new(kept.content), self.length_at(kept.phase), sealed))
    }

    /// What an append of this process in this phase was answered.
    pub(super) fn append_answer(&self, process: ProcessId, phase: Phase) -> AppendAnswer {
        let length = self.length_at(phase);
        if !self.window_is_open(phase) || length == self.list.limit() {
            return AppendAnswer::LimitReached;
        }
        let position = Position::new(length);
        match self.list.get(position) {
            Some(entry) if entry.phase == phase && entry.process == process => {
                AppendAnswer::Success(position)
            }
            _ => AppendAnswer::Failed,
        }
    }

    /// The length of the list when this phase began: each entry knows the phase that added it, and they are in order.
    fn length_at(&self, phase: Phase) -> u32 {
        let (mut low, mut high) = (0, self.list.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.list.get(Position::new(middle)) {
                Some(entry) if entry.phase < phase => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}
