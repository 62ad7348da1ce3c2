//! The engine of a shard: batches go through the fenced commit of the server's [`Committer`], which sends
//! those of several shards in one transaction.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use prost::Message as _;
use stickycas_cluster::committer::{Committer, LogWrite, NameChange, Outcome as WriteOutcome};
use stickycas_cluster::confirm::{Confirmation, EpochConfirmer};
use stickycas_cluster::keys::{Epoch, LogIndex};
use stickycas_cluster::read::Stored as Read;
use stickycas_cluster::shard::ShardId;
use stickycas_proto::log::v1::Batch;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::futures::OwnedNotified;

use crate::commit_log::engine::{self, Done, Engine, EngineError, Outcome, StoreUsage, Stored, WriteBatch};
use crate::commit_log::{DurableLog, expired};
use crate::gate::{Lost, Ownership};
use crate::instances::{Instances, ShardKey, owner_lost};

/// Batches of a shard that are under way at once. A second one would depend on the first, and a member of
/// etcd does not execute transactions in the order in which they come: one that is too early is refused, and
/// each refusal costs a transaction of its own. So the steps gather in the next batch meanwhile; batches of
/// other shards do not wait.
const DEPTH: usize = 1;
/// The same while the store is full: new instances in the steps that gather are refused, and do not wait for
/// space.
const DEPTH_FULL: usize = 8;

/// One ownership of a shard, with the means to write and to confirm that the ownership goes on.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) committer: Committer,
    pub(super) confirmer: EpochConfirmer,
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owned")
            .field("shard", &self.shard)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl Owned {
    pub(super) fn key(&self) -> ShardKey {
        ShardKey(self.shard.get())
    }
}

impl Ownership for Owned {
    fn ask(&self) -> u64 {
        self.confirmer.ask()
    }

    fn outcome(&self, read: u64) -> Option<Result<(), RpcRefusal>> {
        Some(match self.confirmer.outcome(read)? {
            Confirmation::Confirmed => Ok(()),
            Confirmation::Deposed | Confirmation::NotConfirmed => Err(owner_lost(self.key())),
        })
    }

    fn read_ended(&self) -> OwnedNotified {
        self.confirmer.told()
    }

    fn on_lost(&self, lost: Lost) {
        let key = self.key();
        self.confirmer.on_end(Box::new(move || lost(&owner_lost(key))));
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct ShardEngine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    owned: Owned,
    instances: Weak<Instances>,
    /// The log that writes here.
    log: OnceLock<Weak<DurableLog>>,
    /// The records that were read when the shard was taken, until the recovery reads them, once.
    found: Mutex<Vec<Read>>,
    held: Mutex<Held>,
}

/// The bytes of the shard in etcd.
#[derive(Debug, Default)]
struct Held {
    batches: VecDeque<(u64, usize)>,
    checkpoints: HashMap<u64, usize>,
    usage: StoreUsage,
}

impl Held {
    fn add_batch(&mut self, log_index: u64, bytes: usize) {
        self.batches.push_back((log_index, bytes));
        self.usage.batches += bytes as u64;
    }

    fn set_checkpoint(&mut self, number: u64, bytes: Option<usize>) {
        let before = match bytes {
            Some(bytes) => self.checkpoints.insert(number, bytes),
            None => self.checkpoints.remove(&number),
        };
        self.usage.replace_checkpoint(before, bytes);
    }

