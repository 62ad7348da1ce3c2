//! Shards that come and go: what a server does when it is told to take one, to hand it over, or that it has lost it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stickycas_cluster::keys::Epoch;
use stickycas_cluster::membership::Event;
use stickycas_cluster::read::ReadError;
use stickycas_cluster::shard::ShardId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::Cluster;
use super::engine::{Owned, ShardEngine};
use crate::commit_log::{BatchLimits, CommitLog, DurableLog, LogFailure};
use crate::instances::{Instances, Recovery, ShardContext, owner_lost};

/// How often the lengths of the logs are looked at.
const CHECK_LENGTH_EVERY: Duration = Duration::from_millis(200);
/// The pause before a shard is taken that this server has not dropped wholly yet.
const ADD_AGAIN: Duration = Duration::from_millis(20);
/// How often it is looked whether all shards are handed over.
const CHECK_HANDED_OVER_EVERY: Duration = Duration::from_millis(20);
/// How often it is looked whether what a shard has committed is told, and how many times at most.
const CHECK_TELLING_EVERY: Duration = Duration::from_millis(2);
const TELLING_CHECKS: usize = 25;
/// A batch fits a transaction: within 1 MiB and 128 operations, three for a checkpoint in pieces.
const BATCH_LIMITS: BatchLimits = BatchLimits { bytes: 256 << 10, changes: 32 };

/// A shard that this server owns.
#[derive(Debug)]
pub(super) struct Held {
    epoch: Epoch,
    /// Set once it is added.
    served: Option<Served>,
}

#[derive(Clone, Debug)]
struct Served {
    context: Arc<ShardContext>,
    log: Arc<DurableLog>,
}

/// Waits a while until what is committed is told: who is told OWNER_LOST instead has to ask again. On open streams more may
/// come all the time, so it does not wait for ever.
async fn told(log: &DurableLog) {
    for _ in 0..TELLING_CHECKS {
        if log.uncommitted_bytes() == 0 {
            return;
        }
        tokio::time::sleep(CHECK_TELLING_EVERY).await;
    }
}

/// Does what the membership asks for, until the cluster is dropped.
pub(super) async fn follow(
    cluster: Weak<Cluster>,
    instances: Arc<Instances>,
    mut events: mpsc::UnboundedReceiver<Event>,
) {
    while let Some(event) = events.recv().await {
        let Some(cluster) = cluster.upgrade() else { return };
        let instances = instances.clone();
        match event {
            Event::Claimed { shard, epoch } => {
                cluster.held().insert(shard, Held { epoch, served: None });
                tokio::spawn(take(cluster, instances, shard, epoch));
            }
            Event::ReleaseRequested { shard, epoch } => {
                tokio::spawn(async move { cluster.hand_over(&instances, shard, epoch).await });
            }
            Event::Lost { shard, epoch } => {
                tokio::spawn(async move { cluster.lose(&instances, shard, epoch).await });
            }
            Event::NameInUse => {
                let why = "another server has this server's name in the cluster: give each a name of its own (--server-name)";
                tracing::error!("{why}");
                cluster.failed.send_replace(Some(RpcRefusal::new(RefusalReason::LogFailed, why)));
            }
        }
    }
}

/// Reads the log of a shard that was claimed, and serves its instances, until its log is refused.
async fn take(cluster: Arc<Cluster>, instances: Arc<Instances>, shard: ShardId, epoch: Epoch) {
    match cluster.recover(&instances, shard, epoch).await {
        Ok(Some(failed)) => {
            let cluster = {
                let waiting = Arc::downgrade(&cluster);
                drop(cluster);
                failed.wait().await;
                waiting.upgrade()
            };
            if let Some(cluster) = cluster {
                cluster.give_up(&instances, shard, epoch).await;
            }
        }
        Ok(None) => cluster.lose(&instances, shard, epoch).await,
        Err(error) => {
            tracing::error!(%shard, error, "a shard cannot be served: it is given up");
            cluster.give_up(&instances, shard, epoch).await;
        }
    }
}

