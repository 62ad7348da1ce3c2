//! Checkpoints of machines, as a server's log holds them: the model's [`Checkpoint`] and the log's
//! [`Machine`](wire::Machine), one to one in both directions.
//!
//! A million ended instances may be in a log, so it is compact: values stand once, answers are columns of
//! numbers, and usual values take no bytes. From the wire only the form is checked here; the model checks
//! whether a machine can be in such a state (`stickycas_model::machine::Machine::from_checkpoint`).

use std::collections::BTreeMap;
use std::time::Duration;

use stickycas_model::access::Op;
use stickycas_model::machine::{
    Checkpoint, Entry, KeptAnswer, MemberCheckpoint, OffenceCount, WaitingCheckpoint,
};
use stickycas_model::params::Patience;
use stickycas_model::types::{Phase, ProcessId, SessionId, Time, Value};

use super::access::{WireOp, recorded_value};
use super::state::{state_from_wire, state_to_wire};
use super::{WireError, access_number, phase, process};
use crate::log::v1 as wire;
use crate::v1;

const JOINED: u32 = 1;
const SPENT: u32 = 2;
const REFUSED: u32 = 4;
const AWAY: u32 = 8;
const ENDLESS: u32 = 16;

/// A checkpoint on the wire.
#[must_use]
pub fn checkpoint_to_wire(checkpoint: &Checkpoint) -> wire::Machine {
    let mut values = ValueTable::default();
    let nanos = |time: Option<Time>| time.map(Time::as_nanos);
    let entries = &checkpoint.entries;
    wire::Machine {
        time_nanos: checkpoint.time.as_nanos(),
        state: state_to_wire(checkpoint.state).into(),
        join_deadline_nanos: nanos(checkpoint.join_deadline),
        phase: checkpoint.phase.get(),
        open_since_nanos: nanos(checkpoint.open_since),
        last_step_nanos: nanos(checkpoint.last_step),
        sealed_phase: checkpoint.sealed.map_or(0, Phase::get),
        accepted: checkpoint.accepted,
        rejoin_until_nanos: nanos(checkpoint.rejoin_until),
        entry_values: entries.iter().map(|entry| values.place_of(&entry.value)).collect(),
        entry_processes: entries.iter().map(|entry| entry.process.get()).collect(),
        entry_phases: entries.iter().map(|entry| entry.phase.get()).collect(),
        members: checkpoint.members.iter().map(|member| member_to_wire(member, &mut values)).collect(),
        ready: checkpoint.ready.iter().map(|process| process.get()).collect(),
        early_reports: checkpoint.early_reports.iter().map(|process| process.get()).collect(),
        offences: checkpoint
            .offences
            .iter()
            .map(|OffenceCount { first, count }| wire::OffenceCount {
                first: Some(first.into()),
                count: *count,
            })
            .collect(),
        refused_processes: checkpoint.refusals.iter().map(|(process, _)| process.get()).collect(),
        refused_counts: checkpoint.refusals.iter().map(|(_, count)| *count).collect(),
        values: values.in_order.into_iter().map(Value::to_bytes).collect(),
    }
}