    fn commit(&mut self, write: &LogWrite) {
        self.add_batch(write.log_index.0, write.batch.len());
        for (number, state) in &write.checkpoints {
            self.set_checkpoint(*number, state.as_ref().map(Bytes::len));
        }
        while let Some(trim) = write.trim
            && let Some((_, bytes)) = self.batches.pop_front_if(|(log_index, _)| *log_index < trim.0)
        {
            self.usage.batches -= bytes as u64;
        }
    }
}

impl ShardEngine {
    /// An engine of a shard of which this was read.
    pub(super) fn new(owned: Owned, instances: &Arc<Instances>, found: Vec<Read>) -> Self {
        let mut held = Held::default();
        for found in &found {
            match found {
                Read::Checkpoint(number, state) => held.set_checkpoint(*number, Some(state.len())),
                Read::Batch(log_index, batch) => held.add_batch(log_index.0, batch.len()),
            }
        }
        let (instances, found, held) = (Arc::downgrade(instances), Mutex::new(found), Mutex::new(held));
        Self(Arc::new(Inner { owned, instances, log: OnceLock::new(), found, held }))
    }

    /// The log that writes here.
    pub(super) fn set_log(&self, log: &Arc<DurableLog>) {
        let _ = self.0.log.set(Arc::downgrade(log));
    }
}

impl Engine for ShardEngine {
    fn depth(&self) -> usize {
        if self.0.owned.committer.is_full() { DEPTH_FULL } else { DEPTH }
    }

    fn blocks(&self) -> bool {
        false
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let WriteBatch { log_index, batch, checkpoints, trim, mut names } = batch;
        let mut write = LogWrite {
            log_index: LogIndex(log_index),
            batch: batch.into(),
            checkpoints: checkpoints
                .into_iter()
                .map(|(number, state)| (number, state.map(Bytes::from)))
                .collect(),
            trim: trim.map(|trim| LogIndex(trim.min(log_index))),
            names: names.iter().map(to_change).collect(),
            is_given_back_when_full: true,
        };
        if self.0.owned.committer.is_full() {
            self.0.await_space(&mut write, &mut names);
        }
        // Handed over before this returns: writes are sent in the order of their places.
        let outcome = self.0.send(&write);
        let inner = self.0.clone();
        tokio::spawn(async move { done(inner.resolve(write, names, outcome).await) });
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        let found = std::mem::take(&mut *self.0.found.lock().unwrap_or_else(PoisonError::into_inner));
        found.into_iter().try_for_each(|found| match found {
            Read::Checkpoint(number, state) => visit(Stored::Checkpoint(number, &state)),
            Read::Batch(log_index, batch) => visit(Stored::Batch(log_index.0, &batch)),
        })
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        Err(EngineError::failed("a shard has no identity of its own"))
    }

    fn usage(&self) -> StoreUsage {
        self.0.held().usage
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, write: &LogWrite) -> impl Future<Output = WriteOutcome> + Send + use<> {
        let Owned { shard, epoch, committer, .. } = &self.owned;
        committer.write(*shard, *epoch, write.clone())
    }

    /// The outcome of a write. If a name prevents it, it is sent again with the change of that name corrected
    /// or left out.
    async fn resolve(
        &self,
        mut write: LogWrite,
        mut names: Vec<engine::NameChange>,
        outcome: impl Future<Output = WriteOutcome> + Send,
    ) -> Outcome {
        let mut outcome = outcome.await;
        loop {
            match outcome {
                WriteOutcome::Committed => {
                    self.held().commit(&write);
                    return Outcome::Committed;
                }
                WriteOutcome::NoSpace => {
                    self.await_space(&mut write, &mut names);
                    outcome = self.send(&write).await;
                }
                WriteOutcome::NameTaken { name, holder } => {
                    if let Err(why) = self.yield_name(&mut write, &mut names, &name, holder) {
                        tracing::error!(shard = %self.owned.shard, why, "a batch cannot be written");
                        return self.lost();
                    }
                    outcome = self.send(&write).await;
                }
                WriteOutcome::Refused(why) => {
                    tracing::error!(shard = %self.owned.shard, why, "a batch cannot be written");
                    return self.lost();
                }
                WriteOutcome::Deposed(_) | WriteOutcome::Closed => return self.lost(),
            }
        }
    }

    fn lost(&self) -> Outcome {
        Outcome::Refused(Box::new(owner_lost(self.owned.key())))
    }

