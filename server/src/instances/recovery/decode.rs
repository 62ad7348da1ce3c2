//! The decoding of checkpoints and batches: the part of a recovery that depends on nothing else in the log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::{DecodeError, Message as _};
use stickycas_model::machine::Machine;
use stickycas_model::types::{Phase, Time};
use stickycas_proto::convert::checkpoint::checkpoint_from_wire;
use stickycas_proto::convert::history::event_from_wire;
use stickycas_proto::log::v1::{Batch, Checkpoint};

use super::super::Instances;
use super::super::config::InstanceConfig;
use super::super::instance::Instance;
use super::super::live::Live;
use super::super::shard::ShardContext;
use super::text;
use crate::commit_log::engine::Stored;
use crate::commit_log::{LogIndex, RULES};

/// Bytes from which on a chunk is full: enough that passing it to another thread costs little; in tests so
/// few that there are several.
const CHUNK: usize = if cfg!(test) { 1024 } else { 256 * 1024 };

/// Checkpoints and batches in the order in which they were read, which are decoded together.
#[derive(Default)]
pub(super) struct Chunk {
    values: Vec<(RecordKind, u64, Bytes)>,
    bytes: usize,
}

#[derive(Clone, Copy)]
enum RecordKind {
    Checkpoint,
    Batch,
}

pub(super) type DecodedChunk = Vec<Decoded>;

/// A value of a [`Chunk`], decoded; or what is wrong with it.
pub(super) enum Decoded {
    /// The instance with this number.
    Checkpoint(u64, Result<Restored, String>),
    /// The batch at this place.
    Batch(u64, Result<Batch, DecodeError>),
}

/// An instance as its checkpoint has it.
pub(super) struct Restored {
    pub(super) instance: Arc<Instance>,
    /// The batch and the number of its records up to which the checkpoint covers the instance.
    pub(super) covered: (u64, u32),
    /// Whether another instance has taken its name.
    pub(super) name_taken: bool,
}

impl Chunk {
    pub(super) fn add(&mut self, stored: Stored<'_>) {
        let (kind, key, bytes) = match stored {
            Stored::Checkpoint(number, bytes) => (RecordKind::Checkpoint, number, bytes),
            Stored::Batch(log_index, bytes) => (RecordKind::Batch, log_index, bytes),
        };
        self.bytes += bytes.len();
        self.values.push((kind, key, Bytes::copy_from_slice(bytes)));
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= CHUNK
    }

    pub(super) fn decode(self, instances: &Instances, shard: &Arc<ShardContext>) -> DecodedChunk {
        let decoded = self.values.into_iter().map(|(kind, key, bytes)| match kind {
            RecordKind::Checkpoint => Decoded::Checkpoint(key, restore(instances, shard, key, bytes)),
            RecordKind::Batch => Decoded::Batch(key, Batch::decode(bytes)),
        });
        decoded.collect()
    }
}

/// The instance of this checkpoint, which is not registered yet. The error says what is wrong with it.
fn restore(
    instances: &Instances,
    shard: &Arc<ShardContext>,
    number: u64,
    bytes: Bytes,
) -> Result<Restored, String> {
    let checkpoint = Checkpoint::decode(bytes).map_err(|error| error.to_string())?;
    if checkpoint.rules != RULES {
        return Err(format!(
            "it was written under version {} of the rules, and this is {RULES}",
            checkpoint.rules
        ));
    }
    let created = checkpoint.created.as_ref().ok_or("it does not say how the instance was created")?;
    let config =
        InstanceConfig::from_log(number, created, |config| instances.intern(config)).map_err(text)?;
    let live = live(&checkpoint, &config, shard)?;
    let served = Duration::from_nanos(checkpoint.served_nanos);
    Ok(Restored {
        instance: shard.recovered(config, live, served),
        covered: (checkpoint.place, checkpoint.records),
        name_taken: checkpoint.name_taken,
    })
}

fn live(checkpoint: &Checkpoint, config: &InstanceConfig, shard: &ShardContext) -> Result<Live, String> {
    let machine = checkpoint.machine.as_ref().ok_or("it holds no machine")?;
    let machine = checkpoint_from_wire(machine).map_err(text)?;
    let params = Arc::new(config.params());
    let machine = Machine::from_checkpoint(params, machine).map_err(|error| error.to_string())?;
    let events = checkpoint.events.iter().map(|event| event_from_wire(event).map(|(_, recorded)| recorded));
    let events = events.collect::<Result<Vec<_>, _>>().map_err(text)?;
    let mut live = Live::with_machine(machine, config, shard);
    live.events.restore(checkpoint.first_index, Phase::new(checkpoint.forgotten_phase), events.into_iter());
    live.ended = checkpoint.ended_nanos.map(Time::from_nanos);
    live.latest = Time::from_nanos(checkpoint.at_nanos);
    live.touched = live.latest;
    live.stopped_until =
        Some(LogIndex::new(checkpoint.stopped_place)).filter(|log_index| *log_index > LogIndex::START);
    Ok(live)
}
