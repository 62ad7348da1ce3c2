//! The access of a process in one phase, its answers, and its refusals (SPEC F1, F8, A1, R1, section 11).

use serde::{Deserialize, Serialize};

use crate::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Value};

/// The operation of an access: one append or one read (F1).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// StickyCAS-append(value).
    Append(Value),
    /// StickyCAS-read: up to r entries from `start` on. Algorithm 1 reads the whole list; assumption (b) lets
    /// it take several phases, and `start` says which part this one takes.
    Read {
        /// The first position wanted.
        start: Position,
    },
}

/// One access as it reaches the machine. The server has identified its process before (SPEC section 10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The process that sends it.
    pub process: ProcessId,
    /// The session of its stream; `None` for a unary call, which belongs to no session.
    pub session: Option<SessionId>,
    /// The process's own number for it (F8).
    pub number: AccessNumber,
    /// Its operation.
    pub op: Op,
    /// Refuse at once unless the process's phase is open, or would open with this access (F7).
    pub no_wait: bool,
}

/// Answer to an append (A1). All three are answers, none is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendAnswer {
    /// The value stands in the list at this position.
    Success(Position),
    /// Another append of the same phase won.
    Failed,
    /// The list takes no more entries, or the warp's window is over (A2).
    LimitReached,
}

/// Answer to a read (R1), as numbers: the entries `start .. start + count` never change, so they need not be
/// copied to be kept (F8b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReadAnswer {
    /// The first position of the request.
    pub start: Position,
    /// How many entries from there on are returned: 0 to r.
    pub count: u32,
    /// Length of the list when the phase began.
    pub length: u32,
    /// Whether the list was sealed then: no entry will be added any more.
    pub sealed: bool,
}

/// Answer to an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// To an append.
    Append(AppendAnswer),
    /// To a read.
    Read(ReadAnswer),
}

/// Why the machine refuses an input. A refused access did not happen and will not (SPEC section 11).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The number is neither the next one nor one whose access is kept (F8d).
    #[error("access number {given} is out of order: the next one is {expected}")]
    OutOfOrder {
        /// As given.
        given: AccessNumber,
        /// The only new number that would be accepted.
        expected: AccessNumber,
    },
    /// The number was used before, with other content (F8c).
    #[error("access number {0} was used before with other content")]
    OtherContent(AccessNumber),
    /// A newer session of the process has replaced the session of this input (F8f).
    #[error("session {given} is not the one that counts: a newer one has replaced it")]
    OlderSession {
        /// The session of the input.
        given: SessionId,
        /// The session that counts; `None` if the process has opened none.
        current: Option<SessionId>,
    },
    /// The process has opened as many sessions as it may.
    #[error("the process has opened {0} sessions at this instance, which is the limit")]
    TooManySessions(u32),
    /// `no_wait`, and it is not the process's phase (F7).
    #[error("not your phase: {}, yours is phase {next}", position_in_schedule(*.current))]
    NotYourPhase {
        /// The phase that is open or would open next; `None` while processes gather.
        current: Option<Phase>,
        /// The next phase of the process's warp.
        next: Phase,
    },
    /// The instance is closed (F10).
    #[error("the instance is closed")]
    Closed,
    /// The process has decided and so has left (F10).
    #[error("the process has decided and left")]
    Left,
    /// The process has decided on another value (F10).
    #[error("the process has decided on another value before")]
    OtherDecision,
    /// As many accesses of the process wait as are allowed (F7).
    #[error("{0} accesses of the process are waiting, which is the limit: wait for an answer")]
    TooManyWaiting(u32),
}

fn position_in_schedule(current: Option<Phase>) -> String {
    match current {
        None => "processes are still gathering".to_owned(),
        Some(phase) => format!("phase {phase} comes next"),
    }
}