/// A checkpoint from the wire.
///
/// # Errors
/// When a field is missing or has no meaning.
pub fn checkpoint_from_wire(machine: &wire::Machine) -> Result<Checkpoint, WireError> {
    let values = machine.values.iter().map(|bytes| recorded_value("values", bytes));
    let values: Vec<Value> = values.collect::<Result<_, _>>()?;
    let offences = machine.offences.iter().map(|offences| {
        let first = offences.first.as_ref().ok_or(WireError::Missing("offences.first"))?;
        Ok(OffenceCount { first: first.try_into()?, count: offences.count })
    });
    let refused = processes("refused_processes", &machine.refused_processes)?;
    same_length("refused_counts", machine.refused_counts.len(), refused.len())?;
    let time = |nanos: Option<u64>| nanos.map(Time::from_nanos);
    let members = machine.members.iter().map(|member| member_from_wire(member, &values));
    Ok(Checkpoint {
        time: Time::from_nanos(machine.time_nanos),
        state: state_from_wire(machine.state)?,
        join_deadline: time(machine.join_deadline_nanos),
        phase: phase("phase", machine.phase)?,
        open_since: time(machine.open_since_nanos),
        last_step: time(machine.last_step_nanos),
        sealed: Phase::new(machine.sealed_phase),
        accepted: machine.accepted,
        rejoin_until: time(machine.rejoin_until_nanos),
        entries: entries_from_wire(machine, &values)?,
        members: members.collect::<Result<_, _>>()?,
        ready: processes("ready", &machine.ready)?,
        early_reports: processes("early_reports", &machine.early_reports)?,
        offences: offences.collect::<Result<_, WireError>>()?,
        refusals: refused.into_iter().zip(machine.refused_counts.iter().copied()).collect(),
    })
}

/// The different values, in the order in which they came.
#[derive(Default)]
struct ValueTable<'a> {
    in_order: Vec<&'a Value>,
    places: BTreeMap<&'a Value, u32>,
}

impl<'a> ValueTable<'a> {
    /// Where the value stands, from 0.
    fn place_of(&mut self, value: &'a Value) -> u32 {
        let next = u32::try_from(self.in_order.len()).expect("no more values than entries and processes");
        let place = *self.places.entry(value).or_insert(next);
        if place == next {
            self.in_order.push(value);
        }
        place
    }
}

fn value_at(field: &'static str, values: &[Value], place: u32) -> Result<Value, WireError> {
    let value = values.get(place as usize).cloned();
    value.ok_or(WireError::Contradiction { field, why: "names no value of the table" })
}

fn processes(field: &'static str, numbers: &[u32]) -> Result<Vec<ProcessId>, WireError> {
    numbers.iter().map(|number| process(field, *number)).collect()
}

fn same_length(field: &'static str, given: usize, expected: usize) -> Result<(), WireError> {
    let why = "is not as long as the column beside it";
    if given == expected { Ok(()) } else { Err(WireError::Contradiction { field, why }) }
}

fn entries_from_wire(machine: &wire::Machine, values: &[Value]) -> Result<Vec<Entry>, WireError> {
    let count = machine.entry_values.len();
    same_length("entry_processes", machine.entry_processes.len(), count)?;
    same_length("entry_phases", machine.entry_phases.len(), count)?;
    let numbers = machine.entry_processes.iter().zip(&machine.entry_phases);
    let entries = machine.entry_values.iter().zip(numbers).map(|(place, (won_by, won_in))| {
        Ok(Entry {
            value: value_at("entry_values", values, *place)?,
            process: process("entry_processes", *won_by)?,
            phase: phase("entry_phases", *won_in)?,
        })
    });
    entries.collect()
}

fn number_of(session: Option<SessionId>) -> u32 {
    session.map_or(0, SessionId::get)
}

fn member_to_wire<'a>(member: &'a MemberCheckpoint, values: &mut ValueTable<'a>) -> wire::Member {
    let mark = |set: bool, mark: u32| if set { mark } else { 0 };
    let (patience_nanos, endless) = match member.patience {
        Patience::Finite(left) => (u64::try_from(left.as_nanos()).unwrap_or(u64::MAX), false),
        Patience::Endless => (0, true),
    };
    let answers = &member.answers;
    let on_other_session = answers.iter().any(|kept| kept.session != member.session);
    let with_sessions = if on_other_session { answers.as_slice() } else { &[] };
    let appends = (0..).zip(answers).filter(|(_, kept)| kept.append);
    wire::Member {
        next: member.next.get(),
        marks: mark(member.joined, JOINED)
            | mark(member.spent, SPENT)
            | mark(member.refused, REFUSED)
            | mark(member.away, AWAY)
            | mark(endless, ENDLESS),
        patience_nanos,
        session: number_of(member.session),
        waiting: member.waiting.iter().map(waiting_to_wire).collect(),
        answer_phases: answers.iter().map(|kept| kept.phase.get()).collect(),
        answer_contents: answers.iter().map(|kept| kept.content).collect(),
        answer_appends: appends.map(|(place, _)| place).collect(),
        answer_sessions: with_sessions.iter().map(|kept| number_of(kept.session)).collect(),
        append_phase: member.append.map_or(0, Phase::get),
        decision: member.decision.as_ref().map_or(0, |decision| values.place_of(decision) + 1),
        withdrawn: member.withdrawn.into(),
        first_append: member.first_append.as_ref().map_or(0, |value| values.place_of(value) + 1),
    }
}

