//! The state of a process at an instance, and the welcome that carries it (SPEC F8e).

use stickycas_model::access::{AppendAnswer, Op};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, Phase, ProcessId, SessionId, Value};

use super::access::{value_from_wire, waiting_from_wire, waiting_to_wire};
use super::params::params_from_wire;
use super::{WireError, access_number, phase, process, session};
use crate::v1;

/// The state of a process at an instance: all that a restarted client needs to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberState {
    /// The process.
    pub process: ProcessId,
    /// The number that its next new access must have.
    pub next: AccessNumber,
    /// Its accesses that still wait, in the order of their numbers.
    pub waiting: Vec<(AccessNumber, Op)>,
    /// The phase and answer of its first append, once executed.
    pub append: Option<(Phase, AppendAnswer)>,
    /// The decision that it reported.
    pub decided: Option<Value>,
}

impl MemberState {
    /// From the wire; `params` are those of the instance.
    ///
    /// # Errors
    /// When a field is missing or does not fit the parameters of the instance.
    pub fn from_wire(wire: &v1::Own, params: &Params) -> Result<Self, WireError> {
        let process = process("own.process", wire.process)?;
        if !params.contains(process) {
            return Err(WireError::Contradiction { field: "own.process", why: "is above n" });
        }
        let waiting = wire.waiting.iter().map(|waiting| waiting_from_wire(waiting, params));
        let decided = wire.decided.as_ref().map(|bytes| value_from_wire("own.decided", bytes, params));
        Ok(Self {
            process,
            next: access_number("own.next_access_number", wire.next_access_number)?,
            waiting: waiting.collect::<Result<_, _>>()?,
            append: wire.append.as_ref().map(first_append_from_wire).transpose()?,
            decided: decided.transpose()?,
        })
    }
}

impl From<&MemberState> for v1::Own {
    fn from(own: &MemberState) -> Self {
        Self {
            process: own.process.get(),
            next_access_number: own.next.get(),
            waiting: own.waiting.iter().map(|(number, op)| waiting_to_wire(*number, op)).collect(),
            append: own
                .append
                .map(|(phase, answer)| v1::FirstAppend { phase: phase.get(), result: Some(answer.into()) }),
            decided: own.decided.as_ref().map(Value::to_bytes),
        }
    }
}

fn first_append_from_wire(wire: &v1::FirstAppend) -> Result<(Phase, AppendAnswer), WireError> {
    let result = wire.result.as_ref().ok_or(WireError::Missing("own.append.result"))?;
    Ok((phase("own.append.phase", wire.phase)?, result.try_into()?))
}

/// A welcome as a client receives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WelcomeData {
    /// The session that the hello opened.
    pub session: SessionId,
    /// The state of the process.
    pub own: MemberState,
    /// The parameters of the instance.
    pub params: Params,
}

impl TryFrom<&v1::Welcome> for WelcomeData {
    type Error = WireError;

    fn try_from(wire: &v1::Welcome) -> Result<Self, WireError> {
        let params = params_from_wire(wire.parameters.as_ref().ok_or(WireError::Missing("parameters"))?)?;
        let own = MemberState::from_wire(wire.own.as_ref().ok_or(WireError::Missing("own"))?, &params)?;
        Ok(Self { session: session("session", wire.session)?, own, params })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::Position;

    fn params() -> Params {
        Params::try_new(ParamsSpec::new(4, 2, 2)).unwrap()
    }

    fn own() -> MemberState {
        MemberState {
            process: ProcessId::new(3).unwrap(),
            next: AccessNumber::new(4).unwrap(),
            waiting: vec![
                (AccessNumber::new(2).unwrap(), Op::Read { start: Position::new(0) }),
                (AccessNumber::new(3).unwrap(), Op::Append(Value::new(b"v").unwrap())),
            ],
            append: Some((Phase::new(2).unwrap(), AppendAnswer::Success(Position::new(0)))),
            decided: Value::new(b"v"),
        }
    }

    #[test]
    fn a_welcome_reads_back() {
        let (own_on_wire, parameters) = (Some((&own()).into()), Some((&params()).into()));
        let frame = v1::Welcome { channel: 5, session: 1, own: own_on_wire, parameters };
        let welcome = WelcomeData::try_from(&frame).unwrap();
        assert_eq!(welcome, WelcomeData { session: SessionId::FIRST, own: own(), params: params() });
    }

    #[test]
    fn a_process_above_n_is_refused() {
        let wire = v1::Own { process: 5, ..v1::Own::from(&own()) };
        let above = WireError::Contradiction { field: "own.process", why: "is above n" };
        assert_eq!(MemberState::from_wire(&wire, &params()), Err(above));
    }

    #[test]
    fn an_empty_decision_is_no_absent_one() {
        let wire = v1::Own { decided: Some(bytes::Bytes::new()), ..v1::Own::from(&own()) };
        assert!(matches!(
            MemberState::from_wire(&wire, &params()),
            Err(WireError::Value { field: "own.decided", .. })
        ));
    }
}
