//! Wire to model and model to wire, one file per subject.
//!
//! A conversion to the wire cannot fail. A conversion from the wire gives a [`WireError`] that names the field, and
//! never panics. Where it depends on the instance it takes the [`Params`](stickycas_model::params::Params): bytes are
//! a value only within the limit of the instance (P3).

use std::time::Duration;

use stickycas_model::params::{ParamsError, ValueError};
use stickycas_model::types::{AccessNumber, Phase, ProcessId, SessionId, WarpId};

pub mod access;
pub mod answer;
pub mod checkpoint;
pub mod client_frame;
mod frames;
pub mod history;
pub mod log;
pub mod member_state;
pub mod params;
pub mod report;
pub mod state;

/// Why a message is refused. Fields have the names of the .proto files.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A required field is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number that counts from 1 is 0.
    #[error("{0} is 0: it counts from 1")]
    Zero(&'static str),
    /// An enum field holds no value of the enum, or UNSPECIFIED where one is required.
    #[error("{field} = {value} has no meaning")]
    UnknownEnum {
        /// The field.
        field: &'static str,
        /// Its content.
        value: i32,
    },
    /// A duration is negative or not normalised.
    #[error("{0} is negative or not a duration")]
    Duration(&'static str),
    /// A field does not fit another one of its message.
    #[error("{field} {why}")]
    Contradiction {
        /// The field.
        field: &'static str,
        /// What is wrong with the field.
        why: &'static str,
    },
    /// Bytes are not a value of the instance (P3).
    #[error("{field}: {error}")]
    Value {
        /// The field.
        field: &'static str,
        /// What is wrong with the bytes.
        error: ValueError,
    },
    /// The text is not an instance id.
    #[error("instance_id: give 32 lowercase hex digits")]
    InstanceId,
    /// The text is not an instance name.
    #[error("name: give 1 to 64 letters, digits, '.', '_' or '-', and not 32 hex digits")]
    InstanceName,
    /// A parameter is out of its range (P4).
    #[error("parameters: {0}")]
    Params(#[from] ParamsError),
}

fn process(field: &'static str, number: u32) -> Result<ProcessId, WireError> {
    ProcessId::new(number).ok_or(WireError::Zero(field))
}

fn warp(field: &'static str, number: u32) -> Result<WarpId, WireError> {
    WarpId::new(number).ok_or(WireError::Zero(field))
}

fn phase(field: &'static str, number: u64) -> Result<Phase, WireError> {
    Phase::new(number).ok_or(WireError::Zero(field))
}

fn access_number(field: &'static str, number: u64) -> Result<AccessNumber, WireError> {
    AccessNumber::new(number).ok_or(WireError::Zero(field))
}

fn session(field: &'static str, number: u32) -> Result<SessionId, WireError> {
    SessionId::new(number).ok_or(WireError::Zero(field))
}

/// A duration on the wire. Saturates at the longest that fits.
#[must_use]
pub fn duration_to_wire(duration: Duration) -> prost_types::Duration {
    let nanos = i32::try_from(duration.subsec_nanos()).unwrap_or(i32::MAX);
    prost_types::Duration { seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), nanos }
}

/// A duration from the field of this name.
///
/// # Errors
/// If it is negative, or its nanoseconds are not below a second.
pub fn duration_from_wire(field: &'static str, wire: &prost_types::Duration) -> Result<Duration, WireError> {
    let seconds = u64::try_from(wire.seconds).map_err(|_| WireError::Duration(field))?;
    match u32::try_from(wire.nanos) {
        Ok(nanos) if nanos < 1_000_000_000 => Ok(Duration::new(seconds, nanos)),
        _ => Err(WireError::Duration(field)),
    }
}
