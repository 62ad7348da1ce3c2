//! What the machine said, one line each.

use std::fmt::Write as _;
use std::time::Duration;

use stickycas_model::access::{Answer, AppendAnswer, Op, ReadAnswer};
use stickycas_model::history::{Event, Offence};
use stickycas_model::machine::{Admission, MemberStatus, Status, Welcome};
use stickycas_model::params::Patience;
use stickycas_model::types::{AccessNumber, Phase, Time};

pub(crate) fn welcome(welcome: &Welcome) -> String {
    let next = format!("welcome to session {}, next is #{}", welcome.session, welcome.next);
    next + &so_far(&welcome.waiting, welcome.append, welcome.decided.as_ref())
}

pub(crate) fn admission(admission: &Admission) -> String {
    match admission {
        Admission::Accepted => "accepted".to_owned(),
        Admission::AlreadyWaiting => "waits already".to_owned(),
        Admission::AnsweredBefore { phase, answer: given } => {
            format!("answered in phase {phase}: {}", answer(given))
        }
        Admission::ReadOutsidePhases(read) => format!("outside phases: {}", answer(&Answer::Read(*read))),
    }
}

pub(crate) fn event(event: &Event) -> String {
    match event {
        Event::Joined { process } => format!("P{process} joined"),
        Event::Session { process, session, incarnation: 0 } => format!("P{process} session {session}"),
        Event::Session { process, session, incarnation } => {
            format!("P{process} session {session} of life {incarnation}")
        }
        Event::Accepted { process, number, session: None, op: given } => {
            format!("P{process} #{number} accepted: {}", op(given))
        }
        Event::Accepted { process, number, session: Some(session), op: given } => {
            format!("P{process} #{number} accepted on session {session}: {}", op(given))
        }
        // The words are those of the reply.
        Event::Refused { process, number: Some(number), .. } => format!("P{process} #{number} refused"),
        Event::Refused { process, number: None, .. } => format!("P{process} refused"),
        Event::GatheringEnded { joined } => format!("gathering ended, {joined} joined"),
        Event::PatienceSpent { process } => format!("P{process} is awaited no more"),
        Event::Stepped { phase, warp, length } => format!("phase {phase} of warp {warp}, length {length}"),
        Event::Added { position, process, phase, value } => {
            format!("list[{position}] = {value} of P{process}, phase {phase}")
        }
        Event::Answered { process, number, phase, answer: given } => {
            format!("P{process} #{number} in phase {phase}: {}", answer(given))
        }
        Event::Sealed { phase, length } => format!("sealed from phase {phase} on, length {length}"),
        Event::Decided { process, value } => format!("P{process} decided {value} and left"),
        Event::Withdrawn { process, number } => format!("P{process} #{number} withdrawn"),
        Event::Offence(Offence { process, kind: given, number, phase, detail }) => {
            let number = number.map_or(String::new(), |number| format!(" #{number}"));
            let phase = phase.map_or("while gathering".to_owned(), |phase| format!("in phase {phase}"));
            format!("P{process}{number} offence {} {phase}: {detail}", given.name())
        }
        Event::Finished => "finished".to_owned(),
        Event::Closed => "closed".to_owned(),
        Event::Restarted { rejoin } => format!("the server restarted, {rejoin:?} to reconnect"),
        Event::Rejoined { process } => format!("P{process} is back"),
    }
}

pub(crate) fn status(status: &Status, deadline: Option<Time>) -> String {
    let mut line = format!("{:?}", status.state).to_lowercase();
    if let (Some(phase), Some(warp)) = (status.phase, status.warp) {
        let open = if status.open { "open" } else { "next" };
        let _ = write!(line, ", phase {phase} of warp {warp} {open}");
    }
    let sealed = if status.sealed { ", sealed" } else { "" };
    let _ = write!(line, ", {} joined, length {}{sealed}", status.joined, status.length);
    for member in &status.awaited {
        let patience = match member.patience {
            Patience::Endless => "endless".to_owned(),
            Patience::Finite(patience) => format!("{patience:?}"),
        };
        let _ = write!(line, "\n  awaits P{}, patience {patience}", member.process);
    }
    for member in &status.waiting {
        let _ = write!(line, "\n  P{}{}", member.process, waiting(&member.accesses));
    }
    for (process, value) in &status.left {
        let _ = write!(line, "\n  P{process} left with {value}");
    }
    for process in &status.given_up {
        let _ = write!(line, "\n  P{process} is not awaited");
    }
    for offence in &status.offences {
        let (process, kind) = (offence.first.process, offence.first.kind.name());
        let _ = write!(line, "\n  P{process} {kind} x{}", offence.count);
    }
    let _ = match deadline {
        None => write!(line, "\n  no timer"),
        Some(time) => write!(line, "\n  timer at {}", moment(time)),
    };
    line
}

pub(crate) fn member(status: &MemberStatus) -> String {
    let session = status.session.map_or("no session".to_owned(), |session| format!("session {session}"));
    let so_far = so_far(&status.waiting, status.append, status.decided.as_ref());
    format!("{session}, next is #{}{so_far}", status.next)
}

pub(crate) fn moment(time: Time) -> String {
    format!("{:?}", Duration::from_nanos(time.as_nanos()))
}

fn so_far(
    accesses: &[(AccessNumber, Op)],
    append: Option<(Phase, AppendAnswer)>,
    decided: Option<&stickycas_model::types::Value>,
) -> String {
    let mut text = String::new();
    if !accesses.is_empty() {
        let _ = write!(text, ",{}", waiting(accesses));
    }
    if let Some((phase, given)) = append {
        let _ = write!(text, ", append in phase {phase}: {}", answer(&Answer::Append(given)));
    }
    if let Some(value) = decided {
        let _ = write!(text, ", decided {value}");
    }
    text
}

fn waiting(accesses: &[(AccessNumber, Op)]) -> String {
    let each = accesses.iter().map(|(number, given)| format!(" #{number} {}", op(given)));
    format!(" waits:{}", each.collect::<Vec<_>>().join(","))
}

fn op(op: &Op) -> String {
    match op {
        Op::Append(value) => format!("append {value}"),
        Op::Read { start } => format!("read {start}"),
    }
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Append(AppendAnswer::Success(position)) => format!("success at {position}"),
        Answer::Append(AppendAnswer::Failed) => "failed".to_owned(),
        Answer::Append(AppendAnswer::LimitReached) => "limit reached".to_owned(),
        Answer::Read(ReadAnswer { start, count, length, sealed }) => {
            let sealed = if *sealed { ", sealed" } else { "" };
            format!("{count} from {start} of {length}{sealed}")
        }
    }
}
