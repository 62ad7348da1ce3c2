//! The state of one process.
//!
//! # Laid out by how often it is used
//! An instance of 65,536 processes fits into a processor's cache only if the data of every access is small.
//! So a [`Member`] is half a cache line; members lie in order of process ids, those of a warp side by side.
//! Data that is used once or twice is a [`ColdMember`] and lies elsewhere. Appends that wait and accesses
//! that were sent ahead lie in the [`AccessQueues`], answers that are kept in the
//! [`AnswerCache`](super::answer_cache::AnswerCache).

use std::time::Duration;

use crate::access::{AppendAnswer, Op};
use crate::params::Patience;
use crate::types::{AccessNumber, Phase, Position, SessionId, Value};

use super::queues::{AccessQueues, OptionalSession, WaitingAccess};

/// Patience without end, in nanoseconds.
pub(super) const ENDLESS: u64 = u64::MAX;

/// A patience in nanoseconds.
pub(super) fn patience_nanos(patience: Patience) -> u64 {
    match patience {
        Patience::Finite(patience) => nanos(patience).min(ENDLESS - 1),
        Patience::Endless => ENDLESS,
    }
}

/// A duration in nanoseconds.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One process at one instance: the part of its state that every access uses.
#[derive(Clone, Debug)]
#[repr(align(32))]
pub(super) struct Member {
    /// The number of its next new access.
    pub(super) next: AccessNumber,
    /// The rest of its patience, in nanoseconds.
    pub(super) patience: u64,
    /// Of the first access that waits: where a read starts, or where an append lies in the queues.
    first: u32,
    /// Where the last of the other accesses that wait lies in the queues.
    last: u32,
    /// The session that counts.
    pub(super) session: OptionalSession,
    /// The session on which the first access that waits came.
    first_session: OptionalSession,
    /// How many accesses wait. At most the pipeline bound.
    waiting: u16,
    marks: u8,
}

const _: () = assert!(size_of::<Member>() == 32, "half a cache line");

/// It has joined (F5).
const JOINED: u8 = 1;
/// Its patience is spent, or it joined too late to have any.
const SPENT: u8 = 1 << 1;
/// It has reported its decision (F10).
const LEFT: u8 = 1 << 2;
/// An access on its session was refused, and none on a session was accepted since: later accesses on the
/// stream may be out of order through no fault of the process (F8d).
const REFUSED: u8 = 1 << 3;
/// The first access that waits is an append.
const APPENDS: u8 = 1 << 4;
/// It has not been heard of since the server restarted (F3).
const AWAY: u8 = 1 << 5;
/// It has won an append under `first_access` and takes no part in who wins another (K1).
const EXCLUDED: u8 = 1 << 6;

/// The data that is used once or twice in the life of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct ColdMember {
    /// The phase of the append that tells what became of its proposal (K2): of the one that won, or else of
    /// the last among its first q accesses, or else of its first.
    pub(super) append: Option<Phase>,
    /// The place of its decision among those of all processes that left.
    pub(super) decision: u32,
    /// How many of its accesses were withdrawn: the last ones (F10).
    pub(super) withdrawn: u16,
}

impl Member {
    pub(super) fn new(patience: u64) -> Self {
        Self {
            next: AccessNumber::FIRST,
            patience,
            first: 0,
            last: 0,
            session: OptionalSession::default(),
            first_session: OptionalSession::default(),
            waiting: 0,
            marks: 0,
        }
    }

    pub(super) fn has_joined(&self) -> bool {
        self.marks & JOINED != 0
    }

    pub(super) fn join(&mut self) {
        self.marks |= JOINED;
    }

    /// Whether its patience is spent.
    pub(super) fn is_spent(&self) -> bool {
        self.marks & SPENT != 0
    }

    pub(super) fn give_up(&mut self) {
        self.patience = 0;
        self.marks |= SPENT;
    }

    /// Whether it has reported its decision.
    pub(super) fn has_left(&self) -> bool {
        self.marks & LEFT != 0
    }

    pub(super) fn leave(&mut self) {
        self.marks |= LEFT;
    }

    /// Whether it has won an append under `first_access` and takes no part in who wins another (K1).
    pub(super) fn is_excluded(&self) -> bool {
        self.marks & EXCLUDED != 0
    }

    pub(super) fn exclude(&mut self) {
        self.marks |= EXCLUDED;
    }

    /// Whether its next access, if it is an append, must have the value of its first one (B2).
    pub(super) fn appends_are_compared(&self, append_rounds: u64) -> bool {
        self.next.get() <= append_rounds && !self.has_left()
    }

    /// Whether an access was refused on its stream, and none accepted since.
    pub(super) fn was_refused(&self) -> bool {
        self.marks & REFUSED != 0
    }

    /// True if it was not marked before.
    pub(super) fn mark_refused(&mut self) -> bool {
        !self.was_refused() && {
            self.marks |= REFUSED;
            true
        }
    }

    pub(super) fn clear_refused(&mut self) {
        self.marks &= !REFUSED;
    }

    /// Whether it has not been heard of since the server restarted.
    pub(super) fn is_away(&self) -> bool {
        self.marks & AWAY != 0
    }