impl Cluster {
    /// What tells that the log is refused; `None`: the server has lost the shard already. The error says why the log cannot
    /// be used.
    async fn recover(
        &self,
        instances: &Arc<Instances>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Option<LogFailure>, String> {
        let owned =
            Owned { shard, epoch, committer: self.committer.clone(), confirmer: self.confirmer.clone() };
        let (found, end) = match self.store.read_shard(shard, epoch).await {
            Ok(read) => read,
            // Shards move while servers come and go.
            Err(ReadError::Deposed) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let engine = ShardEngine::new(owned.clone(), instances, found);
        let log = Arc::new(DurableLog::shared(
            self.state.clone(),
            self.metrics.clone(),
            BATCH_LIMITS,
            Arc::new(owned.clone()),
        ));
        engine.set_log(&log);
        let shared: Arc<dyn CommitLog> = log.clone();
        let context = loop {
            if self.held().get(&shard).is_none_or(|held| held.epoch != epoch) {
                return Ok(None);
            }
            match instances.add_shard(owned.key(), &shared) {
                Ok(context) => break context,
                Err(_) => tokio::time::sleep(ADD_AGAIN).await,
            }
        };
        if !self.set_served(shard, epoch, Served { context: context.clone(), log: log.clone() }) {
            instances.drop_shard(&context, owner_lost(owned.key())).await;
            return Ok(None);
        }
        self.committer.open(shard, epoch, end);
        let (target, replayed, reads) = (instances.clone(), context.clone(), engine.clone());
        let recovered = spawn_blocking(move || Recovery::run(&target, &replayed, &reads, None)).await;
        let recovered = recovered.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        log.write_to(Arc::new(engine)).map_err(|error| error.to_string())?;
        let found = recovered.instances;
        log.begin(recovered.last, recovered.served, recovered.dirty).await;
        instances.serve_shard(&context, recovered.served).await;
        tracing::info!(%shard, epoch = epoch.0.0, instances = found, "shard taken");
        Ok(Some(log.failure_signal()))
    }

    fn set_served(&self, shard: ShardId, epoch: Epoch, served: Served) -> bool {
        match self.held().get_mut(&shard) {
            Some(held) if held.epoch == epoch => {
                held.served = Some(served);
                true
            }
            _ => false,
        }
    }

    /// Forgets that it has a shard; returns what it has of it.
    fn forget(&self, shard: ShardId, epoch: Epoch) -> Option<Served> {
        let mut held = self.held();
        if held.get(&shard).is_some_and(|held| held.epoch == epoch) {
            return held.remove(&shard)?.served;
        }
        None
    }

    /// The server has lost a shard: nothing of it is told any more.
    async fn lose(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        let served = self.forget(shard, epoch);
        self.committer.close(shard, epoch);
        if let Some(Served { context, .. }) = served {
            instances.drop_shard(&context, owner_lost(context.key())).await;
        }
    }

    /// The shard cannot be served here. If it was not lost, another server is to try: this one pauses.
    async fn give_up(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        let is_held = self.held().get(&shard).is_some_and(|held| held.epoch == epoch);
        self.lose(instances, shard, epoch).await;
        if is_held && let Some(membership) = self.directory.membership() {
            membership.give_up(shard, epoch).await;
        }
    }

    /// Another server is to have a shard: what was taken of it is committed, then it is free.
    async fn hand_over(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        let served =
            self.held().get(&shard).filter(|held| held.epoch == epoch).and_then(|held| held.served.clone());
        if let Some(Served { context, log }) = served {
            // New calls are refused from here on, and did not happen; what is accepted on open streams until the shard is
            // dropped is asked again by its clients.
            context.set_leaving();
            log.committed().await;
            told(&log).await;
        }
        self.lose(instances, shard, epoch).await;
        if let Some(membership) = self.directory.membership() {
            membership.release(shard, epoch).await;
        }
    }

    /// Hands all shards over and leaves the cluster; at most so long.
    pub(crate) async fn leave(&self, within: Duration) {
        let Some(membership) = self.directory.membership() else { return };
        membership.drain();
        let handed_over = async {
            while !self.held().is_empty() {
                tokio::time::sleep(CHECK_HANDED_OVER_EVERY).await;
            }
        };
        if tokio::time::timeout(within, handed_over).await.is_err() {
            tracing::warn!(
                "not all shards were handed over in time: others take them when the lease has ended"
            );
        }
        let _ = tokio::time::timeout(within, membership.leave()).await;
    }

    /// Writes checkpoints and trims the logs, for ever.
    pub(crate) async fn keep_short(&self, instances: &Instances) {
        loop {
            tokio::time::sleep(CHECK_LENGTH_EVERY).await;
            let served: Vec<Served> = self.held().values().filter_map(|held| held.served.clone()).collect();
            for Served { log, .. } in served {
                log.tell_time();
                let usage = log.usage();
                if usage.batches >= self.tail_bytes.max(usage.checkpoints) {
                    instances.write_checkpoints(&log).await;
                }
            }
        }
    }
}
