//! Where an instance is in its life (SPEC F10).

use stickycas_model::machine::State;

use super::WireError;
use crate::v1;

/// To the wire.
#[must_use]
pub const fn state_to_wire(state: State) -> v1::State {
    match state {
        State::Gathering => v1::State::Gathering,
        State::Running => v1::State::Running,
        State::Finished => v1::State::Finished,
        State::Closed => v1::State::Closed,
    }
}

/// From the number on the wire.
///
/// # Errors
/// If no state has it.
pub fn state_from_wire(value: i32) -> Result<State, WireError> {
    match v1::State::try_from(value).unwrap_or(v1::State::Unspecified) {
        v1::State::Unspecified => Err(WireError::UnknownEnum { field: "state", value }),
        v1::State::Gathering => Ok(State::Gathering),
        v1::State::Running => Ok(State::Running),
        v1::State::Finished => Ok(State::Finished),
        v1::State::Closed => Ok(State::Closed),
    }
}
