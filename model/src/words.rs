//! Events, offences, numbers and explanations in words, for people. Programs, reports and pages say the same thing in the
//! same words, which are these.

mod explanation;

pub use self::explanation::{
    Block, ExplainedRun, Place, Section, Table, append_window, arbiter, order, outcome_meaning,
    property_meaning,
};

use crate::access::{Answer, AppendAnswer, Op, ReadAnswer};
use crate::history::{Event, OffenceKind};
use crate::types::ProcessId;

/// What happened, in a sentence without a full stop.
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
        Event::Refused { process, why, .. } => format!("process {process} is refused: {why}"),
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

/// `process 3`, `processes 3, 5 to 9`, `nobody`. They must come in order.
#[must_use]
pub fn processes(processes: &[ProcessId]) -> String {
    let runs = processes.chunk_by(|one, next| next.get() == one.get() + 1);
    let runs: Vec<String> = runs
        .map(|run| match run {
            [first, _, .., last] => format!("{first} to {last}"),
            few => few.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        })
        .collect();
    match processes.len() {
        0 => "nobody".to_owned(),
        1 => format!("process {}", runs[0]),
        _ => format!("processes {}", runs.join(", ")),
    }
}

/// `1 entry`, `2 entries`.
#[must_use]
pub fn entries(count: u64) -> String {
    if count == 1 { "1 entry".to_owned() } else { format!("{count} entries") }
}

/// With a comma after each three digits.
#[must_use]
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn processes_in_a_row_are_told_as_a_range() {
        let told = |numbers: &[u32]| {
            let ids: Vec<ProcessId> = numbers.iter().filter_map(|number| ProcessId::new(*number)).collect();
            processes(&ids)
        };
        assert_eq!(told(&[]), "nobody");
        assert_eq!(told(&[7]), "process 7");
        assert_eq!(told(&[1, 2, 4]), "processes 1, 2, 4");
        assert_eq!(told(&[1, 2, 3, 5, 7, 8, 9, 10]), "processes 1 to 3, 5, 7 to 10");
    }
}
