//! The files that a server reads from its disk, and the dump of it that others read.

use std::path::Path;

use prost::Message as _;
use stickycas_harness::dump::Dump;
use stickycas_harness::explain;
use stickycas_model::machine::Machine;
use stickycas_proto::convert::checkpoint::{checkpoint_from_wire, checkpoint_to_wire};
use stickycas_proto::convert::log::input_from_log;
use stickycas_proto::log::v1;
pub(super) use stickycas_server::fuzzing::{backup as recovery, stored_events};

use super::played::params;

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

/// The log that a released version wrote: whole, its first half, and each of its entries behind the header
/// alone.
pub(super) fn recovery_seeds() -> Vec<Vec<u8>> {
    let whole: &[u8] = include_bytes!("../../server/tests/logs/0.1.0.backup");
    let mut entries = Vec::new();
    let mut rest = whole;
    while let Ok(entry) = v1::BackupEntry::decode_length_delimited(&mut rest) {
        entries.push(entry.encode_length_delimited_to_vec());
    }
    let alone = |entry: &Vec<u8>| [entries[0].as_slice(), entry].concat();
    let mut seeds = vec![whole.to_vec(), whole[..whole.len() / 2].to_vec()];
    seeds.extend(entries.iter().filter(|entry| entry.len() < 4_096).map(alone).take(20));
    seeds
}

/// Instances of a dump that are taken can be replayed, judged and explained, whatever is in their histories.
pub(super) fn dump(bytes: &[u8]) {
    // The memory that an instance needs for its processes is no matter of the decoder.
    const MOST: u32 = 4_096;
    for instance in Dump::read_from(Path::new("some.dump"), bytes) {
        let Ok(instance) = instance else { return };
        if instance.record.scenario.params.processes() > MOST {
            continue;
        }
        let replayed = instance.replay();
        assert!(replayed.to_string().contains(&instance.id.to_string()));
        let explanation = instance.record.explained();
        assert!(
            !explain::text(
                &instance.record,
                &explanation,
                explain::ROWS,
                stickycas_harness::report::grid::WIDTH
            )
            .is_empty()
        );
    }
}

/// The instances of a dump of a released version.
pub(super) fn dump_seeds() -> Vec<Vec<u8>> {
    let mut rest: &[u8] = include_bytes!("../../server/tests/logs/0.1.0.dump");
    let mut seeds = Vec::new();
    while let Ok(instance) = v1::DumpedInstance::decode_length_delimited(&mut rest) {
        seeds.push(instance.encode_length_delimited_to_vec());
    }
    seeds
}
