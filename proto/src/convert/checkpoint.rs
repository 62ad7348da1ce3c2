//! stub
use super::WireError;
use crate::log::v1::Machine;
use stickycas_model::machine::Checkpoint;
use stickycas_model::params::Params;
/// stub
pub fn machine_to_log(_: &Checkpoint) -> Machine {
    Machine {}
}
/// stub
/// # Errors
pub fn machine_from_log(_: &Machine, _: &Params) -> Result<Checkpoint, WireError> {
    Err(WireError::InstanceId)
}