    /// The write is to wait for space; the instances that it would create do not, and are refused.
    fn await_space(&self, write: &mut LogWrite, names: &mut Vec<engine::NameChange>) {
        write.is_given_back_when_full = false;
        let log = self.log.get().and_then(Weak::upgrade);
        let (Some(log), Ok(mut batch)) = (log, Batch::decode(&*write.batch)) else { return };
        let created = batch.records.iter().filter_map(|record| match &record.input {
            Some(Input::Created(created)) => {
                let id = <[u8; 16]>::try_from(&*created.id).ok()?;
                Some((record.instance, InstanceId::new(u128::from_be_bytes(id))))
            }
            _ => None,
        });
        let created: BTreeMap<u64, InstanceId> = created.collect();
        if !created.is_empty() {
            let is_refused = |number: &u64| created.contains_key(number);
            batch.records.iter_mut().filter(|record| is_refused(&record.instance)).for_each(|record| {
                *record = expired(record.instance);
            });
            write.batch = batch.encode_to_vec().into();
            write.checkpoints.retain(|(number, _)| !is_refused(number));
            let stays: Vec<bool> = names.iter().map(|change| !is_refused(&change.number)).collect();
            let mut stay = stays.iter().copied();
            names.retain(|_| stay.next().unwrap_or(true));
            let mut stay = stays.into_iter();
            write.names.retain(|_| stay.next().unwrap_or(true));
        }
        if let Some(instances) = self.instances.upgrade() {
            let why = || instances.placement().no_space().unwrap_or_else(|| "etcd is full".to_owned());
            for (number, instance) in created {
                log.refuse_creation(instance, number, instances.refused_for_space(why()));
            }
        }
        // Behind it there may be others.
        log.wake();
    }

