//! Events of process 1 of two, from which the tests of strategies make histories.

use super::Strategy;
use crate::access::{Answer, AppendAnswer, Op};
use crate::counts::RunCounts;
use crate::detection::detect;
use crate::ground_truth::{Assignment, GroundTruth, Role};
use crate::history::{Event, Offence, OffenceKind, Recorded};
use crate::params::{Params, ParamsSpec};
use crate::types::{AccessNumber, Phase, Position, ProcessId, Time, Value, WarpId};

/// How often the strategy was detected at process 1 in these events, a second apart; patience is a second.
pub(super) fn fired(strategy: &str, events: Vec<Event>) -> u64 {
    fired_in_run(strategy, 0, events)
}

/// The same, in a run with this seed.
pub(super) fn fired_in_run(strategy: &str, run_seed: u64, events: Vec<Event>) -> u64 {
    let params = Params::try_new(ParamsSpec::new(2, 1, 1)).unwrap();
    let proposal = Value::parse("a").unwrap();
    let strategy: Strategy = strategy.parse().unwrap();
    let name = strategy.name();
    let correct = Assignment { role: Role::Correct, proposal: proposal.clone() };
    let truth = GroundTruth::new(vec![Assignment { role: Role::Byzantine(strategy), proposal }, correct]);
    let at = (0..).map(|second| Time::from_nanos(second * 1_000_000_000));
    let history: Vec<Recorded> = at.zip(events).map(|(at, event)| Recorded { at, event }).collect();
    detect(&params, &truth, run_seed, &history, &RunCounts::default()).fired[name]
}

pub(super) fn joined() -> Event {
    Event::Joined { process: ProcessId::FIRST }
}

pub(super) fn gathered() -> Event {
    Event::GatheringEnded { joined: 1 }
}

pub(super) fn patience_spent() -> Event {
    Event::PatienceSpent { process: ProcessId::FIRST }
}

fn accepted(number: u64, op: Op) -> Event {
    let number = AccessNumber::new(number).unwrap();
    Event::Accepted { process: ProcessId::FIRST, number, session: None, op }
}

pub(super) fn append(number: u64, value: &str) -> Event {
    accepted(number, Op::Append(Value::parse(value).unwrap()))
}

pub(super) fn read(number: u64) -> Event {
    accepted(number, Op::Read { start: Position::new(0) })
}

pub(super) fn stepped(phase: u64) -> Event {
    let phase = Phase::new(phase).unwrap();
    Event::Stepped { phase, warp: WarpId::FIRST, length: 0 }
}

pub(super) fn answered(number: u64, phase: u64) -> Event {
    Event::Answered {
        process: ProcessId::FIRST,
        number: AccessNumber::new(number).unwrap(),
        phase: Phase::new(phase).unwrap(),
        answer: Answer::Append(AppendAnswer::Failed),
    }
}

pub(super) fn decided(value: &str) -> Event {
    Event::Decided { process: ProcessId::FIRST, value: Value::parse(value).unwrap() }
}

pub(super) fn added(value: &str) -> Event {
    Event::Added {
        position: Position::new(0),
        process: ProcessId::FIRST,
        phase: Phase::FIRST,
        value: Value::parse(value).unwrap(),
    }
}

/// Bytes that are no value, on record.
pub(super) fn malformed() -> Event {
    let detail = "the value is empty".to_owned();
    let (process, kind) = (ProcessId::FIRST, OffenceKind::Malformed);
    Event::Offence(Offence { process, kind, number: None, phase: None, detail })
}
