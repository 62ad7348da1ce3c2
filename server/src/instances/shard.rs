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
use tokio::sync::{Mutex, MutexGuard};

use super::Instances;
use super::context::Context;
use super::instance::Instance;
use super::recovery::Recovered;
use crate::commit_log::{CommitLog, Confirmation, DurableLog, Settled};

/// Names a shard: from 0, below the number of shards of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShardKey(pub(crate) u32);

/// Which shard an instance belongs to, and which server owns a shard.
pub(crate) trait Placement: fmt::Debug + Send + Sync {
    /// The shard of the instance with this id: the same at each call and at each server of the cluster.
    fn shard_of(&self, id: InstanceId) -> ShardKey;

    /// The id of an instance of this shard, made of random bits.
    fn id_in(&self, shard: ShardKey, random: u128) -> InstanceId;

    /// Which of the shards that are served has its turn for a new instance, before which so many were created here: this one, modulo
    /// their number.
    fn turn(&self, created: usize) -> usize {
        created
    }

    /// The other server that owns this shard as far as is known here; `None`: nobody does, or this server.
    fn owner_of(&self, shard: ShardKey) -> Option<Owner>;

    /// Whether this server owns this shard as far as is known here, served or not.
    fn is_owner(&self, shard: ShardKey) -> bool;

    /// Why no instance is created although this server has capacity: what the servers share has no space.
    fn no_space(&self) -> Option<String> {
        None
    }

    /// The addresses of the other servers of the cluster.
    fn other_servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The number of shards of the cluster.
    fn shard_count(&self) -> u32 {
        1
    }

    /// The cluster as this server sees it. A server that belongs to none has the one shard that there is.
    fn cluster(&self) -> GetClusterResponse {
        let shards = vec![OwnedShard { shard: 0, epoch: 0 }];
        let server = ClusterServer { shards, ..ClusterServer::default() };
        GetClusterResponse {
            shards: self.shard_count(),
            servers: vec![server],
            ..GetClusterResponse::default()
        }
    }
}

/// One shard, and it is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneShard;

impl Placement for OneShard {
    fn shard_of(&self, _: InstanceId) -> ShardKey {
        ShardKey::default()
    }

    fn id_in(&self, _: ShardKey, random: u128) -> InstanceId {
        InstanceId::new(random)
    }

    fn owner_of(&self, _: ShardKey) -> Option<Owner> {
        None
    }

    fn is_owner(&self, _: ShardKey) -> bool {
        true
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
    /// Whether it is to be handed over: nobody finds its instances meanwhile.
    is_leaving: AtomicBool,
    /// Why nothing of it may be told any more.
    lost: OnceLock<RpcRefusal>,
    /// Locked while it is recovered, and while it is dropped.
    recovery: Mutex<()>,
}

/// The shard was lost while it was recovered, or before.
#[derive(Debug)]
pub(super) struct ShardLost;

impl ShardContext {
    pub(super) fn new(server: Arc<Context>, key: ShardKey, log: Arc<dyn CommitLog>) -> Self {
        let [is_served, is_leaving] = [false, false].map(AtomicBool::new);
        let (last_number, lost, recovery) = (AtomicU64::new(0), OnceLock::new(), Mutex::new(()));
        Self { server, key, log, last_number, is_served, is_leaving, lost, recovery }
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
        self.is_served.load(Ordering::Acquire) && !self.is_going()
    }

    /// Whether it is to be handed over, or is lost.
    fn is_going(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire) || self.lost.get().is_some()
    }