    pub(super) fn go_away(&mut self) {
        self.marks |= AWAY;
    }

    pub(super) fn come_back(&mut self) {
        self.marks &= !AWAY;
    }

    /// Whether an access of it may be accepted without further ado: it has not left and is not away.
    pub(super) fn is_here(&self) -> bool {
        self.marks & (LEFT | AWAY) == 0
    }

    /// Whether phases wait for it (F3).
    pub(super) fn is_awaited(&self) -> bool {
        self.marks & (SPENT | LEFT) == 0
    }

    /// Whether phases wait for it and it has nothing ready.
    pub(super) fn is_missing(&self) -> bool {
        self.is_awaited() && self.waiting == 0
    }

    /// How many accesses wait.
    pub(super) fn waiting(&self) -> u16 {
        self.waiting
    }

    /// Whether the first access that waits is an append.
    pub(super) fn appends(&self) -> bool {
        self.marks & APPENDS != 0
    }

    /// The number of the first access that waits: those that wait are the last that were accepted.
    fn first_number(&self) -> u64 {
        self.next.get() - u64::from(self.waiting)
    }

    /// Its access with the next number waits, as the `accepted`-th of the instance.
    pub(super) fn push(
        &mut self,
        queues: &mut AccessQueues,
        session: Option<SessionId>,
        op: &Op,
        accepted: u64,
    ) {
        let session = OptionalSession::new(session);
        self.waiting += 1;
        self.next = self.next.next();
        match op {
            Op::Read { start } if self.waiting == 1 => self.set_first_read(session, *start),
            Op::Append(_) if self.waiting == 1 => {
                let append = queues.add(WaitingAccess { op: op.clone(), session, accepted });
                self.set_first_append(session, append);
            }
            _ => {
                let behind = (self.waiting > 2).then_some(self.last);
                self.last = queues.add_behind(behind, WaitingAccess { op: op.clone(), session, accepted });
            }
        }
    }

    fn set_first_read(&mut self, session: OptionalSession, start: Position) {
        self.first = start.get();
        self.first_session = session;
        self.marks &= !APPENDS;
    }

    fn set_first_append(&mut self, session: OptionalSession, place: u32) {
        self.first = place;
        self.first_session = session;
        self.marks |= APPENDS;
    }

    /// Takes the first access off; `None` if nothing waits. If it is an append, it is still in the queues.
    #[inline]
    pub(super) fn pop(&mut self, queues: &mut AccessQueues) -> Option<DueAccess> {
        if self.waiting == 0 {
            return None;
        }
        // An access that was accepted has a number, and so has one that waits.
        let number = AccessNumber::new(self.first_number())?;
        let due =
            DueAccess { number, session: self.first_session, content: self.first, append: self.appends() };
        self.waiting -= 1;
        if self.waiting > 0 {
            self.advance(queues);
        }
        Some(due)
    }

    /// The next access comes first.
    fn advance(&mut self, queues: &mut AccessQueues) {
        let next = queues.unlink(self.last);
        let WaitingAccess { ref op, session, .. } = *queues.get(next);
        match *op {
            Op::Append(_) => self.set_first_append(session, next),
            Op::Read { start } => {
                queues.take(next);
                self.set_first_read(session, start);
            }
        }
    }

    /// The accesses that wait, in order. Of a read its place in the order of acceptance may be missing.
    pub(super) fn waiting_accesses<'a>(
        &self,
        queues: &'a AccessQueues,
    ) -> impl Iterator<Item = WaitingAccess> + use<'a> {
        let first = (self.waiting > 0).then(|| match self.appends() {
            true => queues.get(self.first).clone(),
            false => WaitingAccess {
                op: Op::Read { start: Position::new(self.first) },
                session: self.first_session,
                accepted: 0,
            },
        });
        let others = queues.ring((self.waiting > 1).then_some(self.last)).cloned();
        first.into_iter().chain(others)
    }

    /// The accesses that wait, in order, with their numbers.
    pub(super) fn queue<'a>(
        &self,
        queues: &'a AccessQueues,
    ) -> impl Iterator<Item = (AccessNumber, OptionalSession, Op)> + use<'a> {
        let numbers = (self.first_number()..).filter_map(AccessNumber::new);
        let waiting = self.waiting_accesses(queues);
        numbers.zip(waiting).map(|(number, WaitingAccess { op, session, .. })| (number, session, op))
    }
}

/// The first access of a member, removed from its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueAccess {
    pub(super) number: AccessNumber,
    pub(super) session: OptionalSession,
    /// Where a read starts, or where an append lies in the queues.
    pub(super) content: u32,
    pub(super) append: bool,
}

/// The state of one process at an instance, as it may know it (F8e).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The session that counts, if it has opened one.
    pub session: Option<SessionId>,
    /// The number of its next access.
    pub next: AccessNumber,
    /// The accesses that wait, in order.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The answer of its append and its phase, once there is one: of the append that won, or else of its last
    /// (K2).
    pub append: Option<(Phase, AppendAnswer)>,
    /// Its decision, if it has decided.
    pub decided: Option<Value>,
}
