//! The answers that are kept for accesses that are sent again (SPEC F8b): of each process the last ones, as
//! many as its pipeline is long.
//!
//! # 16 bytes for each answer
//! An entry never changes and knows its phase, so an answer follows from the phase and the content of its
//! access: a read of phase t saw the entries won before t. Only phase and content are kept.
//!
//! # By access number
//! Answers with the same number lie side by side for all processes, since processes come to a number at about
//! the same time: a phase writes to one piece of memory, and numbers that no process has come to take none.

use crate::access::Op;
use crate::types::{AccessNumber, Phase, ProcessId};

use super::queues::OptionalSession;

/// An access that was executed: enough to recognise it and to answer it again, and no copy of any value.
#[derive(Clone, Copy, Debug)]
pub(super) struct CachedAnswer {
    pub(super) phase: Phase,
    /// Where a read started; of an append the fingerprint of its value. A process that forges a collision
    /// deceives only itself: it gets the first answer instead of a refusal.
    pub(super) content: u32,
    pub(super) session: OptionalSession,
    pub(super) append: bool,
}

impl CachedAnswer {
    const EMPTY: Self =
        Self { phase: Phase::FIRST, content: 0, session: OptionalSession::NONE, append: false };

    /// Whether this is the answer to such an access.
    pub(super) fn answers(&self, op: &Op) -> bool {
        match op {
            Op::Append(value) => self.append && self.content == value.fingerprint(),
            Op::Read { start } => !self.append && self.content == start.get(),
        }
    }
}

/// Numbers whose answers share one allocation. A correct process has at least one append and one read.
const NUMBERS: usize = 2;

/// The kept answers of one instance.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerCache {
    /// By number, in a ring of as many as are kept, and by process.
    chunks: Vec<Box<[CachedAnswer]>>,
    processes: usize,
    limit: u32,
}

impl AnswerCache {
    /// For an instance that keeps `limit` answers of each process, in the memory of this one.
    pub(super) fn reset(&mut self, processes: u32, limit: u32) {
        if self.processes != processes as usize {
            self.chunks.clear();
        }
        // Older content is never read: an answer is looked up only if its access was executed.
        (self.processes, self.limit) = (processes as usize, limit);
    }

    /// Keeps the answer to an executed access in place of the oldest one, if there are as many as are kept.
    #[inline]
    pub(super) fn insert(&mut self, process: ProcessId, number: AccessNumber, answer: CachedAnswer) {
        let (chunk, place) = self.place(process, number);
        if self.chunks.len() <= chunk {
            self.grow(chunk);
        }
        self.chunks[chunk][place] = answer;
    }

    #[cold]
    fn grow(&mut self, chunk: usize) {
        if self.chunks.is_empty() {
            self.chunks.reserve_exact(1);
        }
        let empty = || vec![CachedAnswer::EMPTY; NUMBERS * self.processes].into_boxed_slice();
        self.chunks.resize_with(chunk + 1, empty);
    }

    /// The answer to this access of a process whose last executed access is `last`; `None` if it is not kept
    /// any more.
    pub(super) fn get(&self, process: ProcessId, number: AccessNumber, last: u64) -> Option<CachedAnswer> {
        let behind = last.checked_sub(number.get())?;
        let (chunk, place) = self.place(process, number);
        (behind < self.limit.into()).then(|| self.chunks[chunk][place])
    }

    /// The numbers of the answers that are kept of a process whose last executed access is `last`.
    pub(super) fn numbers(&self, last: u64) -> impl Iterator<Item = AccessNumber> + use<> {
        let first = last.saturating_sub(self.limit.into()) + 1;
        (first..=last).filter_map(AccessNumber::new)
    }

    fn place(&self, process: ProcessId, number: AccessNumber) -> (usize, usize) {
        let (index, limit) = (number.get() - 1, u64::from(self.limit));
        // A mask where it can be, as by default: a division takes as long as the rest.
        let slot = if limit.is_power_of_two() { index & (limit - 1) } else { index % limit } as usize;
        (slot / NUMBERS, slot % NUMBERS * self.processes + process.index())
    }
}
