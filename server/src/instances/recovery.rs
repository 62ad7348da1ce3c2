//! Recovery: the instances as the log has kept them (SPEC F3, F8a).
//!
//! Checkpoints come first, then the inputs behind them, which are replayed through the same machines that
//! took them. Each input is logged with its exact time and with a digest of its outcome. A replay that comes
//! to another digest would contradict what clients were told, so it stops: the log is damaged, or this
//! program follows other rules than the one that wrote it.

mod decode;
mod ordered_map;
mod replay;

use std::collections::{BTreeSet, HashMap};
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};
use std::{iter, mem};

use prost::DecodeError;
use stickycas_proto::convert::WireError;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::log::v1::{Batch, Record};
use stickycas_proto::names::InstanceId;

use self::decode::{Chunk, Decoded, DecodedChunk, Restored};
use self::ordered_map::{OrderedMap, map_in_order};
use super::Instances;
use super::config::{InstanceConfig, SharedConfig, nanos};
use super::instance::Instance;
use super::lifecycle::{Inner, Lifecycle};
use super::live::Live;
use super::shard::{ShardContext, ShardLost};
use crate::commit_log::engine::{Engine, EngineError, Stored};
use crate::commit_log::{Dirty, LogIndex, RULES};

/// Threads that decode, at most: one thread reads about as fast as two decode.
const MOST_THREADS: usize = 4;

/// The time between two reports of the progress of a recovery.
const TELL_EVERY: Duration = Duration::from_secs(3);

/// The reason for which a log cannot be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The engine cannot read.
    #[error("the log cannot be read: {0}")]
    Engine(EngineError),
    /// A program of other rules wrote the log.
    #[error(
        "batch {log_index} was written under version {rules} of the rules, and this program follows versions up to {RULES}: use the \
         stickycas-server that wrote it"
    )]
    Rules {
        /// The place of the batch.
        log_index: u64,
        /// The version.
        rules: u32,
    },
    /// Something in the log is not as it was written.
    #[error(
        "the log is damaged at {at}: {what}; nothing is served from it: restore a backup (stickycas-server data)"
    )]
    Damaged {
        /// The place of the damage.
        at: String,
        /// The damage.
        what: String,
    },
    /// The server owns the shard no more: the rest of its log is not read.
    #[error("the server has lost the shard")]
    Lost,
}

impl From<ShardLost> for RecoveryError {
    fn from(_: ShardLost) -> Self {
        Self::Lost
    }
}

/// The instances of a log to recover: all, or those of one of so many parts, since a log may be larger than
/// the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) index: u64,
    pub(crate) of: u64,
}

impl Part {
    pub(crate) const ALL: Self = Self { index: 0, of: 1 };

    /// Whether the instance with this number is one of them.
    fn has(self, number: u64) -> bool {
        number % self.of == self.index
    }
}

/// The result of a recovery.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// The last batch.
    pub(crate) last: LogIndex,
    /// The time for which instances had been served when it was written (F3).
    pub(crate) served: Duration,
    /// Batches that were replayed.
    pub(crate) batches: u64,
    /// Inputs that were replayed.
    pub(crate) records: u64,
    /// Instances that are there.
    pub(crate) instances: usize,
    /// Those of which the log has records that no checkpoint covers, and all that the restart changes.
    pub(crate) dirty: Vec<Dirty>,
}

/// See the module.
pub(crate) struct Recovery<'a> {
    instances: &'a Instances,
    shard: &'a Arc<ShardContext>,
    part: Part,
    known: HashMap<u64, Known>,
    /// Instances with records in the log, but without a creation or a checkpoint before them. Their expiry
    /// must follow: the records are the rest of an instance that is gone.
    partial: BTreeSet<u64>,
    /// Instances of which the log has records.
    in_tail: BTreeSet<u64>,
    /// All instances that have not ended, and some that have: see [`Self::each_not_ended`].
    not_ended: BTreeSet<u64>,
    /// The configuration of the last instance whose creation was replayed.
    last_config: Option<Arc<SharedConfig>>,
    /// Places since the last restart of which batches told that all effects had left, ascending, and how long
    /// instances had been served then.
    released: Vec<(LogIndex, u64)>,
    recovered: Recovered,
    /// The length of the file that is read, if it is one. Not all of it is in use.
    file_bytes: Option<u64>,
    /// Bytes that were read.
    read: u64,
    /// The moment of the last report of the progress.
    told: Instant,
}

