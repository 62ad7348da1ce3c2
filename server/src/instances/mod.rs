//! All instances that the server holds, live and ended: creating and finding them, waking and removing them.

mod archive;
mod byte_share;
mod capacity;
mod checkpoints;
mod config;
mod effects;
mod expirations;
mod instance;
mod lifecycle;
mod lifetime;
mod live;
mod load_monitor;
mod names;
mod outbox;
mod placement;
mod recovery;
mod registry;
mod roster;
mod sessions;
mod shard;
mod shards;
mod timers;
mod view;
mod waiters;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Seed;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::auth::Principal;
use crate::commit_log::{CommitLog, LogState, Logs};
use crate::gate::{Gates, Uncommitted};
use crate::limits::Limits;
use crate::metrics::StepCounters;
use crate::quota::KnownPrincipals;

pub(crate) use config::SharedConfig;
pub(crate) use instance::{Instance, UnaryAccess, UnaryAnswer};
pub(crate) use live::Submitted;
pub(crate) use load_monitor::LoadMonitor;
#[cfg(feature = "cluster")]
pub(crate) use names::Claimed;
pub(crate) use names::NameClaims;
pub(crate) use outbox::{Outbox, Outgoing, Polled, Receiver};
#[cfg(feature = "cluster")]
pub(crate) use placement::owner_lost;
pub(crate) use placement::{Placement, ShardKey};
pub use recovery::RecoveryError;
pub(crate) use recovery::{Part, Recovered, Recovery};
pub(crate) use sessions::SessionSink;
pub(crate) use shard::{ShardContext, WatcherId};
pub(crate) use view::{Snapshot, Summary, WatchPoll};
pub(crate) use waiters::{CompletedAccess, Waiter};

use byte_share::InstanceShare;
use capacity::{Shortage, UNTIL_AN_END, never_fits};
use config::{InstanceConfig, Lifetimes};
use load_monitor::LiveGuard;
use placement::OneShard;
use registry::{Capacity, Registry};
use shard::Context;

/// The content of a Create; the parameters are checked, the roster fits them.
#[derive(Debug)]
pub(crate) struct CreateSpec {
    pub(crate) name: Option<InstanceName>,
    pub(crate) params: Params,
    /// Whether the request gave the seed; a drawn seed matches any (F11).
    pub(crate) seed_given: bool,
    pub(crate) roster: Vec<String>,
}

/// The resources that all instances use together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstanceUsage {
    /// Instances that were created and removed since the server started.
    pub(crate) created: u64,
    pub(crate) removed: u64,
    /// Instances, ended ones included.
    pub(crate) held: usize,
    /// Those of them that were closed.
    pub(crate) closed: usize,
    /// Their processes.
    pub(crate) processes: usize,
    /// Bytes that they may come to take, without their event logs.
    pub(crate) reserved_bytes: usize,
    /// Bytes of their event logs.
    pub(crate) event_bytes: usize,
    /// Bytes that they may come to take of the log.
    pub(crate) log_bytes: usize,
    /// See [`CommitLog::uncommitted_bytes`].
    pub(crate) uncommitted_bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Instances {
    registry: RwLock<Registry>,
    context: Arc<Context>,
    /// The shards that this server owns, or has not dropped wholly yet.
    shards: RwLock<BTreeMap<ShardKey, Arc<ShardContext>>>,
    /// Their logs.
    logs: Arc<Logs>,
    gates: Gates,
    placement: Arc<dyn Placement>,
    /// `None`: names are unique in the registry, and nowhere else.
    names: Option<Arc<dyn NameClaims>>,
    /// For how many new instances a shard was drawn.
    created: AtomicUsize,
    load: Arc<LoadMonitor>,
    known: KnownPrincipals,
}

impl Instances {
    /// No instances yet; their steps will be committed to `log`.
    #[cfg(test)]
    pub(crate) fn new(limits: Limits, log: &Arc<dyn CommitLog>) -> Arc<Self> {
        Self::with(limits, log, KnownPrincipals::default())
    }

