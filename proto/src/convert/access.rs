//! Accesses and values (SPEC F1, F8).
//!
//! Three messages carry an operation: an `Access` frame, a `WaitingAccess` and an `Accepted` event. Each has
//! a oneof of its own, which costs two bytes less per access than a message for the operation would. The
//! operation of a frame is a [`RawOp`] until it is checked; those of the other two are recorded and share one
//! macro.

use bytes::Bytes;
use stickycas_model::access::{Access, Op};
use stickycas_model::params::{Params, ValueError};
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, Position, ProcessId, RawValue, SessionId, Value};

use super::{WireError, access_number};
use crate::v1;

/// A value of the instance (P3): a decision, or an entry that a read returned.
///
/// # Errors
/// When it is empty or too large.
pub fn value_from_wire(field: &'static str, bytes: &[u8], params: &Params) -> Result<Value, WireError> {
    params.value(bytes).map_err(|error| WireError::Value { field, error })
}

/// A recorded value: the limit of its instance is not known here.
pub(super) fn recorded_value(field: &'static str, bytes: &Bytes) -> Result<Value, WireError> {
    Value::new(bytes).ok_or(WireError::Value { field, error: ValueError::Empty })
}

/// An operation on the wire, before its value is checked.
pub(super) enum WireOp<'a> {
    Append(&'a Bytes),
    Read(u32),
}

impl WireOp<'_> {
    pub(super) fn check(
        &self,
        value: impl FnOnce(&Bytes) -> Result<Value, WireError>,
    ) -> Result<Op, WireError> {
        match self {
            Self::Append(bytes) => value(bytes).map(Op::Append),
            Self::Read(start) => Ok(Op::Read { start: Position::new(*start) }),
        }
    }

    fn within(&self, params: &Params) -> Result<Op, WireError> {
        self.check(|bytes| value_from_wire("value", bytes, params))
    }
}

macro_rules! op_of {
    ($oneof:path) => {
        impl From<&Op> for $oneof {
            fn from(op: &Op) -> Self {
                match op {
                    Op::Append(value) => Self::Append(v1::Append { value: value.to_bytes() }),
                    Op::Read { start } => Self::Read(v1::Read { start: start.get() }),
                }
            }
        }

        impl<'a> From<&'a $oneof> for WireOp<'a> {
            fn from(op: &'a $oneof) -> Self {
                type Wire = $oneof;
                match op {
                    Wire::Append(append) => Self::Append(&append.value),
                    Wire::Read(read) => Self::Read(read.start),
                }
            }
        }
    };
}

op_of!(v1::waiting_access::Op);
op_of!(v1::event::accepted::Op);

impl From<&RawOp> for v1::access::Op {
    fn from(op: &RawOp) -> Self {
        match op {
            RawOp::Append(value) => Self::Append(v1::Append { value: value.to_bytes() }),
            RawOp::Read(start) => Self::Read(v1::Read { start: start.get() }),
        }
    }
}

impl From<v1::access::Op> for RawOp {
    fn from(op: v1::access::Op) -> Self {
        match op {
            v1::access::Op::Append(append) => Self::Append(RawValue::new(&append.value)),
            v1::access::Op::Read(read) => Self::Read(Position::new(read.start)),
        }
    }
}

/// The frame of an access on this channel. The bytes of its append need not be a value: a Byzantine process
/// sends any.
#[must_use]
pub fn access_frame(channel: u32, number: AccessNumber, op: &RawOp) -> v1::ClientFrame {
    v1::Access { channel, number: number.get(), op: Some(op.into()) }.into()
}

/// The frame that reports a decision on this channel.
#[must_use]
pub fn decision_frame(channel: u32, value: &Value) -> v1::ClientFrame {
    v1::Decision { channel, value: value.to_bytes() }.into()
}

/// The access of a frame that `process` sent on its stream in `session`.
///
/// # Errors
/// When its number is 0, its operation is missing, or its value is none of the instance.
pub fn access_from_frame(
    number: Option<AccessNumber>,
    op: Option<RawOp>,
    process: ProcessId,
    session: SessionId,
    params: &Params,
) -> Result<Access, WireError> {
    let number = number.ok_or(WireError::Zero("number"))?;
    let op = op.ok_or(WireError::Missing("op"))?;
    let op = op.checked(params).map_err(|error| WireError::Value { field: "value", error })?;
    Ok(Access { process, session: Some(session), number, op, no_wait: false })
}

