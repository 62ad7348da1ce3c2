//! What a server reads from its disk.

use std::sync::Arc;

use prost::Message;
use stickycas_model::machine::Machine;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_proto::convert::checkpoint::{checkpoint_from_wire, checkpoint_to_wire};
use stickycas_proto::convert::log::input_from_log;
use stickycas_proto::log::v1;

fn params() -> Arc<Params> {
    Arc::new(Params::try_new(ParamsSpec::new(4, 2, 4)).expect("they are within all bounds"))
}

/// Inputs that are taken can be given to a machine.
pub(super) fn batch(bytes: &[u8]) {
    let Ok(batch) = v1::Batch::decode(bytes) else { return };
    let params = params();
    let mut machine = Machine::new(params.clone());
    let mut events = Vec::new();
    for record in &batch.records {
        let Some(input) = &record.input else { continue };
        let Ok(input) = input_from_log(input, &params) else { continue };
        let now = machine.now();
        let _ = machine.apply(now, input, &mut events);
    }
}

/// A checkpoint that is taken becomes a machine whose checkpoint is the same.
pub(super) fn checkpoint(bytes: &[u8]) {
    let Ok(wire) = v1::Machine::decode(bytes) else { return };
    let Ok(checkpoint) = checkpoint_from_wire(&wire) else { return };
    let Ok(machine) = Machine::from_checkpoint(params(), checkpoint) else { return };
    let again = checkpoint_from_wire(&checkpoint_to_wire(&machine.checkpoint())).expect("it is our own");
    let restored = Machine::from_checkpoint(params(), again).expect("it is our own");
    assert_eq!(restored.checkpoint(), machine.checkpoint());
}

/// A backup, whose log is recovered.
pub(super) fn recovery(bytes: &[u8]) {
    stickycas_server::fuzzing::backup(bytes);
}
