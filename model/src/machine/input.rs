//! The inputs of a machine, and what their senders are answered at once.

use std::time::Duration;

use crate::access::{Access, Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::Offence;
use crate::types::{AccessNumber, Phase, ProcessId, SessionId, Value};

use super::offences::MisbehaviourCounts;

/// An input of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A process opens a session (F8e).
    Hello {
        /// The process.
        process: ProcessId,
        /// Names one life of the client: another after a restart; 0 if the client does not say.
        incarnation: u64,
    },
    /// A process sends an access (F8).
    Access(Access),
    /// A process reports its decision and leaves (F10).
    Decide {
        /// The process.
        process: ProcessId,
        /// Its decision.
        value: Value,
    },
    /// The server refused a message before it reached the machine, and that counts as an offence (B2). The
    /// machine adds the phase.
    Offence(Offence),
    /// The creator closes the instance (F10).
    Close,
    /// [`Machine::deadline`](super::Machine::deadline) is reached.
    Tick,
    /// The server has restarted (F3).
    Restart {
        /// How long patience waits for processes to reconnect.
        rejoin: Duration,
    },
    /// Counters as they were left by inputs that changed nothing else and were not logged (B2).
    Counts(MisbehaviourCounts),
}

/// How an access is admitted that is not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The access is accepted and waits. Its answer comes as an event, perhaps of this very step.
    Accepted,
    /// The same access waits already (F8b); its answer will come as an event.
    AlreadyWaiting,
    /// The same access was answered before: the first answer once more (F8b).
    AnsweredBefore {
        /// The phase in which it was executed.
        phase: Phase,
        /// The first answer.
        answer: Answer,
    },
    /// A read of a finished or closed instance, answered at once and outside phases (F10).
    ReadOutsidePhases(ReadAnswer),
}

/// The answer to a hello, with which a restarted client can go on (F8e).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The session that is now open.
    pub session: SessionId,
    /// The number of the process's next access.
    pub next: AccessNumber,
    /// The accesses that wait, in order; the answers will go to this session.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The answer of the process's append and its phase, once there is one: of the append that won, or else
    /// of its last (K2).
    pub append: Option<(Phase, AppendAnswer)>,
    /// The decision of the process, if it has decided.
    pub decided: Option<Value>,
}

impl Welcome {
    /// The welcome of a process that has done nothing yet.
    #[must_use]
    pub const fn first() -> Self {
        Self {
            session: SessionId::FIRST,
            next: AccessNumber::FIRST,
            waiting: Vec::new(),
            append: None,
            decided: None,
        }
    }
}