    /// As [`Self::new`]; the processes of instances are among the known principals.
    pub(crate) fn with(limits: Limits, log: &Arc<dyn CommitLog>, known: KnownPrincipals) -> Arc<Self> {
        let instances = Self::without_shards(limits, log.state(), known, Arc::new(OneShard), None);
        let shard = instances.add_shard(ShardKey::default(), log).expect("it has no shard");
        // The service takes no calls before the shard has been recovered.
        shard.set_served();
        instances
    }

    /// No shards yet. `state`: shared by all their logs.
    pub(crate) fn without_shards(
        limits: Limits,
        state: &Arc<LogState>,
        known: KnownPrincipals,
        placement: Arc<dyn Placement>,
        names: Option<Arc<dyn NameClaims>>,
    ) -> Arc<Self> {
        let load = Arc::new(LoadMonitor::new(&limits));
        let context = Context::new(limits, state);
        let logs = Arc::new(Logs::new(state.clone()));
        let (registry, shards, created) = (RwLock::default(), RwLock::default(), AtomicUsize::new(0));
        let gates = Gates::new(logs.clone());
        Arc::new(Self { registry, context, shards, logs, gates, placement, names, created, load, known })
    }

    /// The shards of instances and the owners of shards.
    pub(crate) fn placement(&self) -> &dyn Placement {
        &*self.placement
    }

    /// The logs of all shards.
    pub(crate) fn logs(&self) -> &Arc<Logs> {
        &self.logs
    }

    /// The maker of gates for answers without a step of an instance.
    pub(crate) fn gates(&self) -> &Gates {
        &self.gates
    }

    /// The reason for which nothing may be told any more, if a log has failed.
    pub(crate) fn log_failure(&self) -> Option<RpcRefusal> {
        self.gates.failure().cloned()
    }

    /// Measures whether the server keeps up.
    pub(crate) fn load(&self) -> &Arc<LoadMonitor> {
        &self.load
    }

    /// The counters of the steps of all instances.
    pub(crate) fn steps(&self) -> &StepCounters {
        &self.context.steps
    }

    /// The resources that all instances use together now.
    pub(crate) fn usage(&self) -> InstanceUsage {
        let registry = self.registry();
        InstanceUsage {
            created: registry.inserted,
            removed: registry.removed,
            held: registry.held(),
            closed: self.context.closed(),
            processes: registry.processes(),
            reserved_bytes: registry.memory_bytes(),
            event_bytes: self.context.event_budget.held(),
            log_bytes: registry.log_bytes(),
            uncommitted_bytes: self.logs.uncommitted_bytes(),
        }
    }

    /// Wakes instances when their timers fire and removes those that have expired, for ever.
    pub(crate) async fn run_timers(&self) {
        let wake = |id, due| {
            let Some(instance) = self.registry().get(id).cloned() else { return 0 };
            let processes = instance.params().processes();
            // A panic in its step is the end of this instance, and must not be that of all timers.
            if catch_unwind(AssertUnwindSafe(|| instance.wake(due))).unwrap_or(true) {
                self.remove(&instance);
            }
            processes
        };
        self.context.timers.run(wake).await;
    }

    fn remove(&self, instance: &Arc<Instance>) {
        let (id, now) = (instance.config().id, self.context.timers.now());
        {
            let mut registry = self.registry_mut();
            // Another one of this id may be there: of a shard that was dropped and taken again.
            if !registry.get(id).is_some_and(|held| Arc::ptr_eq(held, instance)) {
                return;
            }
            let _ = registry.remove(id, now);
        }
        if instance.is_closed() {
            self.context.forget_closed();
        }
        tracing::debug!(instance = %id, "removed");
    }

    fn limits(&self) -> &Limits {
        &self.context.limits
    }

    /// The server drains: unary calls that wait find that no answer will come. Their accesses stay.
    pub(crate) fn cancel_waiters(&self) {
        const PAGE: usize = 1_024;
        let mut after = None;
        loop {
            let page = self.after(after, PAGE);
            let Some(last) = page.last() else { return };
            after = Some(last.config().id);
            page.iter().for_each(|instance| instance.cancel_waiters());
        }
    }

    /// The instance with this id (F11).
    pub(crate) fn get(&self, id: InstanceId) -> Result<Arc<Instance>, RpcRefusal> {
        let found = self.registry().get(id).filter(|instance| instance.shard.is_served()).cloned();
        found.map_or_else(|| self.find_by_id(id).map_err(|(refused, _)| refused), Ok)
    }

