//! Shards that come and go: the reaction of a server that is told to take one, to hand it over, or that it
//! has lost it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use stickycas_cluster::committer::LogEnd;
use stickycas_cluster::keys::Epoch;
use stickycas_cluster::membership::Event;
use stickycas_cluster::read::ReadError;
use stickycas_cluster::shard::ShardId;
use stickycas_proto::status::RpcRefusal;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::Cluster;
use super::engine::{Owned, ShardEngine};
use crate::commit_log::{BatchLimits, CommitLog, DurableLog};
use crate::instances::{Instances, Part, Recovery, RecoveryError, ShardContext, owner_lost};
use crate::metrics::ShardMove;

/// The time between two checks of the lengths of the logs.
const CHECK_LENGTH_EVERY: Duration = Duration::from_millis(200);
/// The pause before a shard is taken that this server has not dropped wholly yet.
const ADD_AGAIN: Duration = Duration::from_millis(20);
/// The time between two checks of whether all shards are handed over.
const CHECK_HANDED_OVER_EVERY: Duration = Duration::from_millis(20);
/// The time between two checks of whether the effects of a shard's committed steps have left, and the most
/// checks.
const CHECK_TELLING_EVERY: Duration = Duration::from_millis(2);
const TELLING_CHECKS: usize = 25;
/// A batch fits a transaction: within 1 MiB and 128 operations, three for a checkpoint in pieces.
const BATCH_LIMITS: BatchLimits = BatchLimits { bytes: 256 << 10, changes: 32 };

/// A shard that this server owns.
#[derive(Debug)]
pub(super) struct Held {
    epoch: Epoch,
    /// Since when the server knows that it owns it.
    since: Instant,
    /// Set once it is added.
    pub(super) served: Option<Served>,
    /// Whether its log was read, so that it is served.
    pub(super) is_taken: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) context: Arc<ShardContext>,
    pub(super) log: Arc<DurableLog>,
}

/// Waits a while until the effects of committed steps have left: a client that is told OWNER_LOST instead has
/// to ask again. On open streams more may come all the time, so it does not wait for ever.
async fn effects_have_left(log: &DurableLog) {
    for _ in 0..TELLING_CHECKS {
        if log.uncommitted_bytes() == 0 {
            return;
        }
        tokio::time::sleep(CHECK_TELLING_EVERY).await;
    }
}

/// Follows the events of the membership, until the cluster is dropped.
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
                let held = Held { epoch, since: Instant::now(), served: None, is_taken: false };
                let before = cluster.held().insert(shard, held);
                debug_assert!(before.is_none(), "the end of an epoch is told before the next one");
                cluster.moves.count(ShardMove::Gained);
                tokio::spawn(take(cluster, instances, shard, epoch));
            }
            Event::ReleaseRequested { shard, epoch } => {
                tokio::spawn(async move { cluster.hand_over(&instances, shard, epoch).await });
            }
            Event::Lost { shard, epoch } => cluster.lost(&instances, shard, epoch),
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
                failed.await;
                waiting.upgrade()
            };
            if let Some(cluster) = cluster {
                cluster.give_up(&instances, shard, epoch).await;
            }
        }
        Ok(None) => cluster.lost(&instances, shard, epoch),
        Err(error) => {
            tracing::error!(%shard, error, "a shard cannot be served: it is given up");
            cluster.give_up(&instances, shard, epoch).await;
        }
    }
}