/// An instance that was found in the log.
struct Known {
    instance: Arc<Instance>,
    /// The batch and the number of its records up to which a checkpoint covers the instance.
    covered: (u64, u32),
}

impl<'a> Recovery<'a> {
    /// Reads everything that the engine has kept of this shard. The server may serve others meanwhile. If it
    /// loses this one, it reads no further. `file_bytes`: the length of its file, if it has one. `part`: of
    /// these instances alone.
    ///
    /// # Errors
    /// The reason for which nothing may be served from it.
    pub(crate) fn run(
        instances: &'a Instances,
        shard: &'a Arc<ShardContext>,
        engine: &dyn Engine,
        file_bytes: Option<u64>,
        part: Part,
    ) -> Result<Recovered, RecoveryError> {
        let _running = shard.begin_recovery()?;
        let recovery = Self {
            instances,
            shard,
            part,
            known: HashMap::new(),
            partial: BTreeSet::new(),
            in_tail: BTreeSet::new(),
            not_ended: BTreeSet::new(),
            last_config: None,
            released: Vec::new(),
            recovered: Recovered::default(),
            file_bytes,
            read: 0,
            told: Instant::now(),
        };
        // A simulation has one thread.
        let cores = || available_parallelism().map_or(1, NonZero::get);
        let threads = if engine.blocks() { cores().min(MOST_THREADS) } else { 0 };
        let decode = |chunk: Chunk| chunk.decode(instances, shard);
        map_in_order(threads, decode, |decoding| recovery.read(engine, decoding))
    }

    fn read(
        mut self,
        engine: &dyn Engine,
        decoding: &mut OrderedMap<'_, Chunk, DecodedChunk>,
    ) -> Result<Recovered, RecoveryError> {
        let read = self.read_all(engine, decoding);
        // Also if the shard cannot be served: it is dropped then, with all that was found.
        let mut waiting = 0;
        self.each_not_ended(|_, inner| waiting += inner.live().map_or(0, |live| live.machine.waiting()));
        self.instances.context.steps.restore_waiting(waiting);
        read.map(|()| self.recovered)
    }

    /// Reads on while earlier chunks are decoded. Everything is taken in the order in which it was read, so
    /// of several faults the first is told.
    fn read_all(
        &mut self,
        engine: &dyn Engine,
        decoding: &mut OrderedMap<'_, Chunk, DecodedChunk>,
    ) -> Result<(), RecoveryError> {
        let (mut chunk, mut stopped) = (Chunk::default(), None);
        let read = engine.read(&mut |stored| {
            self.tell_progress(&stored);
            if matches!(stored, Stored::Checkpoint(number, _) if !self.part.has(number)) {
                return Ok(());
            }
            chunk.add(stored);
            if !chunk.is_full() {
                return Ok(());
            }
            let taken = decoding.push(mem::take(&mut chunk)).map_or(Ok(()), |decoded| self.take(decoded));
            taken.map_err(|error| {
                let why = EngineError::failed(error.to_string());
                stopped = Some(error);
                why
            })
        });
        if let Some(error) = stopped {
            return Err(error);
        }
        let decoded = decoding.push(chunk);
        for decoded in decoded.into_iter().chain(iter::from_fn(|| decoding.pop())) {
            self.take(decoded)?;
        }
        read.map_err(RecoveryError::Engine)?;
        self.finish()
    }

