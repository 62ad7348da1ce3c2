//! What the machine knows of one process.

use std::collections::VecDeque;
use std::time::Duration;

use crate::access::{Answer, AppendAnswer, Op};
use crate::params::Patience;
use crate::types::{AccessNumber, Phase, SessionId, Value};

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

/// One process at one instance.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The number of its next new access.
    pub(super) next: AccessNumber,
    /// Accepted and not yet executed, in order. At most the pipeline bound.
    pub(super) waiting: VecDeque<Waiting>,
    /// The last answers, in order, up to that of `answered`. At most the pipeline bound (F8b).
    pub(super) kept: VecDeque<Kept>,
    /// The number of the last access that was executed, 0 if none: they are executed in order.
    pub(super) answered: u64,
    /// The answer of its first append.
    pub(super) append: Option<(Phase, AppendAnswer)>,
    /// What is left of its patience, in nanoseconds.
    pub(super) patience: u64,
    /// The session that counts.
    pub(super) session: Option<SessionId>,
    /// Its decision; with it, it has left. Boxed, so that what every access touches is close together.
    pub(super) decided: Option<Box<Value>>,
    pub(super) joined: bool,
    /// Its patience is spent, or it joined too late to have any.
    pub(super) spent: bool,
    /// An access on this session was refused since one on it was accepted: what follows it on the stream may
    /// be out of order through no fault (F8d).
    pub(super) refused_on_stream: bool,
}

/// An access that waits for its phase.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) number: AccessNumber,
    pub(super) session: Option<SessionId>,
    pub(super) op: Op,
    /// Its place in the order of acceptance over the whole instance.
    pub(super) accepted: u64,
}

/// An access that was executed: enough to recognise it and to answer it again, and no copy of any value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    pub(super) phase: Phase,
    pub(super) answer: Answer,
    pub(super) session: Option<SessionId>,
    /// Fingerprint of an append's value. Whoever forges a collision fools only itself: it is told the
    /// first answer instead of being refused.
    pub(super) fingerprint: u32,
}

/// What is known of an access number that was used before.
pub(super) enum Known {
    /// The same access waits.
    Waiting,
    /// The same access was executed.
    Answered(Phase, Answer),
    /// Another access had this number, on this session (`None`: a unary call).
    Other(Option<SessionId>),
    /// It is too long ago.
    Forgotten,
}

impl Member {
    pub(super) fn new(patience: u64) -> Self {
        Self {
            next: AccessNumber::FIRST,
            waiting: VecDeque::new(),
            kept: VecDeque::new(),
            answered: 0,
            append: None,
            patience,
            session: None,
            decided: None,
            joined: false,
            spent: false,
            refused_on_stream: false,
        }
    }

    /// Makes it a new one in the memory of this one.
    pub(super) fn reset(&mut self, patience: u64) {
        let (mut waiting, mut kept) = (std::mem::take(&mut self.waiting), std::mem::take(&mut self.kept));
        waiting.clear();
        kept.clear();
        *self = Self { waiting, kept, ..Self::new(patience) };
    }

    /// Whether phases wait for it (F3).
    pub(super) fn is_awaited(&self) -> bool {
        !self.spent && self.decided.is_none()
    }

    /// Whether phases wait for it and it has nothing ready.
    pub(super) fn is_missing(&self) -> bool {
        self.is_awaited() && self.waiting.is_empty()
    }

    /// What is known of a number below `next` (F8b to F8d).
    pub(super) fn known(&self, number: AccessNumber, op: &Op) -> Known {
        if let Some(waiting) = self.waiting.iter().find(|waiting| waiting.number == number) {
            return if waiting.op == *op { Known::Waiting } else { Known::Other(waiting.session) };
        }
        match self.kept(number) {
            Some(kept) if kept.is_answer_to(op) => Known::Answered(kept.phase, kept.answer),
            Some(kept) => Known::Other(kept.session),
            None => Known::Forgotten,
        }
    }

    fn kept(&self, number: AccessNumber) -> Option<&Kept> {
        let behind = usize::try_from(self.answered.checked_sub(number.get())?).ok()?;
        self.kept.iter().nth_back(behind)
    }

    /// Keeps the answer to an executed access, letting go of the oldest beyond `limit`.
    pub(super) fn keep(
        &mut self,
        waiting: &Waiting,
        phase: Phase,
        answer: Answer,
        fingerprint: u32,
        limit: u32,
    ) {
        if self.kept.len() >= limit as usize {
            self.kept.pop_front();
        }
        self.kept.push_back(Kept { phase, answer, session: waiting.session, fingerprint });
        self.answered = waiting.number.get();
        if let (Answer::Append(answer), None) = (answer, self.append) {
            self.append = Some((phase, answer));
        }
    }

    /// What it needs to go on after a restart, and what `Get` tells it (F8e).
    pub(super) fn status(&self) -> MemberStatus {
        MemberStatus {
            session: self.session,
            next: self.next,
            waiting: self.waiting.iter().map(|waiting| (waiting.number, waiting.op.clone())).collect(),
            append: self.append,
            decided: self.decided.as_deref().cloned(),
        }
    }
}

impl Kept {
    fn is_answer_to(&self, op: &Op) -> bool {
        match (self.answer, op) {
            (Answer::Append(_), Op::Append(value)) => self.fingerprint == fingerprint(value),
            (Answer::Read(answer), Op::Read { start }) => answer.start == *start,
            (Answer::Append(_), Op::Read { .. }) | (Answer::Read(_), Op::Append(_)) => false,
        }
    }
}

/// What one process may know of itself at an instance (F8e).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// The session that counts, if it has opened one.
    pub session: Option<SessionId>,
    /// The number of its next access.
    pub next: AccessNumber,
    /// What waits, in order.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The answer of its first append and its phase, once there is one.
    pub append: Option<(Phase, AppendAnswer)>,
    /// What it decided, if it has.
    pub decided: Option<Value>,
}

/// A fingerprint of a value: FNV-1a over words of eight bytes, and of that the lower half.
pub(super) fn fingerprint(value: &Value) -> u32 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = value.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
        hash ^= hash >> 32;
    }
    hash as u32
}