    /// Another instance holds this name, or none does. An instance that expires has nothing to release then.
    /// A closed instance gives its name up, and may expire before that is committed. Else the instance that
    /// claims the name is not created.
    fn yield_name(
        &self,
        write: &mut LogWrite,
        names: &mut Vec<engine::NameChange>,
        name: &str,
        holder: Option<Bytes>,
    ) -> Result<(), String> {
        let at = names
            .iter()
            .position(|change| change.name.as_str() == name)
            .ok_or("it does not have the name")?;
        let change = names[at].clone();
        if change.is_claim && holder.is_none() && write.names[at].before.is_some() {
            // The closed instance that gave the name up has expired.
            write.names[at].before = None;
            return Ok(());
        }
        if change.is_claim
            && let Some(held_by) = holder.as_deref().and_then(InstanceId::from_hex)
            && let Some(instances) = self.instances.upgrade()
            && instances.gives_up_name(held_by, &change.name)
        {
            write.names[at].before = holder;
            return Ok(());
        }
        names.remove(at);
        write.names.remove(at);
        if change.is_claim {
            write.batch = without_creation(&write.batch, change.number)?;
            write.checkpoints.retain(|(number, _)| *number != change.number);
            if let Some(log) = self.log.get().and_then(Weak::upgrade) {
                log.refuse_creation(change.instance, change.number, name_taken(&change.name));
            }
        }
        Ok(())
    }
}

/// The batch without the instance with this number, whose creation is in it. In the place of each of its
/// records stands that of its end: checkpoints of others cover so many records of the batch, and it has as
/// many as before.
fn without_creation(batch: &[u8], number: u64) -> Result<Bytes, String> {
    let mut batch = Batch::decode(batch).map_err(|error| error.to_string())?;
    for record in batch.records.iter_mut().filter(|record| record.instance == number) {
        *record = expired(number);
    }
    Ok(batch.encode_to_vec().into())
}

fn to_change(change: &engine::NameChange) -> NameChange {
    let holder = Some(Bytes::from(change.instance.to_string()));
    let (before, after) = if change.is_claim { (None, holder) } else { (holder, None) };
    NameChange { name: change.name.as_str().to_owned(), before, after }
}

/// It may be an instance with the same content, of an earlier attempt of the same caller: only a caller that
/// asks again learns whether the name is taken.
fn name_taken(name: &InstanceName) -> RpcRefusal {
    let why =
        format!("another instance of the cluster has taken the name {name} at the same time: ask again");
    RpcRefusal::new(RefusalReason::NotOwner, why)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use stickycas_cluster::committer::CommitterConfig;
    use stickycas_cluster::confirm::Confirmer;
    use stickycas_cluster::keys::{Keys, Name};
    use stickycas_cluster::model::{Faults, Model};
    use stickycas_cluster::shard::ShardCount;
    use stickycas_cluster::store::Revision;

    use super::*;
    use crate::commit_log::{CommitLog, MemoryLog};
    use crate::limits::Limits;

    /// An engine over a model of the store, of which this was read.
    fn engine(found: Vec<Read>) -> (ShardEngine, Arc<Instances>) {
        let store = Arc::new(Model::new(1, Faults::default()).connect());
        let keys = Keys::new(&Name::new("demo").unwrap());
        let (shard, epoch) = (ShardCount::default().shards().next().unwrap(), Epoch(Revision(1)));
        let (committer, _commits) = Committer::new(store.clone(), keys.clone(), CommitterConfig::default());
        let (confirmer, _confirms) = Confirmer::new(store, keys);
        let confirmer = confirmer.epoch(shard, epoch, Duration::ZERO);
        let owned = Owned { shard, epoch, committer, confirmer };
        let log: Arc<dyn CommitLog> = Arc::new(MemoryLog::default());
        let instances = Instances::new(Limits::default(), &log);
        (ShardEngine::new(owned, &instances, found), instances)
    }

    #[tokio::test]
    async fn a_name_is_taken_although_who_gave_it_up_has_expired() {
        let (engine, _instances) = engine(Vec::new());
        let claim = engine::NameChange {
            name: "name".parse().unwrap(),
            instance: InstanceId::new(2),
            number: 2,
            is_claim: true,
        };
        let batch = Bytes::from(Batch { records: vec![expired(2)], ..Batch::default() }.encode_to_vec());
        let closed = Some(Bytes::from(InstanceId::new(1).to_string()));
        let mut write =
            LogWrite { batch: batch.clone(), names: vec![to_change(&claim)], ..LogWrite::default() };
        write.names[0].before = closed;
        let mut names = vec![claim];
        engine.0.yield_name(&mut write, &mut names, "name", None).unwrap();
        assert_eq!((names.len(), &write.batch), (1, &batch), "it is created");
        assert_eq!(write.names, [to_change(&names[0])], "nobody has the name any more");
    }

    #[tokio::test]
    async fn what_was_read_at_a_take_over_is_freed_once_it_is_read_back() {
        let bytes = [1, 2, 3].map(|it| Bytes::from(vec![it; 10]));
        let [checkpoint, batches @ ..] = bytes.clone();
        let batches = (7..).zip(batches).map(|(log_index, batch)| Read::Batch(LogIndex(log_index), batch));
        let found = [Read::Checkpoint(1, checkpoint)].into_iter().chain(batches).collect();
        let (engine, _instances) = engine(found);
        let mut read = Vec::new();
        let visited = engine.read(&mut |stored| {
            let (Stored::Checkpoint(at, bytes) | Stored::Batch(at, bytes)) = stored;
            read.push((at, bytes.to_vec()));
            Ok(())
        });
        visited.unwrap();
        assert_eq!(read, [(1, vec![1; 10]), (7, vec![2; 10]), (8, vec![3; 10])]);
        assert!(bytes.iter().all(Bytes::is_unique), "nobody else has it any more");
        assert_eq!((engine.usage().checkpoints, engine.usage().batches), (10, 20), "what the shard holds");
    }
}