/// The decision of a frame.
///
/// # Errors
/// When it is empty or too large.
pub fn decision_from_frame(value: RawValue, params: &Params) -> Result<Value, WireError> {
    params.checked(value).map_err(|error| WireError::Value { field: "value", error })
}

/// The access of a unary append by `process`.
///
/// # Errors
/// When its number is 0 or its value is none of the instance.
pub fn access_from_append(
    request: &v1::AppendRequest,
    process: ProcessId,
    params: &Params,
) -> Result<Access, WireError> {
    let number = access_number("access_number", request.access_number)?;
    let op = Op::Append(value_from_wire("value", &request.value, params)?);
    Ok(Access { process, session: None, number, op, no_wait: request.no_wait })
}

/// The access of a unary read by `process`.
///
/// # Errors
/// When its number is 0.
pub fn access_from_read(request: &v1::ReadRequest, process: ProcessId) -> Result<Access, WireError> {
    let number = access_number("access_number", request.access_number)?;
    let op = Op::Read { start: Position::new(request.start) };
    Ok(Access { process, session: None, number, op, no_wait: request.no_wait })
}

/// A waiting access.
#[must_use]
pub fn waiting_to_wire(number: AccessNumber, op: &Op) -> v1::WaitingAccess {
    v1::WaitingAccess { number: number.get(), op: Some(op.into()) }
}

/// A waiting access of an instance.
///
/// # Errors
/// When its number is 0, its operation is missing, or its value is none of the instance.
pub fn waiting_from_wire(wire: &v1::WaitingAccess, params: &Params) -> Result<(AccessNumber, Op), WireError> {
    let number = access_number("waiting.number", wire.number)?;
    let op = wire.op.as_ref().ok_or(WireError::Missing("waiting.op"))?;
    Ok((number, WireOp::from(op).within(params)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::params::ParamsSpec;

    fn params() -> Params {
        Params::try_new(ParamsSpec { max_value_bytes: 4, ..ParamsSpec::new(2, 1, 1) }).unwrap()
    }

    fn append(value: &'static [u8]) -> v1::AppendRequest {
        v1::AppendRequest { access_number: 1, value: Bytes::from_static(value), ..Default::default() }
    }

    #[test]
    fn a_value_is_checked_against_the_instance() {
        let convert = |request| access_from_append(&request, ProcessId::FIRST, &params());
        assert!(convert(append(b"four")).is_ok());
        assert_eq!(
            convert(append(b"")).unwrap_err().to_string(),
            "value: the value is empty: give at least one byte"
        );
        let error = ValueError::TooLarge { length: 5, limit: 4 };
        assert_eq!(convert(append(b"fiver")), Err(WireError::Value { field: "value", error }));
    }

    #[test]
    fn access_number_0_is_missing() {
        let request = v1::AppendRequest { access_number: 0, ..append(b"v") };
        let refused = access_from_append(&request, ProcessId::FIRST, &params());
        assert_eq!(refused, Err(WireError::Zero("access_number")));
    }

    fn access_of_frame(number: u64, op: Option<RawOp>) -> Result<Access, WireError> {
        access_from_frame(AccessNumber::new(number), op, ProcessId::FIRST, SessionId::FIRST, &params())
    }

    #[test]
    fn a_frame_without_number_or_operation_is_refused() {
        assert_eq!(access_of_frame(1, None), Err(WireError::Missing("op")));
        let read = Some(RawOp::Read(Position::new(0)));
        assert_eq!(access_of_frame(0, read.clone()), Err(WireError::Zero("number")));
        assert!(access_of_frame(1, read).is_ok());
    }

    #[test]
    fn a_stream_refuses_the_values_that_a_call_refuses() {
        let five = RawValue::new(b"fiver");
        let error = ValueError::TooLarge { length: 5, limit: 4 };
        let refused = WireError::Value { field: "value", error };
        assert_eq!(access_of_frame(1, Some(RawOp::Append(five.clone()))), Err(refused.clone()));
        assert_eq!(decision_from_frame(five, &params()), Err(refused));
    }
}