impl Cluster {
    /// Recovers a shard, and has it served. Returns a future that ends when the log is refused; `None`: the
    /// server has lost the shard already. The error says why the log cannot be used.
    async fn recover(
        &self,
        instances: &Arc<Instances>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Option<impl Future<Output = RpcRefusal> + Send + use<>>, String> {
        let owned = Owned {
            shard,
            epoch,
            committer: self.committer.clone(),
            confirmer: self.confirmer.epoch(shard, epoch, self.lease),
        };
        let (found, end) = match self.store.read_shard(shard, epoch).await {
            Ok(read) => read,
            // Shards move while servers come and go.
            Err(ReadError::Deposed) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let engine = ShardEngine::new(owned.clone(), instances, found);
        let log = Arc::new(DurableLog::with(
            self.state.clone(),
            self.metrics.clone(),
            BATCH_LIMITS,
            Some(Arc::new(owned.clone())),
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
        let served = Served { context: context.clone(), log: log.clone() };
        if !self.set_served(shard, epoch, served, end) {
            instances.drop_shard(&context, owner_lost(owned.key())).await;
            return Ok(None);
        }
        let (target, replayed, reads) = (instances.clone(), context.clone(), engine.clone());
        let replay = move || Recovery::run(&target, &replayed, &reads, None, Part::ALL);
        let recovered = match self.has_threads {
            true => spawn_blocking(replay).await.map_err(|error| error.to_string())?,
            false => replay(),
        };
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(RecoveryError::Lost) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        log.write_to(Arc::new(engine)).map_err(|error| error.to_string())?;
        let found = recovered.instances;
        instances.go_on(&context, &log, recovered).await;
        log.serve();
        self.set_taken(shard, epoch);
        tracing::info!(%shard, epoch = epoch.0.0, instances = found, "shard taken");
        Ok(Some(log.failed()))
    }

    /// It is added, and its log goes on behind this end, unless the server has lost it meanwhile.
    fn set_served(&self, shard: ShardId, epoch: Epoch, served: Served, end: LogEnd) -> bool {
        match self.held().get_mut(&shard) {
            Some(held) if held.epoch == epoch => {
                held.served = Some(served);
                // A task that forgets the shard closes it after that.
                self.committer.open(shard, epoch, end);
                true
            }
            _ => false,
        }
    }

    /// The shard is served.
    fn set_taken(&self, shard: ShardId, epoch: Epoch) {
        if let Some(held) = self.held().get_mut(&shard).filter(|held| held.epoch == epoch) {
            held.is_taken = true;
            self.moves.taken(held.since.elapsed());
        }
    }

    /// Forgets a shard; returns the state that the server held of it.
    fn forget(&self, shard: ShardId, epoch: Epoch) -> Option<Held> {
        let mut held = self.held();
        if held.get(&shard).is_some_and(|held| held.epoch == epoch) { held.remove(&shard) } else { None }
    }

    /// Nothing of a shard is written any more from now on. The returned future drops it; once that has begun,
    /// nothing of it is told. `None`: the server has it no more.
    fn lose(
        &self,
        instances: &Arc<Instances>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let held = self.forget(shard, epoch);
        self.committer.close(shard, epoch);
        let (instances, served) = (instances.clone(), held?.served);
        Some(async move {
            if let Some(Served { context, .. }) = served {
                instances.drop_shard(&context, owner_lost(context.key())).await;
            }
        })
    }

    /// The server has lost a shard. It is forgotten when this returns: the server may own it again in a later
    /// epoch.
    fn lost(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        if let Some(dropped) = self.lose(instances, shard, epoch) {
            self.moves.count(ShardMove::Lost);
            tokio::spawn(dropped);
        }
    }

    /// The shard cannot be served here. If it was not lost, another server is to try: this one pauses.
    async fn give_up(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        let Some(dropped) = self.lose(instances, shard, epoch) else { return };
        dropped.await;
        if let Some(membership) = self.directory.membership() {
            let was_owner = membership.give_up(shard, epoch).await;
            self.moves.count(if was_owner { ShardMove::GivenUp } else { ShardMove::Lost });
        }
    }

    /// Another server is to have a shard: its steps are committed, then it is free. If that takes longer than
    /// a lease, or the store has no space for another owner, it stays and is asked for again later.
    async fn hand_over(&self, instances: &Arc<Instances>, shard: ShardId, epoch: Epoch) {
        if self.must_stay()
            && let Some(membership) = self.directory.membership()
        {
            return membership.keep(shard, epoch);
        }
        let served =
            self.held().get(&shard).filter(|held| held.epoch == epoch).and_then(|held| held.served.clone());
        if let Some(Served { context, log }) = served {
            // New calls are refused from here on, and did not happen; clients ask again for accesses that
            // come on open streams until the shard is dropped.
            context.set_leaving(true);
            if log.holds_phases() && !*self.committer.full().borrow() {
                log.write_last_served_time();
            }
            if !self.may_leave(&log).await
                && let Some(membership) = self.directory.membership()
            {
                context.set_leaving(false);
                membership.keep(shard, epoch);
                return;
            }
            effects_have_left(&log).await;
        }
        let dropped = self.lose(instances, shard, epoch);
        let was_held = dropped.is_some();
        if let Some(dropped) = dropped {
            dropped.await;
        }
        if let Some(membership) = self.directory.membership() {
            let was_owner = membership.release(shard, epoch).await;
            if was_held {
                self.moves.count(if was_owner { ShardMove::HandedOver } else { ShardMove::Lost });
            }
        }
    }

    /// Whether shards stay where they are: the store has no space for another owner. A server that drains
    /// hands them over all the same.
    fn must_stay(&self) -> bool {
        *self.committer.full().borrow() && !self.directory.is_draining()
    }

    /// Waits until everything is committed; false if the shard is to stay meanwhile. A server that drains
    /// waits for ever.
    async fn may_leave(&self, log: &DurableLog) -> bool {
        let mut full = self.committer.full();
        loop {
            let is_committed = tokio::select! {
                biased;
                () = log.committed() => true,
                // While nothing can be committed, its calls are not to be refused.
                true = async { full.wait_for(|is_full| *is_full).await.is_ok() }, if !self.directory.is_draining() => false,
                () = tokio::time::sleep(self.lease) => false,
            };
            match (is_committed, self.directory.is_draining()) {
                (true, true) => return true,
                (false, true) => {}
                (_, false) => return is_committed && !self.must_stay(),
            }
        }
    }

    /// Hands all shards over and leaves the cluster; at most so long.
    pub(crate) async fn leave(&self, within: Duration) {
        let Some(membership) = self.directory.membership() else { return };
        membership.drain();
        let handed_over = async {
            let owns = || {
                let view = self.directory.last_view();
                view.owners.values().any(|owner| owner.server == self.directory.name().as_str())
            };
            // A released shard stands as owned until etcd has answered.
            while !self.held().is_empty() || owns() {
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
            for Served { context, log } in served {
                instances.keep_short(&context, &log, self.tail_bytes).await;
            }
        }
    }
}
