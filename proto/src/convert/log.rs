//! The inputs of a machine as a server's log keeps them.

use bytes::Bytes;
use stickycas_model::access::{Access, Op};
use stickycas_model::history::Offence;
use stickycas_model::machine::{Input, MisbehaviourCounts};
use stickycas_model::params::Params;
use stickycas_model::types::{Position, ProcessId, SessionId, Value};

use super::history::offence_kind_from_wire;
use super::{WireError, access_number};
use crate::log::v1::{self as log, access, record};
use crate::v1::{self, event};

/// An access as the log keeps it.
#[must_use]
pub fn access_to_log(logged: &Access) -> record::Input {
    let Access { process, session, number, op, no_wait } = logged;
    record::Input::Access(log::Access {
        process: process.get(),
        session: session.map_or(0, SessionId::get),
        number: number.get(),
        op: Some(match op {
            Op::Append(value) => access::Op::Append(value.to_bytes()),
            Op::Read { start } => access::Op::Read(start.get()),
        }),
        no_wait: *no_wait,
    })
}

/// A hello as the log keeps it.
#[must_use]
pub fn hello_to_log(process: ProcessId, incarnation: u64) -> record::Input {
    record::Input::Hello(log::Hello { process: process.get(), incarnation })
}

/// A decision as the log keeps it.
#[must_use]
pub fn decision_to_log(process: ProcessId, value: &Value) -> record::Input {
    record::Input::Decision(log::Decision { process: process.get(), value: value.to_bytes() })
}

/// An offence as the log keeps it.
#[must_use]
pub fn offence_to_log(offence: &Offence) -> record::Input {
    record::Input::Offence(offence.into())
}

/// Counters as the log keeps them.
#[must_use]
pub fn counts_to_log(counts: &MisbehaviourCounts) -> record::Input {
    let refusals = counts.refusals.iter();
    let offences = counts.offences.iter();
    record::Input::Counts(log::Counts {
        refusals: refusals
            .map(|&(process, count)| log::RefusalsOfProcess { process: process.get(), count })
            .collect(),
        offences: offences
            .map(|&(process, kind, count)| {
                let kind = v1::OffenceKind::from(kind).into();
                log::OffencesOfKind { process: process.get(), kind, count }
            })
            .collect(),
    })
}

fn counts_from_log(counts: &log::Counts, params: &Params) -> Result<MisbehaviourCounts, WireError> {
    let offence = |it: &log::OffencesOfKind| {
        let process = member("counts.offences.process", it.process, params)?;
        Ok((process, offence_kind_from_wire("counts.offences.kind", it.kind)?, it.count))
    };
    let refusal =
        |it: &log::RefusalsOfProcess| Ok((member("counts.refusals.process", it.process, params)?, it.count));
    Ok(MisbehaviourCounts {
        offences: counts.offences.iter().map(offence).collect::<Result<_, WireError>>()?,
        refusals: counts.refusals.iter().map(refusal).collect::<Result<_, WireError>>()?,
    })
}

/// An input of a machine with these parameters.
///
/// # Errors
/// The record is malformed, or it is no input of a machine.
pub fn input_from_log(input: &record::Input, params: &Params) -> Result<Input, WireError> {
    Ok(match input {
        record::Input::Hello(hello) => Input::Hello {
            process: member("hello.process", hello.process, params)?,
            incarnation: hello.incarnation,
        },
        record::Input::Access(access) => Input::Access(access_from_log(access, params)?),
        record::Input::Decision(decision) => Input::Decide {
            process: member("decision.process", decision.process, params)?,
            value: value("decision.value", &decision.value, params)?,
        },
        record::Input::Offence(offence) => Input::Offence(offence_from_log(offence, params)?),
        record::Input::Close(log::Close {}) => Input::Close,
        record::Input::Tick(log::Tick {}) => Input::Tick,
        record::Input::Counts(counts) => Input::Counts(counts_from_log(counts, params)?),
        record::Input::Created(_) | record::Input::Expired(_) | record::Input::Restart(_) => {
            return Err(WireError::Contradiction {
                field: "record.input",
                why: "is no input of one machine",
            });
        }
    })
}

fn access_from_log(access: &log::Access, params: &Params) -> Result<Access, WireError> {
    let op = match access.op.as_ref().ok_or(WireError::Missing("access.op"))? {
        access::Op::Append(bytes) => Op::Append(value("access.append", bytes, params)?),
        access::Op::Read(start) => Op::Read { start: Position::new(*start) },
    };
    Ok(Access {
        process: member("access.process", access.process, params)?,
        session: SessionId::new(access.session),
        number: access_number("access.number", access.number)?,
        op,
        no_wait: access.no_wait,
    })
}

fn offence_from_log(offence: &event::Offence, params: &Params) -> Result<Offence, WireError> {
    member("offence.process", offence.process, params)?;
    Offence::try_from(offence)
}

/// A process that the parameters have: a machine knows no other.
fn member(field: &'static str, number: u32, params: &Params) -> Result<ProcessId, WireError> {
    let process = ProcessId::new(number).ok_or(WireError::Zero(field))?;
    if number > params.processes() {
        return Err(WireError::Contradiction { field, why: "is no process of the instance" });
    }
    Ok(process)
}

fn value(field: &'static str, bytes: &Bytes, params: &Params) -> Result<Value, WireError> {
    super::access::value_from_wire(field, bytes, params)
}
