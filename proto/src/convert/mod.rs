//! Wire to model and model to wire, one file per subject.
//!
//! A conversion to the wire cannot fail. A conversion from the wire gives a [`WireError`] that names the
//! field, and never panics. Where it depends on the instance it takes the
//! [`Params`](stickycas_model::params::Params): bytes are a value only within the limit of the instance (P3).

use std::time::Duration;

use stickycas_model::types::{AccessNumber, Phase, ProcessId, SessionId, WarpId};

pub mod access;
pub mod answer;
pub mod checkpoint;
pub mod client_frame;
pub mod history;
pub mod log;
pub mod member_state;
pub mod params;
pub mod report;
pub mod state;

use crate::v1::{
    self, Access, Answer, ClientFrame, Decided, Decision, Hello, Refusal, Replaced, ServerFrame, Welcome,
};
pub use crate::wire_error::WireError;

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

/// Each kind of frame of a client as a frame of Attach; which kinds the generated types box is known here
/// only.
macro_rules! client_frame {
    ($($kind:ident)+) => {
        $(impl From<$kind> for ClientFrame {
            fn from(frame: $kind) -> Self {
                Self { frame: Some(v1::client_frame::Frame::$kind(frame)) }
            }
        })+
    };
}

/// Each kind of frame of a server, likewise.
macro_rules! server_frame {
    ($($kind:ident)+) => {
        $(impl From<$kind> for ServerFrame {
            fn from(frame: $kind) -> Self {
                Self { frame: Some(v1::server_frame::Frame::$kind(frame.into())) }
            }
        })+
    };
}

client_frame! { Access Hello Decision }
server_frame! { Answer Welcome Refusal Decided Replaced }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_rare_frame_makes_every_frame_large() {
        assert!(size_of::<ServerFrame>() <= size_of::<Answer>() + 16, "{}", size_of::<ServerFrame>());
        assert!(size_of::<ClientFrame>() <= size_of::<Access>() + 16, "{}", size_of::<ClientFrame>());
    }
}
