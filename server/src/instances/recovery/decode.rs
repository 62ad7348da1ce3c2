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
use super::super::archive::Archived;
use super::super::config::{InstanceConfig, SharedConfig};
use super::super::instance::Instance;
use super::super::lifecycle::Lifecycle;
use super::super::live::Live;
use super::super::shard::ShardContext;
use super::text;
use crate::commit_log::engine::Stored;
use crate::commit_log::{LogIndex, RULES};
use crate::event_log::ArchivedEvents;

/// Bytes from which on a chunk is full: enough that passing it to another thread costs little; in tests so
/// few that there are several.
const CHUNK: usize = if cfg!(test) { 1024 } else { 256 * 1024 };

/// Checkpoints and batches in the order in which they were read, which are decoded together.
#[derive(Default)]
pub(super) struct Chunk {
    /// Each with its length in `bytes`.
    values: Vec<(RecordKind, u64, usize)>,
    bytes: Vec<u8>,
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
        self.bytes.extend_from_slice(bytes);
        self.values.push((kind, key, bytes.len()));
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= CHUNK
    }

    pub(super) fn decode(self, instances: &Instances, shard: &Arc<ShardContext>) -> DecodedChunk {
        let (mut last_config, mut bytes) = (None, Bytes::from(self.bytes));
        let decoded = self.values.into_iter().map(|(kind, key, length)| {
            let bytes = bytes.split_to(length);
            match kind {
                RecordKind::Checkpoint => {
                    Decoded::Checkpoint(key, restore(instances, shard, &mut last_config, key, bytes))
                }
                RecordKind::Batch => Decoded::Batch(key, Batch::decode(bytes)),
            }
        });
        decoded.collect()
    }
}

/// The instance of this checkpoint, which is not registered yet. The error says what is wrong with it.
fn restore(
    instances: &Instances,
    shard: &Arc<ShardContext>,
    last_config: &mut Option<Arc<SharedConfig>>,
    number: u64,
    bytes: Bytes,
) -> Result<Restored, String> {
    let mut checkpoint = Checkpoint::decode(bytes).map_err(|error| error.to_string())?;
    if !(1..=RULES).contains(&checkpoint.rules) {
        let rules = checkpoint.rules;
        return Err(format!(
            "it was written under version {rules} of the rules, and this program follows versions up to {RULES}"
        ));
    }
    let created = checkpoint.created.as_ref().ok_or("it does not say how the instance was created")?;
    let intern = |config| instances.intern(config);
    let config = InstanceConfig::from_log(number, created, last_config, intern).map_err(text)?;
    let lifecycle = lifecycle(&mut checkpoint, &config, shard)?;
    let served = Duration::from_nanos(checkpoint.served_nanos);
    Ok(Restored {
        instance: shard.recovered(config, lifecycle, served),
        covered: (checkpoint.place, checkpoint.records),
        name_taken: checkpoint.name_taken,
    })
}

fn lifecycle(
    checkpoint: &mut Checkpoint,
    config: &InstanceConfig,
    shard: &ShardContext,
) -> Result<Lifecycle, String> {
    let Some(archive) = checkpoint.archive.take() else {
        return Ok(Lifecycle::Live(Box::new(live(checkpoint, config, shard)?)));
    };
    let ended = checkpoint.ended_nanos.ok_or("it has an archive, and the instance has not ended")?;
    let forgotten = Phase::new(checkpoint.forgotten_phase);
    let archived = ArchivedEvents { first: checkpoint.first_index, forgotten, archive };
    Archived::from_log(archived, Time::from_nanos(ended), config, shard).map(Lifecycle::Archived)
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