    /// Begins its recovery, which ends when what this returns is dropped: a shard that is dropped waits for it.
    pub(super) fn begin_recovery(&self) -> Result<MutexGuard<'_, ()>, ShardLost> {
        // Nobody else has the lock before the shard is lost.
        let running = self.recovery.try_lock().map_err(|_| ShardLost)?;
        self.check_owned().map(|()| running)
    }

    /// Whether the server still has it.
    pub(super) fn check_owned(&self) -> Result<(), ShardLost> {
        if self.lost.get().is_some() { Err(ShardLost) } else { Ok(()) }
    }

    pub(super) fn set_served(&self) {
        self.is_served.store(true, Ordering::Release);
    }

    /// The shard is to be handed over: nobody finds its instances any more, unless it stays after all.
    #[cfg_attr(not(any(test, feature = "cluster")), expect(dead_code, reason = "no server loses shards"))]
    pub(crate) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
    }

    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "no server loses shards"))]
    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Confirms that the server still owns it, before something is told that another one may know better.
    pub(crate) fn confirm(&self) -> Option<Confirmation> {
        self.log.confirm()
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

    /// Goes on behind what was recovered of the shard, and has it served. What had been served before this server is an input
    /// of its own of every instance for which it counts, before the restart: so each replay comes to the same (F3).
    pub(crate) async fn go_on(&self, shard: &Arc<ShardContext>, log: &DurableLog, recovered: Recovered) {
        let Recovered { last, served, dirty, .. } = recovered;
        log.begin(last, served, dirty);
        self.each_of(shard, |instance| instance.catch_up(served)).await;
        log.restart().await;
        self.serve_shard(shard, served).await;
    }

    /// The shard has been recovered, and is served from now on: the restart, whose record is committed, is an input of
    /// each of its instances, and their time goes on (F3). `served`: how long they had been served. Other tasks run between
    /// pages: those that tell that the server is not ready yet.
    pub(crate) async fn serve_shard(&self, shard: &Arc<ShardContext>, served: Duration) {
        self.each_of(shard, |instance| instance.go_on(served, Instant::now())).await;
        shard.set_served();
    }

    /// The server owns this shard no more, for the reason `why`: nothing of it is written or told from now on. All its
    /// instances go; who waits for one of them, or has a session or a Watch there, is told why. A recovery that is under way ends
    /// first. When the first call returns, nothing is left of the shard, and it may be added again.
    pub(crate) async fn drop_shard(&self, shard: &Arc<ShardContext>, why: RpcRefusal) {
        if shard.lost.set(why.clone()).is_err() {
            return;
        }
        tracing::info!(shard = shard.key.0, "the shard is not served here any more");
        // First of all: checkpoints that are being written must not take instances that go for expired ones.
        shard.log.depose(&why);
        let _recovered = shard.recovery.lock().await;
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
    /// The instance with this id, which was not found at first: its shard may be served since.
    pub(super) fn get_again(&self, id: InstanceId) -> Result<Arc<Instance>, RpcRefusal> {
        self.look_again(id).map_err(|(refused, _)| refused)
    }

    /// The refusal of a call for the instance with this id, which is not found here, and what is to be confirmed before it is told:
    /// that this server still owns the shard of the instance.
    pub(crate) fn absence(&self, id: InstanceId) -> (RpcRefusal, Option<Confirmation>) {
        match self.look_again(id) {
            // It is found when it is asked for again.
            Ok(_) => (self.not_owner(self.placement.shard_of(id)), None),
            Err((refused, shard)) => (refused, shard.and_then(|shard| shard.confirm())),
        }
    }

    /// The instance with this id; or why it is not here, and the shard of which this says that there is none. There is none if the
    /// shard was served before it was looked for, and still is: a shard that is served only since, or again, has brought its
    /// instances with it.
    fn look_again(&self, id: InstanceId) -> Result<Arc<Instance>, (RpcRefusal, Option<Arc<ShardContext>>)> {
        if let Some(failure) = self.log_failure() {
            return Err((failure, None));
        }
        let key = self.placement.shard_of(id);
        let served = self.shards().get(&key).filter(|shard| shard.is_served()).cloned();
        let found = self.registry().get(id).cloned();
        match (found, served) {
            (Some(found), _) if found.shard.is_served() => Ok(found),
            // A shard that is dropped is lost before its instances are gone.
            (None, Some(shard)) if shard.is_served() => Err((super::unknown(&id.to_string()), Some(shard))),
            _ => Err((self.not_owner(key), None)),
        }
    }

    /// A page of [`Self::after`], and the shards that it is of: of others instances may be left out.
    pub(crate) fn page_after(&self, id: Option<InstanceId>, limit: usize) -> (Vec<Arc<Instance>>, Vec<u32>) {
        let mut served: Vec<_> = self.shards().values().filter(|shard| shard.is_served()).cloned().collect();
        let page = self.after(id, limit);
        served.retain(|shard| shard.is_served());
        (page, served.iter().map(|shard| shard.key.0).collect())
    }

    /// The shards that are served.
    pub(crate) fn served_shards(&self) -> Vec<u32> {
        self.shards().values().filter(|shard| shard.is_served()).map(|shard| shard.key.0).collect()
    }

    /// The refusal of a call for the instance with this id when it may be told, or why it may not.
    pub(crate) async fn confirmed_absent(&self, id: InstanceId) -> RpcRefusal {
        match self.absence(id) {
            (refused, Some(confirmation)) => confirmation.await.err().unwrap_or(refused),
            (refused, None) => refused,
        }
    }

    /// The refusal of a call for an instance of a shard that is not served here. This server is never named in it: who is told an
    /// owner asks there at once.
    pub(super) fn not_owner(&self, key: ShardKey) -> RpcRefusal {
        let refused = |why: String| RpcRefusal::new(RefusalReason::NotOwner, why);
        if let Some(owner) = self.placement.owner_of(key) {
            return refused(format!("{} owns shard {}: ask there", owner.address, key.0)).with_owner(owner);
        }
        let is_going = self.shards().get(&key).is_some_and(|shard| shard.is_going());
        let refused = if self.placement.is_owner(key) && !is_going {
            let why = format!("the server reads the log of shard {}: try again", key.0);
            RpcRefusal::new(RefusalReason::Recovering, why)
        } else {
            refused(format!("no server serves shard {} at the moment: try again", key.0))
        };
        refused.with_retry_after(self.limits().retry_after)
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
        let shard = {
            let shards = self.shards();
            let served: Vec<_> = shards.values().filter(|shard| shard.is_served()).collect();
            let turn = self.placement.turn(self.created.fetch_add(1, Ordering::Relaxed));
            (*served.get(turn.checked_rem(served.len())?)?).clone()
        };
        Some((self.placement.id_in(shard.key, rand::random()), shard))
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