fn member_from_wire(member: &wire::Member, values: &[Value]) -> Result<MemberCheckpoint, WireError> {
    let has = |mark: u32| member.marks & mark != 0;
    let value =
        |field, place: u32| place.checked_sub(1).map(|place| value_at(field, values, place)).transpose();
    let too_many = WireError::Contradiction { field: "members.withdrawn", why: "is more than may wait" };
    let finite = Patience::Finite(Duration::from_nanos(member.patience_nanos));
    Ok(MemberCheckpoint {
        next: access_number("members.next", member.next)?,
        patience: if has(ENDLESS) { Patience::Endless } else { finite },
        joined: has(JOINED),
        spent: has(SPENT),
        refused: has(REFUSED),
        away: has(AWAY),
        session: SessionId::new(member.session),
        waiting: member.waiting.iter().map(waiting_from_wire).collect::<Result<_, _>>()?,
        answers: answers_from_wire(member)?,
        append: Phase::new(member.append_phase),
        first_append: value("members.first_append", member.first_append)?,
        decision: value("members.decision", member.decision)?,
        withdrawn: u16::try_from(member.withdrawn).map_err(|_| too_many)?,
    })
}

fn answers_from_wire(member: &wire::Member) -> Result<Vec<KeptAnswer>, WireError> {
    let count = member.answer_phases.len();
    same_length("members.answer_contents", member.answer_contents.len(), count)?;
    let sessions = &member.answer_sessions;
    if !sessions.is_empty() {
        same_length("members.answer_sessions", sessions.len(), count)?;
    }
    let mut answers = Vec::with_capacity(count);
    for (place, (executed_in, content)) in
        member.answer_phases.iter().zip(&member.answer_contents).enumerate()
    {
        answers.push(KeptAnswer {
            phase: phase("members.answer_phases", *executed_in)?,
            session: SessionId::new(sessions.get(place).copied().unwrap_or(member.session)),
            append: false,
            content: *content,
        });
    }
    for &place in &member.answer_appends {
        let (field, why) = ("members.answer_appends", "names no answer");
        answers.get_mut(place as usize).ok_or(WireError::Contradiction { field, why })?.append = true;
    }
    Ok(answers)
}

fn waiting_to_wire(waiting: &WaitingCheckpoint) -> wire::Waiting {
    let op = match &waiting.op {
        Op::Append(value) => wire::waiting::Op::Append(v1::Append { value: value.to_bytes() }),
        Op::Read { start } => wire::waiting::Op::Read(v1::Read { start: start.get() }),
    };
    wire::Waiting { session: number_of(waiting.session), accepted: waiting.accepted, op: Some(op) }
}

fn waiting_from_wire(waiting: &wire::Waiting) -> Result<WaitingCheckpoint, WireError> {
    let op = match waiting.op.as_ref().ok_or(WireError::Missing("members.waiting.op"))? {
        wire::waiting::Op::Append(append) => WireOp::Append(&append.value),
        wire::waiting::Op::Read(read) => WireOp::Read(read.start),
    };
    let op = op.check(|bytes| recorded_value("members.waiting.append.value", bytes))?;
    Ok(WaitingCheckpoint { session: SessionId::new(waiting.session), op, accepted: waiting.accepted })
}
