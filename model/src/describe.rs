//! Events, answers and offences in words, for people. Programs, reports and pages say the same thing in the
//! same words, which are these.

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::{Event, OffenceKind};

/// An event, in a sentence without a full stop.
#[must_use]
pub fn event(event: &Event) -> String {
    match event {
        Event::Joined { process } => format!("process {process} joins"),
        Event::Session { process, session, .. } => format!("process {process} opens session {session}"),
        Event::Accepted { process, number, op: Op::Append(value), .. } => {
            format!("access {number} of process {process} is accepted: append {value}")
        }
        Event::Accepted { process, number, op: Op::Read { start }, .. } => {
            format!("access {number} of process {process} is accepted: read from {start} on")
        }
        Event::Refused { process, number: Some(number), why } => {
            format!("access {number} of process {process} is refused: {why}")
        }
        Event::Refused { process, number: None, why } => format!("process {process} is refused: {why}"),
        Event::GatheringEnded { joined } => format!("gathering ends with {joined} joined"),
        Event::PatienceSpent { process } => format!("process {process} is not awaited any more"),
        Event::Stepped { phase, warp, length } => {
            format!("phase {phase} is executed, of warp {warp}, with {length} entries in the list")
        }
        Event::Added { position, process, phase, value } => {
            format!("process {process} wins phase {phase}: {value} is added at {position}")
        }
        Event::Answered { process, number, phase, answer } => {
            format!(
                "access {number} of process {process}, in phase {phase}, is answered {}",
                self::answer(answer)
            )
        }
        Event::Sealed { phase, length } => {
            format!("the list is sealed with {length} entries, from phase {phase} on")
        }
        Event::Decided { process, value } => format!("process {process} decides {value}"),
        Event::Withdrawn { process, number } => format!("access {number} of process {process} is withdrawn"),
        Event::Offence(offence) => {
            format!(
                "process {} commits an offence, {}: {}",
                offence.process,
                offence_kind(offence.kind),
                offence.detail
            )
        }
        Event::Finished => "the instance is finished: everybody has left".to_owned(),
        Event::Closed => "the instance is closed".to_owned(),
        Event::Restarted { rejoin } => {
            format!("the server restarts: patience waits up to {rejoin:?} for processes to reconnect")
        }
        Event::Rejoined { process } => format!("process {process} is back after the restart"),
    }
}

/// An answer.
#[must_use]
pub fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Append(answer) => append_answer(*answer),
        Answer::Read(ReadAnswer { start, count, length, sealed }) => {
            let sealed = if *sealed { "sealed" } else { "not sealed" };
            format!("with {count} entries from {start} on, of a list of {length}, {sealed}")
        }
    }
}

/// The answer of an append, as the API names it.
#[must_use]
pub fn append_answer(answer: AppendAnswer) -> String {
    match answer {
        AppendAnswer::Success(position) => format!("SUCCESS at {position}"),
        AppendAnswer::Failed => "FAILED".to_owned(),
        AppendAnswer::LimitReached => "LIMIT_REACHED".to_owned(),
    }
}

/// An offence of the closed list (B2).
#[must_use]
pub fn offence_kind(kind: OffenceKind) -> &'static str {
    match kind {
        OffenceKind::LateAppend => "late or repeated append",
        OffenceKind::OtherContent => "two contents for one access number",
        OffenceKind::ForeignIdentity => "foreign identity",
        OffenceKind::Malformed => "malformed message",
        OffenceKind::Oversized => "oversized message",
        OffenceKind::QuotaExceeded => "rate or quota exceeded",
        OffenceKind::SecondDecision => "second and different decision",
        OffenceKind::FalseDecision => "false report of a decision",
    }
}
