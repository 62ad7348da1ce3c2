//! Shards: the instances of a server by the log that commits them.
//!
//! A server that is no part of a cluster has one shard for ever. In a cluster it takes shards and loses them while it
//! serves others: [`Instances::add_shard`], [`Recovery`](super::Recovery), [`Instances::serve_shard`], and at the end
//! [`Instances::drop_shard`]. What a server has once, whatever it owns, is its [`Context`].

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use stickycas_proto::names::InstanceId;
use stickycas_proto::status::{Owner, RpcRefusal};
use stickycas_proto::v1::{ClusterServer, GetClusterResponse, OwnedShard, RefusalReason};

use super::Instances;
use super::context::Context;
use super::instance::Instance;
use crate::commit_log::{CommitLog, Confirmation, Settled};

/// Names a shard: from 0, below the number of shards of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShardKey(pub(crate) u32);

/// Which shard an instance belongs to, and which server owns a shard.
pub(crate) trait Placement: fmt::Debug + Send + Sync {
    /// The shard of the instance with this id: the same at each call and at each server of the cluster.
    fn shard_of(&self, id: InstanceId) -> ShardKey;

    /// The server that owns this shard as far as is known here; `None`: nobody does.
    fn owner_of(&self, shard: ShardKey) -> Option<Owner>;

    /// The addresses of the other servers of the cluster.
    fn other_servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The cluster as this server sees it. A server that belongs to none has the one shard that there is.
    fn cluster(&self) -> GetClusterResponse {
        let shards = vec![OwnedShard { shard: 0, epoch: 0 }];
        let server = ClusterServer { shards, ..ClusterServer::default() };
        GetClusterResponse { shards: 1, servers: vec![server], ..GetClusterResponse::default() }
    }
}

/// One shard, and it is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneShard;

impl Placement for OneShard {
    fn shard_of(&self, _: InstanceId) -> ShardKey {
        ShardKey::default()
    }

    fn owner_of(&self, _: ShardKey) -> Option<Owner> {
        None
    }
}

/// What the instances of one shard share, as long as this server owns it. If it takes the shard again later, that is
/// another one.
#[derive(Debug)]
pub(crate) struct ShardContext {
    /// What all instances of the server share.
    pub(super) server: Arc<Context>,
    pub(super) key: ShardKey,
    pub(super) log: Arc<dyn CommitLog>,
    /// The number of the instance that was created last.
    last_number: AtomicU64,
    /// Whether it has been recovered: nobody finds its instances before.
    is_served: AtomicBool,
    /// Why nothing of it may be told any more.
    lost: OnceLock<RpcRefusal>,
}

impl ShardContext {
    pub(super) fn new(server: Arc<Context>, key: ShardKey, log: Arc<dyn CommitLog>) -> Self {
        let (last_number, is_served) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { server, key, log, last_number, is_served, lost: OnceLock::new() }
    }

    /// Of a server that has no other, for tests of one instance.
    #[cfg(test)]
    pub(super) fn alone(limits: crate::limits::Limits, log: Arc<dyn CommitLog>) -> Arc<Self> {
        let server = Context::new(limits, log.state());
        Arc::new(Self::new(server, ShardKey::default(), log))
    }

    /// Why nothing of the shard may be told any more, if its log has failed or the shard is lost.
    pub(crate) fn failure(&self) -> Option<&RpcRefusal> {
        self.lost.get().or_else(|| self.log.failure())
    }

    /// Whether its instances are served.
    pub(super) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire) && self.lost.get().is_none()
    }

    pub(super) fn set_served(&self) {
        self.is_served.store(true, Ordering::Release);
    }

    /// The shard is to be handed over: nobody finds its instances any more.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "no server loses shards"))]
    pub(crate) fn set_leaving(&self) {
        self.is_served.store(false, Ordering::Release);
    }

    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "no server loses shards"))]
    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Confirms that an instance of the shard is gone, before that is told; of a shard that is lost nothing can be confirmed.
    pub(super) fn confirm_gone(&self) -> Option<Confirmation> {
        if self.failure().is_some() { None } else { self.log.confirm() }
    }

    /// The number of a new instance.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An instance of this number is there.
    pub(super) fn skip_number(&self, number: u64) {
        self.last_number.fetch_max(number, Ordering::Relaxed);
    }
}

/// A shard that cannot be added.
#[derive(Debug, thiserror::Error)]
#[error("the server has shard {} already, or has not dropped it wholly yet", .0.0)]
pub(crate) struct ShardHeld(pub(crate) ShardKey);

/// Shards that come and go. All of it may be done while other shards are served.
impl Instances {
    /// The only shard of a server that is no part of a cluster.
    pub(crate) fn only_shard(&self) -> Arc<ShardContext> {
        let shards = self.shards();
        shards.get(&ShardKey::default()).cloned().expect("it is there from the beginning")
    }

    /// The server owns this shard from now on, and commits its steps to `log`. Its instances are found once it is
    /// [served](Self::serve_shard); what its engine has kept is recovered before. If that fails, the shard is to be
    /// [dropped](Self::drop_shard).
    ///
    /// # Errors
    /// If the server has the shard.
    pub(crate) fn add_shard(
        self: &Arc<Self>,
        key: ShardKey,
        log: &Arc<dyn CommitLog>,
    ) -> Result<Arc<ShardContext>, ShardHeld> {
        let shard = Arc::new(ShardContext::new(self.context.clone(), key, log.clone()));
        {
            let mut shards = self.shards_mut();
            if shards.contains_key(&key) {
                return Err(ShardHeld(key));
            }
            shards.insert(key, shard.clone());
        }
        self.logs.add(log.clone());
        let (instances, settled) = (Arc::downgrade(self), Arc::downgrade(&shard));
        log.on_settled(Box::new(move |id, outcome| {
            if let (Some(instances), Some(shard)) = (instances.upgrade(), settled.upgrade()) {
                instances.settle(&shard, id, outcome);
            }
        }));
        Ok(shard)
    }

