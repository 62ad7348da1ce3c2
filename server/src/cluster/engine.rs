//! The engine of a shard: batches go through the fenced commit of the server's [`Committer`], which sends those of several
//! shards in one transaction.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use prost::Message as _;
use stickycas_cluster::committer::{Append, Committer, NameChange, Outcome as Appended};
use stickycas_cluster::confirm::{Confirmation as Confirmed, Confirmer};
use stickycas_cluster::keys::{Epoch, Place};
use stickycas_cluster::read::Stored as Read;
use stickycas_cluster::shard::ShardId;
use stickycas_proto::log::v1::Batch;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::commit_log::engine::{self, AppendBatch, Done, Engine, EngineError, Outcome, Stored, Usage};
use crate::commit_log::{Confirmation, DurableLog, Ownership};
use crate::instances::{Instances, ShardKey, owner_lost};

/// Batches of a shard that are under way at once.
const DEPTH: usize = 4;

/// One ownership of a shard: what it needs to append, and to confirm that it goes on.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) committer: Committer,
    pub(super) confirmer: Confirmer,
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
    fn confirm(&self) -> Confirmation {
        let (confirms, confirmation) = Confirmation::new();
        let (confirmed, key) = (self.confirmer.confirm(self.shard, self.epoch), self.key());
        tokio::spawn(async move {
            confirms.tell(match confirmed.await {
                Confirmed::Confirmed => Ok(()),
                Confirmed::Deposed | Confirmed::NotConfirmed => Err(owner_lost(key)),
            });
        });
        confirmation
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
    /// What was read when the shard was taken.
    found: Vec<Read>,
    held: Mutex<Held>,
}

/// What the shard holds in etcd, in bytes.
#[derive(Debug, Default)]
struct Held {
    batches: VecDeque<(u64, usize)>,
    checkpoints: HashMap<u64, usize>,
    usage: Usage,
}

impl Held {
    fn add_batch(&mut self, place: u64, bytes: usize) {
        self.batches.push_back((place, bytes));
        self.usage.batches += bytes as u64;
    }

    fn set_checkpoint(&mut self, number: u64, bytes: Option<usize>) {
        let before = match bytes {
            Some(bytes) => self.checkpoints.insert(number, bytes),
            None => self.checkpoints.remove(&number),
        };
        self.usage.replace_checkpoint(before, bytes);
    }

    fn commit(&mut self, append: &Append) {
        self.add_batch(append.place.0, append.batch.len());
        for (number, state) in &append.checkpoints {
            self.set_checkpoint(*number, state.as_ref().map(Bytes::len));
        }
        while let Some(trim) = append.trim
            && let Some((_, bytes)) = self.batches.pop_front_if(|(place, _)| *place < trim.0)
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
                Read::Batch(place, batch) => held.add_batch(place.0, batch.len()),
            }
        }
        let (instances, held) = (Arc::downgrade(instances), Mutex::new(held));
        Self(Arc::new(Inner { owned, instances, log: OnceLock::new(), found, held }))
    }

    /// The log that writes here.
    pub(super) fn set_log(&self, log: &Arc<DurableLog>) {
        let _ = self.0.log.set(Arc::downgrade(log));
    }
}

impl Engine for ShardEngine {
    fn depth(&self) -> usize {
        DEPTH
    }

    fn blocks(&self) -> bool {
        false
    }

    fn append(&self, batch: AppendBatch, done: Done) {
        let AppendBatch { place, batch, checkpoints, trim, names } = batch;
        let append = Append {
            place: Place(place),
            batch: batch.into(),
            checkpoints: checkpoints
                .into_iter()
                .map(|(number, state)| (number, state.map(Bytes::from)))
                .collect(),
            trim: trim.map(|trim| Place(trim.min(place))),
            names: names.iter().map(to_change).collect(),
        };
        // Handed over before this returns: appends are sent in the order of their places.
        let outcome = self.0.send(&append);
        let inner = self.0.clone();
        tokio::spawn(async move { done(inner.settle(append, names, outcome).await) });
    }

    fn read(&self, visit: &mut dyn FnMut(Stored<'_>) -> Result<(), EngineError>) -> Result<(), EngineError> {
        self.0.found.iter().try_for_each(|found| match found {
            Read::Checkpoint(number, state) => visit(Stored::Checkpoint(*number, state)),
            Read::Batch(place, batch) => visit(Stored::Batch(place.0, batch)),
        })
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        Err(EngineError("a shard has no identity of its own".to_owned()))
    }

    fn usage(&self) -> Usage {
        self.0.held().usage
    }
}

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, append: &Append) -> impl Future<Output = Appended> + Send + use<> {
        let Owned { shard, epoch, committer, .. } = &self.owned;
        committer.append(*shard, *epoch, append.clone())
    }

    /// What becomes of an append; without what a name stands against.
    async fn settle(
        &self,
        mut append: Append,
        mut names: Vec<engine::NameChange>,
        outcome: impl Future<Output = Appended> + Send,
    ) -> Outcome {
        let mut outcome = outcome.await;
        loop {
            match outcome {
                Appended::Committed => {
                    self.held().commit(&append);
                    return Outcome::Committed;
                }
                Appended::NameTaken { name, holder } => {
                    if let Err(why) = self.yield_name(&mut append, &mut names, &name, holder).await {
                        tracing::error!(shard = %self.owned.shard, why, "a batch cannot be appended");
                        return self.lost();
                    }
                    outcome = self.send(&append).await;
                }
                Appended::Refused(why) => {
                    tracing::error!(shard = %self.owned.shard, why, "a batch cannot be appended");
                    return self.lost();
                }
                Appended::Deposed(_) | Appended::Closed => return self.lost(),
            }
        }
    }

    fn lost(&self) -> Outcome {
        Outcome::Refused(Box::new(owner_lost(self.owned.key())))
    }

    /// Somebody else holds this name, or nobody does: who expires has nothing to release; a closed instance gives its name up;
    /// else the instance that claims it is not created.
    async fn yield_name(
        &self,
        append: &mut Append,
        names: &mut Vec<engine::NameChange>,
        name: &str,
        holder: Option<Bytes>,
    ) -> Result<(), String> {
        let at = names
            .iter()
            .position(|change| change.name.as_str() == name)
            .ok_or("it does not have the name")?;
        let change = names[at].clone();
        if change.is_claim
            && let Some(held_by) = holder.as_deref().and_then(InstanceId::from_hex)
            && let Some(instances) = self.instances.upgrade()
            && instances.gives_up_name(held_by, &change.name).await
        {
            append.names[at].before = holder;
            return Ok(());
        }
        names.remove(at);
        append.names.remove(at);
        if change.is_claim {
            let mut batch = Batch::decode(&*append.batch).map_err(|error| error.to_string())?;
            batch.records.retain(|record| record.instance != change.number);
            append.batch = batch.encode_to_vec().into();
            append.checkpoints.retain(|(number, _)| *number != change.number);
            if let Some(log) = self.log.get().and_then(Weak::upgrade) {
                log.refuse_creation(change.instance, change.number, name_taken(&change.name));
            }
        }
        Ok(())
    }
}

fn to_change(change: &engine::NameChange) -> NameChange {
    let holder = Some(Bytes::from(change.instance.to_string()));
    let (before, after) = if change.is_claim { (None, holder) } else { (holder, None) };
    NameChange { name: change.name.as_str().to_owned(), before, after }
}

fn name_taken(name: &InstanceName) -> RpcRefusal {
    let why =
        format!("another instance of the cluster has taken the name {name} at the same time: ask again");
    RpcRefusal::new(RefusalReason::NameTaken, why)
}
