//! What happened at one instance, in order: the output of the machine, what Watch streams, what a run folder
//! keeps and what the judge reads are this one type.
//!
//! Inputs that changed something appear as they were accepted ([`Event::Joined`], [`Event::Session`],
//! [`Event::Accepted`], [`Event::Decided`], [`Event::Closed`]), so a history is enough to replay the run:
//! [`crate::sim::replay`] feeds them to a fresh machine and compares everything else.

use serde::{Deserialize, Serialize};

use crate::access::{Answer, Op};
use crate::params::ValueError;
use crate::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value, WarpId};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A process joined: by a hello, by its first accepted access, or by deciding (F5, F10).
    Joined {
        /// Who.
        process: ProcessId,
    },
    /// A process opened a session, replacing any older one (F8e, F8f).
    Session {
        /// Whose.
        process: ProcessId,
        /// The new session.
        session: SessionId,
        /// Names one life of the client: the same over a mere reconnection, another after a restart. 0 if
        /// not told.
        incarnation: u64,
    },
    /// An access was accepted and waits for its phase (F8a). The order of these events is the order of
    /// acceptance.
    Accepted {
        /// Whose.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
        /// The session it came on, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// What it does.
        op: Op,
    },
    /// An input was refused. Only the first [`crate::machine::REFUSALS_RECORDED`] of each process are
    /// recorded: refusals are free to provoke and must not crowd out the rest.
    Refused {
        /// Whose.
        process: ProcessId,
        /// The access number, if it was an access.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<AccessNumber>,
        /// Why, in words.
        why: String,
    },
    /// Gathering ended (F5): phase 1 may open.
    GatheringEnded {
        /// How many of the n have joined.
        joined: u32,
    },
    /// A process is not awaited any more (F3): its patience is spent, or it had not joined when gathering
    /// ended.
    PatienceSpent {
        /// Whose.
        process: ProcessId,
    },
    /// A phase was executed in one step (F2). The answers of its accesses follow.
    Stepped {
        /// The phase.
        phase: Phase,
        /// Its warp.
        warp: WarpId,
        /// Length of the list when it began, which is the position that its appends name (A1).
        length: u32,
    },
    /// An entry was added to the list (A1).
    Added {
        /// Where.
        position: Position,
        /// Whose append won.
        process: ProcessId,
        /// In which phase.
        phase: Phase,
        /// The value.
        value: Value,
    },
    /// An access was executed in this phase.
    Answered {
        /// Whose.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
        /// The phase it was executed in.
        phase: Phase,
        /// The answer.
        answer: Answer,
    },
    /// The list is sealed: it takes no more entries from `phase` on (A2).
    Sealed {
        /// The first phase that finds it sealed.
        phase: Phase,
        /// Its final length.
        length: u32,
    },
    /// A process reported its decision and left (F10, D3).
    Decided {
        /// Who.
        process: ProcessId,
        /// Its report.
        value: Value,
    },
    /// A waiting access was withdrawn because its process left or the instance was closed (F10).
    Withdrawn {
        /// Whose.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
    },
    /// Somebody did what no correct process does (B2). Only the first
    /// [`crate::machine::OFFENCES_RECORDED`] of each process and kind are recorded one by one.
    Offence(Offence),
    /// Every process has left (F10).
    Finished,
    /// The creator closed the instance (F10).
    Closed,
}

impl Event {
    /// The phase that it shows to have come; all before it have passed.
    #[must_use]
    pub const fn reached(&self) -> Option<Phase> {
        match self {
            Self::Stepped { phase, .. } | Self::Sealed { phase, .. } => Some(*phase),
            _ => None,
        }
    }

    /// The process that it is about; `None` if it is about the whole instance.
    #[must_use]
    pub fn process(&self) -> Option<ProcessId> {
        match self {
            Self::Joined { process }
            | Self::Session { process, .. }
            | Self::Accepted { process, .. }
            | Self::Refused { process, .. }
            | Self::PatienceSpent { process }
            | Self::Added { process, .. }
            | Self::Answered { process, .. }
            | Self::Decided { process, .. }
            | Self::Withdrawn { process, .. }
            | Self::Offence(Offence { process, .. }) => Some(*process),
            Self::GatheringEnded { .. }
            | Self::Stepped { .. }
            | Self::Sealed { .. }
            | Self::Finished
            | Self::Closed => None,
        }
    }
}

/// An event and when it happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// When, in nanoseconds since the instance was created.
    pub at: Time,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What a process did that no correct process does, with what proves it (B2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offence {
    /// Who.
    pub process: ProcessId,
    /// Which of the closed list.
    pub kind: OffenceKind,
    /// The access it was done with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<AccessNumber>,
    /// The phase that was open or next when the machine filed it; `None` while processes gathered. Whoever
    /// reports an offence to the machine need not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What was tried and what it contradicts, in words.
    pub detail: String,
}

/// The closed list of offences: each is provable from what the server saw (B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffenceKind {
    /// An append whose access number is above 1: late or repeated.
    LateAppend,
    /// Two contents for one access number within one session.
    OtherContent,
    /// A call in the name of a process that the caller is not.
    ForeignIdentity,
    /// A message that breaks the protocol: empty value, access number skipped.
    Malformed,
    /// A value or message above its size limit.
    Oversized,
    /// A rate or quota exceeded.
    QuotaExceeded,
    /// A second decision that differs from the first.
    SecondDecision,
    /// A reported decision that is not the mode of the sealed list (D3).
    FalseDecision,
}

impl OffenceKind {
    /// Every kind, in the order of the list.
    pub const ALL: [Self; 8] = [
        Self::LateAppend,
        Self::OtherContent,
        Self::ForeignIdentity,
        Self::Malformed,
        Self::Oversized,
        Self::QuotaExceeded,
        Self::SecondDecision,
        Self::FalseDecision,
    ];
}

impl From<ValueError> for OffenceKind {
    /// The offence of a member that sends bytes that are no value of its instance (P3, B2).
    fn from(error: ValueError) -> Self {
        match error {
            ValueError::Empty => Self::Malformed,
            ValueError::TooLarge { .. } => Self::Oversized,
        }
    }
}
