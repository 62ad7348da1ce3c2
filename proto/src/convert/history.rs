//! Histories: the model's [`Recorded`] and the wire's `Event`, one to one in both directions, so that a
//! history that a watcher collects can be judged like the record of the server.

use std::time::Duration;

use stickycas_model::access::{Answer, ReadAnswer};
use stickycas_model::history::{Event, Offence, OffenceKind, Recorded};
use stickycas_model::types::{AccessNumber, Phase, Position, SessionId, Time};

use super::access::{WireOp, recorded_value};
use super::{WireError, access_number, phase, process, session, warp};
use crate::v1;
use crate::v1::event::{self as wire, What};

/// The event at `index` of a history (from 0) on the wire.
#[must_use]
pub fn event_to_wire(index: u64, recorded: &Recorded) -> v1::Event {
    v1::Event { index, at_nanos: recorded.at.as_nanos(), what: Some(what_to_wire(&recorded.event)) }
}

/// An event from the wire, with its index.
///
/// # Errors
/// When a field is missing or has no meaning.
pub fn event_from_wire(event: &v1::Event) -> Result<(u64, Recorded), WireError> {
    let what = event.what.as_ref().ok_or(WireError::Missing("what"))?;
    Ok((event.index, Recorded { at: Time::from_nanos(event.at_nanos), event: what_from_wire(what)? }))
}

fn what_to_wire(event: &Event) -> What {
    match event {
        Event::Joined { process } => What::Joined(wire::Joined { process: process.get() }),
        Event::Session { process, session, incarnation } => What::Session(wire::Session {
            process: process.get(),
            session: session.get(),
            incarnation: *incarnation,
        }),
        Event::Accepted { process, number, session, op } => What::Accepted(wire::Accepted {
            process: process.get(),
            number: number.get(),
            session: session.map_or(0, SessionId::get),
            op: Some(op.into()),
        }),
        Event::Refused { process, number, why } => What::Refused(wire::Refused {
            process: process.get(),
            number: number.map_or(0, AccessNumber::get),
            why: why.clone(),
        }),
        Event::GatheringEnded { joined } => What::GatheringEnded(wire::GatheringEnded { joined: *joined }),
        Event::PatienceSpent { process } => {
            What::PatienceSpent(wire::PatienceSpent { process: process.get() })
        }
        Event::Stepped { phase, warp, length } => {
            What::Stepped(wire::Stepped { phase: phase.get(), warp: warp.get(), length: *length })
        }
        Event::Added { position, process, phase, value } => What::Added(wire::Added {
            position: position.get(),
            process: process.get(),
            phase: phase.get(),
            value: value.to_bytes(),
        }),
        Event::Answered { process, number, phase, answer } => What::Answered(wire::Answered {
            process: process.get(),
            number: number.get(),
            phase: phase.get(),
            answer: Some(answer_to_wire(answer)),
        }),
        Event::Sealed { phase, length } => What::Sealed(wire::Sealed { phase: phase.get(), length: *length }),
        Event::Decided { process, value } => {
            What::Decided(wire::Decided { process: process.get(), value: value.to_bytes() })
        }
        Event::Withdrawn { process, number } => {
            What::Withdrawn(wire::Withdrawn { process: process.get(), number: number.get() })
        }
        Event::Offence(offence) => What::Offence(offence.into()),
        Event::Finished => What::Finished(wire::Finished {}),
        Event::Closed => What::Closed(wire::Closed {}),
        Event::Restarted { rejoin } => {
            let rejoin_nanos = u64::try_from(rejoin.as_nanos()).unwrap_or(u64::MAX);
            What::Restarted(wire::Restarted { rejoin_nanos })
        }
        Event::Rejoined { process } => What::Rejoined(wire::Rejoined { process: process.get() }),
    }
}

fn what_from_wire(what: &What) -> Result<Event, WireError> {
    Ok(match what {
        What::Joined(joined) => Event::Joined { process: process("joined.process", joined.process)? },
        What::Session(opened) => Event::Session {
            process: process("session.process", opened.process)?,
            session: session("session.session", opened.session)?,
            incarnation: opened.incarnation,
        },
        What::Accepted(accepted) => accepted_from_wire(accepted)?,
        What::Refused(refused) => Event::Refused {
            process: process("refused.process", refused.process)?,
            number: AccessNumber::new(refused.number),
            why: refused.why.clone(),
        },
        What::GatheringEnded(ended) => Event::GatheringEnded { joined: ended.joined },
        What::PatienceSpent(spent) => {
            Event::PatienceSpent { process: process("patience_spent.process", spent.process)? }
        }
        What::Stepped(stepped) => Event::Stepped {
            phase: phase("stepped.phase", stepped.phase)?,
            warp: warp("stepped.warp", stepped.warp)?,
            length: stepped.length,
        },
        What::Added(added) => Event::Added {
            position: Position::new(added.position),
            process: process("added.process", added.process)?,
            phase: phase("added.phase", added.phase)?,
            value: recorded_value("added.value", &added.value)?,
        },
        What::Answered(answered) => answered_from_wire(answered)?,
        What::Sealed(sealed) => {
            Event::Sealed { phase: phase("sealed.phase", sealed.phase)?, length: sealed.length }
        }
        What::Decided(decided) => Event::Decided {
            process: process("decided.process", decided.process)?,
            value: recorded_value("decided.value", &decided.value)?,
        },
        What::Withdrawn(withdrawn) => Event::Withdrawn {
            process: process("withdrawn.process", withdrawn.process)?,
            number: access_number("withdrawn.number", withdrawn.number)?,
        },
        What::Offence(offence) => Event::Offence(offence.try_into()?),
        What::Finished(wire::Finished {}) => Event::Finished,
        What::Closed(wire::Closed {}) => Event::Closed,
        What::Restarted(wire::Restarted { rejoin_nanos }) => {
            Event::Restarted { rejoin: Duration::from_nanos(*rejoin_nanos) }
        }
        What::Rejoined(rejoined) => {
            Event::Rejoined { process: process("rejoined.process", rejoined.process)? }
        }
    })
}