    /// The shard has been recovered, and is served from now on: the restart, whose record is committed, is an input of
    /// each of its instances, and their time goes on (F3). `served`: how long they had been served. Other tasks run between
    /// pages: those that tell that the server is not ready yet.
    pub(crate) async fn serve_shard(&self, shard: &Arc<ShardContext>, served: Duration) {
        self.each_of(shard, |instance| instance.go_on(served, Instant::now())).await;
        shard.set_served();
    }

    /// The server owns this shard no more, for the reason `why`: nothing of it is written or told from now on. All its
    /// instances go; who waits for one of them, or has a session or a Watch there, is told why. When the first call returns,
    /// nothing is left of the shard, and it may be added again.
    pub(crate) async fn drop_shard(&self, shard: &Arc<ShardContext>, why: RpcRefusal) {
        if shard.lost.set(why.clone()).is_err() {
            return;
        }
        tracing::info!(shard = shard.key.0, "the shard is not served here any more");
        // First of all: checkpoints that are being written must not take instances that go for expired ones.
        shard.log.depose(&why);
        self.each_of(shard, |instance| {
            instance.lose(&why);
            self.remove(instance);
        })
        .await;
        self.logs.remove(&shard.log);
        self.shards_mut().remove(&shard.key);
    }

    /// Does this with all instances of the shard.
    async fn each_of(&self, shard: &Arc<ShardContext>, mut act: impl FnMut(&Arc<Instance>)) {
        const PAGE: usize = 256;
        let mut after: Option<InstanceId> = None;
        loop {
            let page = self.registry().after(after, PAGE);
            let Some(last) = page.last() else { return };
            after = Some(last.config().id);
            page.iter().filter(|instance| Arc::ptr_eq(&instance.shard, shard)).for_each(&mut act);
            drop(page);
            tokio::task::yield_now().await;
        }
    }

    /// The log of the shard settles steps of an instance.
    pub(super) fn settle(self: &Arc<Self>, shard: &Arc<ShardContext>, id: InstanceId, settled: Settled) {
        if let Settled::Refused(why) = &settled
            && why.reason == RefusalReason::OwnerLost
            && shard.lost.get().is_none()
        {
            // What concerns one instance is the end of all.
            let (instances, shard, why) = (self.clone(), shard.clone(), (**why).clone());
            tokio::spawn(async move { instances.drop_shard(&shard, why).await });
        }
        // It may be one of a shard of the same key that was taken again.
        let found = self.registry().get(id).filter(|it| Arc::ptr_eq(&it.shard, shard)).cloned();
        if let Some(instance) = found {
            self.settle_instance(&instance, settled);
        }
    }
}

/// Which instances are where.
impl Instances {
    /// The refusal of a call for the instance with this id, which is not found here: another server has it, or nobody.
    pub(crate) fn absent(&self, id: InstanceId) -> RpcRefusal {
        let key = self.placement.shard_of(id);
        let served = self.shards().get(&key).is_some_and(|shard| shard.is_served());
        match self.log_failure() {
            Some(failure) => failure,
            None if served => super::unknown(&id.to_string()),
            None => self.not_owner(key),
        }
    }

    /// The refusal of a call for an instance of a shard that is not served here.
    pub(super) fn not_owner(&self, key: ShardKey) -> RpcRefusal {
        let refused = |why: String| RpcRefusal::new(RefusalReason::NotOwner, why);
        match self.placement.owner_of(key) {
            Some(owner) => {
                refused(format!("{} owns shard {}: ask there", owner.address, key.0)).with_owner(owner)
            }
            None => refused(format!("no server owns shard {} at the moment: try again", key.0))
                .with_retry_after(self.limits().retry_after),
        }
    }

    /// The refusal of what concerns an instance that was dropped with its shard, which another server owns by now.
    pub(crate) fn owner_lost(&self, shard: &ShardContext) -> Option<RpcRefusal> {
        let why = shard.lost.get()?;
        Some(match self.placement.owner_of(shard.key) {
            Some(owner) => why.clone().with_owner(owner),
            None => why.clone(),
        })
    }

    /// A shard for a new instance, and an id within it: all that are served take turns. `None`: none is.
    pub(super) fn draw_id(&self) -> Option<(InstanceId, Arc<ShardContext>)> {
        let shards = self.shards();
        let served: Vec<_> = shards.values().filter(|shard| shard.is_served()).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let shard = served.get(turn.checked_rem(served.len())?)?;
        loop {
            // As many draws as there are shards, on average.
            let id = InstanceId::new(rand::random());
            if self.placement.shard_of(id) == shard.key {
                return Some((id, (*shard).clone()));
            }
        }
    }
}

/// The refusal of what concerns a shard that this server has lost to another one.
#[cfg_attr(not(any(test, feature = "cluster")), expect(dead_code, reason = "no server loses shards"))]
pub(crate) fn owner_lost(key: ShardKey) -> RpcRefusal {
    let why = format!(
        "the server has lost shard {} to another one, and it is unknown whether it happened: ask again with the same number at \
         the owner",
        key.0
    );
    RpcRefusal::new(RefusalReason::OwnerLost, why)
}

#[cfg(test)]
mod tests;
