//! The instances that the server holds, ended ones included: by id, by name (SPEC F11), by creator. Whether
//! there is capacity for another is in [`super::capacity`].
//!
//! The registry stands behind one lock, under which nothing is done that takes long: configurations are
//! hashed and compared before ([`super::config`]), machines are built before and dropped after, and no
//! instance is locked.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stickycas_proto::names::{InstanceId, InstanceName};

use super::byte_share::{CreatorReserve, InstanceShare, ReservedBytes};
use super::config::{Interner, SharedConfig};
use super::instance::Instance;
use super::load_monitor::{LiveGuard, LoadMonitor};
use crate::auth::Principal;
use crate::limits::Limits;

/// The values that decide whether there is capacity, beside the registry itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity<'a> {
    pub(super) limits: &'a Limits,
    pub(super) load: &'a LoadMonitor,
    /// Whether there is a log on disk.
    pub(super) has_log: bool,
    /// The number of principals that may create instances.
    pub(super) coordinators: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Registry {
    by_id: BTreeMap<InstanceId, Arc<Instance>>,
    by_name: HashMap<InstanceName, InstanceId>,
    by_creator: HashMap<Principal, CreatorUsage>,
    pub(super) configs: Interner,
    /// Processes of all instances together.
    processes: usize,
    /// Bytes that all instances may come to take.
    reserved: Arc<ReservedBytes>,
    /// Instances that were inserted and removed since the server started.
    pub(super) inserted: u64,
    pub(super) removed: u64,
}

/// The instances of one creator.
#[derive(Debug)]
pub(super) struct CreatorUsage {
    /// Instances held, ended ones included.
    pub(super) held: usize,
    /// Instances that have not ended.
    live: Arc<AtomicUsize>,
    pub(super) processes: usize,
    pub(super) reserve: Arc<CreatorReserve>,
}

impl CreatorUsage {
    /// Of a creator that has no instances yet.
    fn new(all: &Arc<ReservedBytes>) -> Self {
        let reserve = Arc::new(CreatorReserve::new(all));
        Self { held: 0, live: Arc::default(), processes: 0, reserve }
    }

    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

impl Registry {
    /// Instances held.
    pub(super) fn held(&self) -> usize {
        self.by_id.len()
    }

    /// Their processes.
    pub(super) fn processes(&self) -> usize {
        self.processes
    }

    /// Bytes that they may come to take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.reserved.memory()
    }

    /// The creators of the instances.
    pub(super) fn creators(&self) -> impl Iterator<Item = &CreatorUsage> {
        self.by_creator.values()
    }

    /// The instances of one creator.
    pub(super) fn creator(&self, creator: &Principal) -> Option<&CreatorUsage> {
        self.by_creator.get(creator)
    }

    /// Bytes of the log that they may come to take.
    pub(super) fn log_bytes(&self) -> usize {
        self.reserved.log()
    }

    pub(super) fn get(&self, id: InstanceId) -> Option<&Arc<Instance>> {
        self.by_id.get(&id)
    }

    /// The instance with this name.
    pub(super) fn named(&self, name: &InstanceName) -> Option<&Arc<Instance>> {
        self.get(*self.by_name.get(name)?)
    }

    /// Whether an instance is found by its name, if it has one.
    pub(super) fn holds_name(&self, instance: &Instance) -> bool {
        let config = instance.config();
        config.name.as_ref().is_none_or(|name| self.by_name.get(name) == Some(&config.id))
    }

    /// The instance is found by its name no more: another one has taken it.
    pub(super) fn release_name(&mut self, instance: &Instance) {
        if self.holds_name(instance)
            && let Some(name) = &instance.config().name
        {
            self.by_name.remove(name);
        }
    }

    /// The instance, which is held, is found by its name again.
    pub(super) fn give_name_back(&mut self, instance: &Instance) {
        let config = instance.config();
        if let Some(name) = &config.name
            && self.by_id.contains_key(&config.id)
        {
            self.by_name.insert(name.clone(), config.id);
        }
    }

    /// At most `limit` instances after this id, in the order of their ids, of shards that are served.
    pub(super) fn served_after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        self.after(id).filter(|it| it.shard().is_served()).take(limit).cloned().collect()
    }

    /// The instances after this id, of all shards.
    pub(super) fn after(&self, id: Option<InstanceId>) -> impl Iterator<Item = &Arc<Instance>> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(_, it)| it)
    }

    /// Adds an instance. If it is live it counts as that from now on, until the guard is dropped. Also
    /// returns what it has reserved.
    pub(super) fn insert(
        &mut self,
        instance: &Arc<Instance>,
        capacity: Capacity<'_>,
        is_live: bool,
    ) -> (Option<LiveGuard>, InstanceShare) {
        let shared = &instance.config().shared;
        let created = self.by_creator.entry(shared.creator.clone());
        let created = created.or_insert_with(|| CreatorUsage::new(&self.reserved));
        created.held += 1;
        self.inserted += 1;
        let guard = is_live.then(|| capacity.load.track(&created.live));
        let processes = shared.params.processes() as usize;
        created.processes += processes;
        let memory = capacity.limits.worst_case(&shared.params);
        let log = if capacity.has_log { shared.log_case(capacity.limits) } else { 0 };
        let share = InstanceShare::new(&created.reserve, memory, log);
        let config = instance.config();
        if let Some(name) = &config.name {
            self.by_name.insert(name.clone(), config.id);
        }
        self.processes += processes;
        self.configs.add(shared);
        self.by_id.insert(config.id, instance.clone());
        (guard, share)
    }

    /// Removes an instance at this moment. The caller drops it when the lock of the registry is free again.
    pub(super) fn remove(&mut self, id: InstanceId, now: u64) -> Option<Arc<Instance>> {
        let instance = self.by_id.remove(&id)?;
        self.removed += 1;
        let config = instance.config();
        let SharedConfig { creator, params, .. } = &*config.shared;
        if let Some(name) = &config.name
            && self.by_name.get(name) == Some(&id)
        {
            self.by_name.remove(name);
        }
        if let Some(created) = self.by_creator.get_mut(creator) {
            created.held -= 1;
            created.processes -= params.processes() as usize;
            created.reserve.expirations.forget(now);
            if created.held == 0 {
                self.by_creator.remove(creator);
            }
        }
        self.processes -= params.processes() as usize;
        self.configs.remove(&config.shared);
        Some(instance)
    }
}
