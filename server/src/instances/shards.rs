//! The shards of a server, which come and go, and which instances are where.
//!
//! A server that is no part of a cluster has one shard for ever. In a cluster it takes shards and loses them
//! while it serves others: [`Instances::add_shard`], [`Recovery`](super::Recovery),
//! [`Instances::serve_shard`], and at the end [`Instances::drop_shard`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::Instances;
use super::checkpoints::Captured;
use super::instance::Instance;
use super::placement::ShardKey;
use super::recovery::Recovered;
use super::shard::ShardContext;
use crate::commit_log::{CommitLog, CommitOutcome, Dirty, DurableLog};
use crate::gate::{Gate, Uncommitted};

/// Instances that are visited before other tasks run.
const PAGE: usize = 256;

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

    /// The server owns this shard from now on, and commits its steps to `log`. Its instances are found once
    /// it is [served](Self::serve_shard); the records of its engine are recovered before. If that fails, the
    /// shard is to be [dropped](Self::drop_shard).
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
        let (instances, resolved) = (Arc::downgrade(self), Arc::downgrade(&shard));
        log.on_commit(Box::new(move |id, outcome| {
            if let (Some(instances), Some(shard)) = (instances.upgrade(), resolved.upgrade()) {
                instances.resolve(&shard, id, outcome);
            }
        }));
        Ok(shard)
    }

    /// Continues the log behind its recovered part, and has the shard served. The time that was served before
    /// this server is an input of its own of every instance that waits for time, before the restart: so each
    /// replay has the same result (F3).
    pub(crate) async fn go_on(&self, shard: &Arc<ShardContext>, log: &DurableLog, recovered: Recovered) {
        let Recovered { last, served, dirty, .. } = recovered;
        log.begin(last, served, dirty.clone());
        // All that have not ended are among them, and no other one waits for time.
        for some in dirty.chunks(PAGE) {
            let found = some.iter().filter_map(|it| self.get_of(shard, it.instance));
            found.for_each(|instance| instance.catch_up(served));
            tokio::task::yield_now().await;
        }
        log.restart().await;
        self.serve_shard(shard, served).await;
    }

    /// The shard has been recovered, and is served from now on: the restart, whose record is committed, is an
    /// input of each of its instances, and their time goes on (F3). `served`: how long they had been served.
    /// Other tasks run between pages: those that tell that the server is not ready yet.
    pub(crate) async fn serve_shard(&self, shard: &Arc<ShardContext>, served: Duration) {
        self.each_of(shard, |instance| instance.go_on(served, Instant::now())).await;
        shard.set_served();
    }

    /// The server owns this shard no more, for the reason `why`: nothing of it is written or told from now
    /// on. All its instances go; a client that waits for one of them, or has a session or a Watch there, is
    /// told why. A recovery that is under way ends first. When the first call returns, nothing is left of the
    /// shard, and it may be added again.
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

    /// Writes checkpoints of the shard and trims its log if that has so many bytes of batches, and more than
    /// of checkpoints; and how long instances have been served, if that is due. Returns whether checkpoints
    /// were written.
    pub(crate) async fn keep_short(
        &self,
        shard: &Arc<ShardContext>,
        log: &DurableLog,
        tail_bytes: u64,
    ) -> bool {
        log.write_served_time_if_due();
        let usage = log.usage();
        let is_long = usage.batches >= tail_bytes.max(usage.checkpoints);
        if is_long {
            self.write_checkpoints(shard, log).await;
        }
        is_long
    }

    /// Gives every instance of the shard that has new records a checkpoint, and trims its log.
    pub(crate) async fn write_checkpoints(&self, shard: &Arc<ShardContext>, log: &DurableLog) {
        /// Enough for the disk, and few enough that the inputs behind them do not wait long.
        const BYTES_AT_ONCE: usize = 256 * 1024;
        let (needed_from, mut dirty) = log.begin_checkpoints();
        dirty.sort_unstable();
        dirty.dedup();
        let mut bytes = 0;
        for Dirty { number, instance } in dirty {
            let found = {
                let registry = self.registry();
                registry.get(instance).map(|found| (found.clone(), registry.holds_name(found)))
            };
            bytes += match &found {
                // The shard was dropped and is here again: this is the log of it no more.
                Some((instance, _)) if !Arc::ptr_eq(&instance.shard, shard) => return,
                Some((instance, holds_name)) => Captured::of(instance, log, !holds_name)
                    .map_or_else(|| log.checkpoint(number, None), |captured| captured.write(instance, log)),
                None => log.checkpoint(number, None),
            };
            if bytes >= BYTES_AT_ONCE {
                log.committed().await;
                bytes = 0;
            }
        }
        log.committed().await;
        log.trim(needed_from);
    }

    /// Registers an instance that was found in the log, whatever the limits are by now. Returns whether it
    /// has not ended.
    pub(super) fn adopt(&self, instance: &Arc<Instance>) -> bool {
        instance.shard.skip_number(instance.config.number);
        // The logs of two shards do not say which of two instances took the name of the other, when that was
        // closed.
        let name = instance.config.name.as_ref();
        let named = name.and_then(|name| self.registry().named(name).cloned());
        let keeps = named.filter(|it| !Arc::ptr_eq(&it.shard, &instance.shard) && !it.is_closed());
        let inner = &mut *instance.lock();
        let is_live = !inner.has_ended();
        let (guard, share) = {
            let mut registry = self.registry_mut();
            let inserted = registry.insert(instance, self.capacity(&instance.shard), is_live);
            if let Some(keeps) = keeps {
                registry.give_name_back(&keeps);
            }
            inserted
        };
        instance.config().shared.make_known(&self.known);
        inner.set_share(share, &instance.config);
        inner.set_live_guard(guard);
        is_live
    }

    /// Does this with all instances of the shard.
    async fn each_of(&self, shard: &Arc<ShardContext>, mut act: impl FnMut(&Arc<Instance>)) {
        let mut after: Option<InstanceId> = None;
        loop {
            let page: Vec<_> = self.registry().after(after).take(PAGE).cloned().collect();
            let Some(last) = page.last() else { return };
            after = Some(last.config().id);
            page.iter().filter(|instance| Arc::ptr_eq(&instance.shard, shard)).for_each(&mut act);
            drop(page);
            tokio::task::yield_now().await;
        }
    }

    /// The instance with this id, unless it is one of a shard of the same key that was taken again.
    fn get_of(&self, shard: &Arc<ShardContext>, id: InstanceId) -> Option<Arc<Instance>> {
        self.registry().get(id).filter(|it| Arc::ptr_eq(&it.shard, shard)).cloned()
    }

    /// The log of the shard resolves steps of an instance.
    pub(super) fn resolve(
        self: &Arc<Self>,
        shard: &Arc<ShardContext>,
        id: InstanceId,
        resolved: CommitOutcome,
    ) {
        if let CommitOutcome::Refused(why) = &resolved
            && why.reason == RefusalReason::OwnerLost
            && shard.lost.get().is_none()
        {
            // An ownership that is lost for one instance is lost for the shard.
            let (instances, shard, why) = (self.clone(), shard.clone(), (**why).clone());
            tokio::spawn(async move { instances.drop_shard(&shard, why).await });
        }
        let Some(instance) = self.get_of(shard, id) else { return };
        // A panic is the end of this instance, and must not be that of all resolving.
        let is_gone = catch_unwind(AssertUnwindSafe(|| instance.resolve(resolved))).unwrap_or_else(|_| {
            instance.abandon();
            true
        });
        if is_gone {
            self.remove(&instance);
        }
    }
}

