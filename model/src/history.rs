//! The events of one instance, in order. The machine returns them, Watch streams them, a run folder keeps
//! them, and the judge reads them: all in this one type.
//!
//! Accepted inputs appear as events ([`Event::Joined`], [`Event::Session`], [`Event::Accepted`],
//! [`Event::Decided`], [`Event::Closed`]), so a whole history is enough to replay the run:
//! [`crate::sim::replay`] feeds them to a new machine and compares all other events.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::access::{Answer, Op};
use crate::params::ValueError;
use crate::types::{AccessNumber, Phase, Position, ProcessId, SessionId, Time, Value, WarpId};

/// An event of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A process joined: by a hello, by its first accepted access, or by deciding (F5, F10).
    Joined {
        /// The process.
        process: ProcessId,
    },
    /// A process opened a session, replacing any older one (F8e, F8f).
    Session {
        /// The process.
        process: ProcessId,
        /// The new session.
        session: SessionId,
        /// Names one life of the client: the same after a reconnection, another after a restart. 0 if the
        /// client does not say. All its 64 bits count, so in JSON it is a text.
        #[serde(with = "crate::seed_text")]
        incarnation: u64,
    },
    /// An access was accepted and waits for its phase (F8a). The order of these events is the order of
    /// acceptance.
    Accepted {
        /// The process.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
        /// The session it came on, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<SessionId>,
        /// Its operation.
        op: Op,
    },
    /// An input was refused. Only the first [`crate::machine::REFUSALS_RECORDED`] of each process are
    /// recorded: refusals are free to provoke and must not crowd out the rest.
    Refused {
        /// The process.
        process: ProcessId,
        /// The access number, if it was an access.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        number: Option<AccessNumber>,
        /// The reason, in words.
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
        /// The process.
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
        /// The position of the entry.
        position: Position,
        /// The process whose append won.
        process: ProcessId,
        /// The phase of the append.
        phase: Phase,
        /// The value.
        value: Value,
    },
    /// An access was executed in this phase.
    Answered {
        /// The process.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
        /// The phase it was executed in.
        phase: Phase,
        /// The answer.
        answer: Answer,
    },
    /// The list is sealed: it takes no more entries (A2).
    Sealed {
        /// The phase that is open or next when the list is sealed; after a jump (F4), the phase that opens
        /// after the jump.
        phase: Phase,
        /// Its final length.
        length: u32,
    },
    /// A process reported its decision and left (F10, D3).
    Decided {
        /// The process.
        process: ProcessId,
        /// The decision that it reports.
        value: Value,
    },
    /// A waiting access was withdrawn because its process left or the instance was closed (F10).
    Withdrawn {
        /// The process.
        process: ProcessId,
        /// Its number.
        number: AccessNumber,
    },
    /// A process did what no correct process does (B2). Only the first [`crate::machine::OFFENCES_RECORDED`]
    /// of each process and kind are recorded one by one.
    Offence(Offence),
    /// Every process has left (F10).
    Finished,
    /// The creator closed the instance (F10).
    Closed,
    /// The server restarted: no patience drains until all that are awaited have reconnected, or the time to
    /// reconnect is over (F3). Not recorded of an instance that is finished or closed, where it changes
    /// nothing.
    Restarted {
        /// The time to reconnect, in nanoseconds.
        #[serde(rename = "rejoin_nanos", with = "nanos")]
        rejoin: Duration,
    },
    /// A process has reconnected after a restart with an access that was accepted before and is no event
    /// again (F3). Any other way of coming back has an event of its own.
    Rejoined {
        /// The process.
        process: ProcessId,
    },
}

impl Event {
    /// The phase that the event shows as reached: all phases before it have passed.
    #[must_use]
    pub const fn reached(&self) -> Option<Phase> {
        match self {
            Self::Stepped { phase, .. } | Self::Sealed { phase, .. } => Some(*phase),
            _ => None,
        }
    }

    /// The process of the event; `None` if the event concerns the whole instance.
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
            | Self::Rejoined { process }
            | Self::Offence(Offence { process, .. }) => Some(*process),
            Self::GatheringEnded { .. }
            | Self::Stepped { .. }
            | Self::Sealed { .. }
            | Self::Finished
            | Self::Closed
            | Self::Restarted { .. } => None,
        }
    }
}

/// Pushes an event. The closure builds it where it will lie: `Vec::push` builds it elsewhere first, field by
/// field, and its copy to the vector waits for the last field.
#[inline(always)]
pub(crate) fn push_event(events: &mut Vec<Event>, event: impl FnOnce() -> Event) {
    events.extend(std::iter::once_with(event));
}

/// A duration in nanoseconds; at most five centuries.
mod nanos {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_nanos)
    }
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// The time of the event, in nanoseconds since the instance was created.
    pub at: Time,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// An act of a process that no correct process commits, with its proof (B2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offence {
    /// The process.
    pub process: ProcessId,
    /// The kind of offence.
    pub kind: OffenceKind,
    /// The access it was done with, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<AccessNumber>,
    /// The phase that was open or next when the machine filed it; `None` while processes gathered. The
    /// machine fills it in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The act and what it contradicts, in words.
    pub detail: String,
}

/// The closed list of offences: the messages that the server received prove each of them (B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OffenceKind {
    /// An append whose access number is above 1: late or repeated.
    LateAppend,
    /// Two contents for one access number within one session.
    OtherContent,
    /// A call at an instance of which the caller is no process, or in a role that the caller does not have.
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
    /// The name, as histories have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LateAppend => "late_append",
            Self::OtherContent => "other_content",
            Self::ForeignIdentity => "foreign_identity",
            Self::Malformed => "malformed",
            Self::Oversized => "oversized",
            Self::QuotaExceeded => "quota_exceeded",
            Self::SecondDecision => "second_decision",
            Self::FalseDecision => "false_decision",
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incarnation_is_written_as_a_text_and_read_as_a_number_too() {
        let event = Event::Session {
            process: ProcessId::FIRST,
            session: SessionId::new(1).unwrap(),
            incarnation: 9_007_199_254_740_993,
        };
        let recorded = Recorded { at: Time::from_nanos(7), event };
        let text = r#"{"at":7,"event":"session","process":1,"session":1,"incarnation":"9007199254740993"}"#;
        assert_eq!(serde_json::to_string(&recorded).unwrap(), text);
        for text in [text, &text.replace("\"9007199254740993\"", "9007199254740993")] {
            assert_eq!(serde_json::from_str::<Recorded>(text).unwrap(), recorded);
        }
    }

    #[test]
    fn a_restart_is_written_in_nanoseconds() {
        let event = Event::Restarted { rejoin: Duration::from_secs(5) };
        let recorded = Recorded { at: Time::from_nanos(7), event };
        let text = r#"{"at":7,"event":"restarted","rejoin_nanos":5000000000}"#;
        assert_eq!(serde_json::to_string(&recorded).unwrap(), text);
        assert_eq!(serde_json::from_str::<Recorded>(text).unwrap(), recorded);
    }
}