    /// For the log of the program.
    fn tell_progress(&mut self, stored: &Stored<'_>) {
        let (Stored::Checkpoint(_, bytes) | Stored::Batch(_, bytes)) = stored;
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            let (instances, batches, read) = (self.known.len(), self.recovered.batches, self.read);
            let of = self.file_bytes.map_or_else(String::new, |all| format!(" of a file of {all}"));
            tracing::info!("recovering: {instances} instances, {batches} batches so far, {read} bytes{of}");
        }
        self.read += bytes.len() as u64;
    }

    fn take(&mut self, decoded: DecodedChunk) -> Result<(), RecoveryError> {
        for decoded in decoded {
            self.shard.check_owned()?;
            match decoded {
                Decoded::Checkpoint(number, Ok(restored)) => self
                    .restore(number, restored)
                    .map_err(|what| damaged(format!("the checkpoint of instance {number}"), &what))?,
                Decoded::Checkpoint(number, Err(what)) => {
                    return Err(damaged(format!("the checkpoint of instance {number}"), &what));
                }
                Decoded::Batch(log_index, batch) => self.replay(log_index, batch)?,
            }
        }
        Ok(())
    }

    /// The error says what is wrong with it.
    fn restore(
        &mut self,
        number: u64,
        Restored { instance, covered, name_taken }: Restored,
    ) -> Result<(), String> {
        self.add(number, instance.clone(), covered)?;
        if name_taken {
            self.instances.registry_mut().release_name(&instance);
        }
        Ok(())
    }

    /// Registers an instance of which everything before this place is known.
    fn add(&mut self, number: u64, instance: Arc<Instance>, covered: (u64, u32)) -> Result<(), String> {
        self.check_shard(&instance)?;
        if self.instances.adopt(&instance) {
            self.not_ended.insert(number);
        }
        self.known.insert(number, Known { instance, covered });
        Ok(())
    }

    /// Does this with each instance that has not ended.
    fn each_not_ended(&mut self, mut act: impl FnMut(&Known, &mut Inner)) {
        self.not_ended.retain(|number| {
            let Some(known) = self.known.get(number) else { return false };
            let inner = &mut *known.instance.lock();
            let is_live = !inner.has_ended();
            if is_live {
                act(known, inner);
            }
            is_live
        });
    }

    /// Whether the instance belongs to the shard in whose log it was found.
    fn check_shard(&self, instance: &Instance) -> Result<(), String> {
        let (id, found, here) = (instance.config.id, self.shard.key, &self.instances.placement);
        let key = here.shard_of(id);
        if key != found {
            return Err(format!("instance {id} belongs to shard {}, and this is {}", key.0, found.0));
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RecoveryError> {
        if let Some(number) = self.partial.first() {
            let what = format!(
                "instances have records but no beginning, {number} first ({} in all)",
                self.partial.len()
            );
            return Err(damaged("the end".to_owned(), &what));
        }
        let covered = self.known.values().map(|known| known.covered.0).max().unwrap_or(0);
        let last = self.recovered.last.get();
        if covered > last {
            let what = format!("the last batch is {last}, and a checkpoint covers batch {covered}");
            return Err(damaged("the end".to_owned(), &what));
        }
        let (released, served) = (mem::take(&mut self.released), self.recovered.served);
        self.each_not_ended(|_, inner| inner.resume_released(&released, served));
        self.recovered.instances = self.known.len();
        // An instance that is gone is found under no id.
        let id =
            |number| self.known.get(number).map_or(InstanceId::new(0), |known| known.instance.config().id);
        let dirty = self.in_tail.union(&self.not_ended);
        self.recovered.dirty = dirty.map(|number| Dirty { number: *number, instance: id(number) }).collect();
        Ok(())
    }

    fn replay(&mut self, log_index: u64, batch: Result<Batch, DecodeError>) -> Result<(), RecoveryError> {
        let last = self.recovered.last;
        if last != LogIndex::START && log_index != last.next().get() {
            return Err(damaged(format!("batch {log_index}"), &format!("the batch before it is {last}")));
        }
        let batch = batch.map_err(|error| damaged(format!("batch {log_index}"), &error.to_string()))?;
        if !(1..=RULES).contains(&batch.rules) {
            return Err(RecoveryError::Rules { log_index, rules: batch.rules });
        }
        self.recovered.served = Duration::from_nanos(batch.served_nanos);
        let released = LogIndex::new(batch.released_place);
        if released > self.released.last().map_or(LogIndex::START, |(last, _)| *last) {
            self.released.push((released, batch.released_nanos));
        }
        for (index, record) in (0..).zip(&batch.records) {
            self.record((log_index, index), record).map_err(|what| {
                damaged(format!("batch {log_index}, record {index}, instance {}", record.instance), &what)
            })?;
        }
        self.recovered.last = LogIndex::new(log_index);
        self.recovered.batches += 1;
        self.recovered.records += batch.records.len() as u64;
        Ok(())
    }

    /// Replays one record. The error says what is wrong with it.
    fn record(&mut self, at: (u64, u32), record: &Record) -> Result<(), String> {
        let input = record.input.as_ref().ok_or("it has no input")?;
        if record.instance != 0 {
            if !self.part.has(record.instance) {
                return Ok(());
            }
            self.in_tail.insert(record.instance);
            // No number is given twice while the log knows it.
            self.shard.skip_number(record.instance);
        }
        match input {
            Input::Restart(_) => {
                let served = self.recovered.served;
                self.each_not_ended(|known, inner| {
                    if known.covered <= at {
                        known.replay_restart(inner, served);
                    }
                });
                self.released.clear();
                Ok(())
            }
            Input::Created(created) if !self.known.contains_key(&record.instance) => {
                let (last, intern) = (&mut self.last_config, |config| self.instances.intern(config));
                let config =
                    InstanceConfig::from_log(record.instance, created, last, intern).map_err(text)?;
                let live = Lifecycle::Live(Box::new(Live::new(&config, self.shard)));
                let instance = self.shard.recovered(config, live, self.recovered.served);
                self.add(record.instance, instance, at)
            }
            Input::Expired(_) => {
                // Of an instance that is not known its checkpoint is removed and its beginning trimmed.
                self.partial.remove(&record.instance);
                let is_covered = self.known.get(&record.instance).is_some_and(|known| at < known.covered);
                if !is_covered && let Some(known) = self.known.remove(&record.instance) {
                    self.instances.remove(&known.instance);
                }
                Ok(())
            }
            input => {
                let Some(known) = self.known.get(&record.instance) else {
                    self.partial.insert(record.instance);
                    return Ok(());
                };
                if at < known.covered {
                    return Ok(());
                }
                known.replay(LogIndex::new(at.0), record, input, self.recovered.served)
            }
        }
    }
}

fn damaged(at: String, what: &str) -> RecoveryError {
    RecoveryError::Damaged { at, what: what.to_owned() }
}

fn text(error: impl Into<WireError>) -> String {
    let error: WireError = error.into();
    error.to_string()
}

impl ShardContext {
    /// An instance that was found in the log. `served`: how long instances had been served when it was as it
    /// is.
    fn recovered(
        self: &Arc<Self>,
        config: InstanceConfig,
        lifecycle: Lifecycle,
        served: Duration,
    ) -> Arc<Instance> {
        let mut instance = Instance::with(config, self.clone(), lifecycle);
        let inner = instance.inner.get_mut().expect("nobody else has it");
        if inner.is_closed() {
            self.server.count_closed();
        }
        let latest = inner.latest();
        inner.resume(latest, nanos(served));
        inner.archive_if_idle(&instance.config, latest);
        Arc::new(instance)
    }
}

#[cfg(test)]
mod served_time;
#[cfg(test)]
mod tests;