    /// The instance with this id or name. See [`NameClaims`] for names of instances that are not here.
    pub(crate) async fn find(&self, which: &InstanceRef) -> Result<Arc<Instance>, RpcRefusal> {
        let name = match which {
            InstanceRef::Id(id) => return self.get(*id),
            InstanceRef::Name(name) => name,
        };
        let found = self.registry().named(name).cloned();
        match found {
            Some(found) if found.shard.is_served() && !found.is_closed() => Ok(found),
            found => self.find_claimed(name, found).await,
        }
    }

    /// At most `limit` instances after this id, in the order of their ids, of shards that are served.
    pub(crate) fn after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        self.registry().served_after(id, limit)
    }

    /// The number of instances that are held.
    pub(crate) fn held(&self) -> usize {
        self.registry().held()
    }

    /// Creates an instance, or finds the equal one of the same name (F11); true if it was created. A closed
    /// instance keeps its name until another takes it, once the close is committed. A call that is cancelled
    /// while it waits for that has created nothing.
    ///
    /// # Errors
    /// The reason for which there is none.
    pub(crate) async fn create(
        &self,
        creator: &Principal,
        spec: CreateSpec,
    ) -> Result<Uncommitted<(Arc<Instance>, bool)>, RpcRefusal> {
        let CreateSpec { name, params, seed_given, roster } = spec;
        let lifetimes = Lifetimes::of(self.limits());
        let shared = self.intern(SharedConfig::new(creator.clone(), &params, &roster, lifetimes));
        let (id, shard) = self.draw_id()?;
        if let Some(why) = never_fits(&shared, self.limits(), shard.log.keeps_inputs()) {
            return Err(RpcRefusal::new(RefusalReason::BadParameters, why));
        }
        if let Some(name) = &name {
            self.check_name(name).await?;
        }
        let mut config = InstanceConfig::new(id, 0, name, params.spec().seed, shared);
        loop {
            let named = config.name.as_ref().and_then(|name| self.registry().named(name).cloned());
            let mut closed = None;
            if let Some(existing) = named {
                if !existing.shard.is_served() {
                    // It may not be as far as its log is, or is another server's by now.
                    return Err(self.not_owner(existing.shard.key));
                }
                let (state, gate) = existing.uncommitted_state();
                if let Ok(state @ (State::Gathering | State::Running | State::Finished)) = state {
                    if let Err(differs) = existing.config().check_same(state, &config, seed_given) {
                        // Whether there is such an instance is known when its creation is committed.
                        gate.await?;
                        return Err(differs);
                    }
                    return Ok(Uncommitted::new((existing, false), gate));
                }
                match gate.await.and(state) {
                    Ok(_) => closed = Some(existing.config().id),
                    // The instance is held by another server.
                    Err(lost) if lost.reason == RefusalReason::OwnerLost => return Err(lost),
                    Err(_) => {
                        // The instance is gone, and with it its claim to the name.
                        self.remove(&existing);
                        continue;
                    }
                }
            }
            self.check_capacity(&self.registry(), &config.shared, &shard)?;
            // The log is read back in the order of numbers: an instance that takes a name has a higher number
            // than the one that gave it up.
            config.number = shard.next_number();
            // A large instance takes long to build: the lock of the registry is not held meanwhile.
            let instance = Arc::new(Instance::new(config.clone(), shard.clone()));
            // Nobody else finds the instance before its creation is in the log: its lock is held until then.
            let mut inner = instance.lock();
            if let Some((guard, share)) = self.insert(&instance, closed)? {
                inner.set_live_guard(guard);
                inner.share = Some(share);
                let created = instance.start(&mut inner);
                drop(inner);
                if created.is_err() {
                    self.remove(&instance);
                }
                return Ok(created?.map(|()| (instance, true)));
            }
        }
    }

    /// This configuration, or the equal one of another instance. The two may be long, so they are compared
    /// here and not under the lock of the registry.
    fn intern(&self, config: SharedConfig) -> Arc<SharedConfig> {
        let found = self.registry().configs.find_equal(&config);
        found.filter(|found| **found == config).unwrap_or_else(|| Arc::new(config))
    }

    /// The different shared configurations of the instances of this creator, with their rosters; at most so
    /// many.
    pub(crate) fn configs_of_creator(&self, creator: &Principal, limit: usize) -> Vec<Arc<SharedConfig>> {
        self.registry().configs.of_creator(creator, limit)
    }

    /// Registers an instance if there is capacity for it. `None`: another instance than the closed one has
    /// its name.
    fn insert(
        &self,
        instance: &Arc<Instance>,
        closed: Option<InstanceId>,
    ) -> Result<Option<(Option<LiveGuard>, InstanceShare)>, RpcRefusal> {
        let shared = &instance.config().shared;
        self.check_checkpoint(shared, &instance.shard)?;
        instance.check_record()?;
        let mut registry = self.registry_mut();
        let named = instance.config().name.as_ref().and_then(|name| registry.named(name));
        if named.map(|named| named.config().id) != closed {
            return Ok(None);
        }
        self.check_capacity(&registry, shared, &instance.shard)?;
        let (guard, share) = registry.insert(instance, self.capacity(&instance.shard), true);
        drop(registry);
        // Not before there is room for the instance: principals that are known share a reserve.
        shared.make_known(&self.known);
        Ok(Some((guard, share)))
    }

    /// A checkpoint is one value of the log, which bounds their length.
    fn check_checkpoint(&self, config: &SharedConfig, shard: &ShardContext) -> Result<(), RpcRefusal> {
        let checkpoint = self.limits().log_case(&config.params, config.roster.bytes()) / 2;
        if !shard.log.keeps_inputs() || checkpoint <= LARGEST_CHECKPOINT {
            return Ok(());
        }
        let why = format!(
            "the state of such an instance may come to {checkpoint} bytes, and the log takes {LARGEST_CHECKPOINT}: give fewer \
             processes, a shorter pipeline or shorter values"
        );
        Err(RpcRefusal::new(RefusalReason::BadParameters, why))
    }

    /// Whether there is capacity for a new instance with this configuration.
    fn check_capacity(
        &self,
        registry: &Registry,
        config: &SharedConfig,
        shard: &ShardContext,
    ) -> Result<(), RpcRefusal> {
        if let Some(why) = self.placement.no_space() {
            return Err(self.refused_for_space(why));
        }
        registry.shortage(config, self.capacity(shard)).map_or(Ok(()), |Shortage { why, until }| {
            let now = self.context.timers.now();
            let wait = registry.shortest_wait(until, &config.creator, &self.load, now).unwrap_or_default();
            let wait = wait.max(self.limits().retry_after);
            Err(RpcRefusal::new(RefusalReason::TooManyInstances, why).with_retry_after(wait))
        })
    }

    /// The refusal of a new instance for want of space in the store that the servers share.
    pub(crate) fn refused_for_space(&self, why: String) -> RpcRefusal {
        let refused = RpcRefusal::new(RefusalReason::TooManyInstances, why);
        refused.with_retry_after(UNTIL_AN_END.max(self.limits().retry_after))
    }

    fn capacity(&self, shard: &ShardContext) -> Capacity<'_> {
        let (has_log, coordinators) = (shard.log.keeps_inputs(), self.known.coordinators());
        Capacity { limits: self.limits(), load: &self.load, has_log, coordinators }
    }

    fn registry(&self) -> RwLockReadGuard<'_, Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shards(&self) -> RwLockReadGuard<'_, BTreeMap<ShardKey, Arc<ShardContext>>> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shards_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<ShardKey, Arc<ShardContext>>> {
        self.shards.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry_mut(&self) -> RwLockWriteGuard<'_, Registry> {
        self.registry.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes of the largest checkpoint that a log has to take: less than the longest value of its engine (3 GiB).
const LARGEST_CHECKPOINT: usize = 5 << 29;

fn unknown(which: &str) -> RpcRefusal {
    let why = format!(
        "there is no instance {which}: it never was, has expired, or was lost with the server's memory"
    );
    RpcRefusal::new(RefusalReason::InstanceUnknown, why)
}

/// A seed for an instance whose request gave none (W4).
pub(crate) fn draw_seed() -> Seed {
    Seed::new(rand::random())
}

#[cfg(test)]
mod tests;