/// The places of instances.
impl Instances {
    /// The reason for which the instance with this id is not found here: a refusal that is told when this
    /// server is confirmed to own the shard of the instance.
    pub(crate) fn not_found_reason(&self, id: InstanceId) -> Uncommitted<RpcRefusal> {
        match self.find_by_id(id) {
            // It is found when it is asked for again.
            Ok(_) => Uncommitted::new(self.not_owner(self.placement.shard_of(id)), Gate::OPEN),
            Err((refused, shard)) => Uncommitted::new(refused, shard.map_or(Gate::OPEN, |it| it.ownership())),
        }
    }

    /// The instance with this id; or why it is not here, and the shard of which this says that there is none.
    /// There is none if the shard was served before it was looked for, and still is: a shard that is served
    /// only since, or again, has brought its instances with it.
    pub(super) fn find_by_id(
        &self,
        id: InstanceId,
    ) -> Result<Arc<Instance>, (RpcRefusal, Option<Arc<ShardContext>>)> {
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

    /// The refusal of a call for an instance of a shard that is not served here.
    pub(super) fn not_owner(&self, key: ShardKey) -> RpcRefusal {
        let is_leaving = self.shards().get(&key).is_some_and(|shard| shard.is_leaving_or_lost());
        let refused = self.placement.not_owner(key, is_leaving);
        if refused.owner.is_some() { refused } else { refused.with_retry_after(self.limits().retry_after) }
    }

    /// The refusal of calls for an instance that was dropped with its shard, which another server owns by
    /// now.
    pub(crate) fn owner_lost(&self, shard: &ShardContext) -> Option<RpcRefusal> {
        let why = shard.lost.get()?;
        Some(match self.placement.owner_of(shard.key) {
            Some(owner) => why.clone().with_owner(owner),
            None => why.clone(),
        })
    }

    /// A shard for a new instance, and an id within it: all that are served take turns.
    ///
    /// # Errors
    /// If none is served.
    pub(super) fn draw_id(&self) -> Result<(InstanceId, Arc<ShardContext>), RpcRefusal> {
        let shard = {
            let shards = self.shards();
            let served: Vec<_> = shards.values().filter(|shard| shard.is_served()).collect();
            let turn = self.placement.turn(self.created.fetch_add(1, Ordering::Relaxed));
            turn.checked_rem(served.len()).map(|turn| served[turn].clone())
        };
        let Some(shard) = shard else {
            let why = "the server owns no shard at the moment: try another one, or again";
            let refused = RpcRefusal::new(RefusalReason::NotOwner, why);
            return Err(refused.with_retry_after(self.limits().retry_after));
        };
        Ok((self.placement.id_in(shard.key, rand::random()), shard))
    }
}

#[cfg(test)]
mod tests;