fn accepted_from_wire(accepted: &wire::Accepted) -> Result<Event, WireError> {
    let op = accepted.op.as_ref().ok_or(WireError::Missing("accepted.op"))?;
    Ok(Event::Accepted {
        process: process("accepted.process", accepted.process)?,
        number: access_number("accepted.number", accepted.number)?,
        session: SessionId::new(accepted.session),
        op: WireOp::from(op).check(|bytes| recorded_value("accepted.append.value", bytes))?,
    })
}

fn answered_from_wire(answered: &wire::Answered) -> Result<Event, WireError> {
    let answer = match answered.answer.as_ref().ok_or(WireError::Missing("answered.answer"))? {
        wire::answered::Answer::Append(append) => Answer::Append(append.try_into()?),
        wire::answered::Answer::Read(read) => Answer::Read(ReadAnswer {
            start: Position::new(read.start),
            count: read.count,
            length: read.length,
            sealed: read.sealed,
        }),
    };
    Ok(Event::Answered {
        process: process("answered.process", answered.process)?,
        number: access_number("answered.number", answered.number)?,
        phase: phase("answered.phase", answered.phase)?,
        answer,
    })
}

fn answer_to_wire(answer: &Answer) -> wire::answered::Answer {
    match answer {
        Answer::Append(append) => wire::answered::Answer::Append((*append).into()),
        Answer::Read(read) => wire::answered::Answer::Read(wire::ReadNumbers {
            start: read.start.get(),
            count: read.count,
            length: read.length,
            sealed: read.sealed,
        }),
    }
}

impl From<&Offence> for wire::Offence {
    fn from(offence: &Offence) -> Self {
        Self {
            process: offence.process.get(),
            kind: v1::OffenceKind::from(offence.kind).into(),
            number: offence.number.map_or(0, AccessNumber::get),
            phase: offence.phase.map_or(0, Phase::get),
            detail: offence.detail.clone(),
        }
    }
}

impl TryFrom<&wire::Offence> for Offence {
    type Error = WireError;

    fn try_from(offence: &wire::Offence) -> Result<Self, WireError> {
        Ok(Self {
            process: process("offence.process", offence.process)?,
            kind: offence_kind_from_wire("offence.kind", offence.kind)?,
            number: AccessNumber::new(offence.number),
            phase: Phase::new(offence.phase),
            detail: offence.detail.clone(),
        })
    }
}

impl From<OffenceKind> for v1::OffenceKind {
    fn from(kind: OffenceKind) -> Self {
        match kind {
            OffenceKind::LateAppend => Self::LateAppend,
            OffenceKind::OtherContent => Self::OtherContent,
            OffenceKind::ForeignIdentity => Self::ForeignIdentity,
            OffenceKind::Malformed => Self::Malformed,
            OffenceKind::Oversized => Self::Oversized,
            OffenceKind::QuotaExceeded => Self::QuotaExceeded,
            OffenceKind::SecondDecision => Self::SecondDecision,
            OffenceKind::FalseDecision => Self::FalseDecision,
        }
    }
}

/// A kind of offence from the wire, `field` being the name of the field.
///
/// # Errors
/// When it is UNSPECIFIED or unknown.
pub fn offence_kind_from_wire(field: &'static str, value: i32) -> Result<OffenceKind, WireError> {
    let wire = v1::OffenceKind::try_from(value).unwrap_or(v1::OffenceKind::Unspecified);
    Ok(match wire {
        v1::OffenceKind::Unspecified => return Err(WireError::UnknownEnum { field, value }),
        v1::OffenceKind::LateAppend => OffenceKind::LateAppend,
        v1::OffenceKind::OtherContent => OffenceKind::OtherContent,
        v1::OffenceKind::ForeignIdentity => OffenceKind::ForeignIdentity,
        v1::OffenceKind::Malformed => OffenceKind::Malformed,
        v1::OffenceKind::Oversized => OffenceKind::Oversized,
        v1::OffenceKind::QuotaExceeded => OffenceKind::QuotaExceeded,
        v1::OffenceKind::SecondDecision => OffenceKind::SecondDecision,
        v1::OffenceKind::FalseDecision => OffenceKind::FalseDecision,
    })
}
