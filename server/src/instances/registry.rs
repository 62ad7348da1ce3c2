//! The instances that the server holds, ended ones included: by id, by name (SPEC F11), by creator; and whether there
//! is capacity for another.
//!
//! The registry stands behind one lock, under which nothing is done that takes long: configurations are hashed and
//! compared before ([`super::config`]), machines are built before and dropped after, and no instance is locked.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stickycas_proto::names::{InstanceId, InstanceName};

use super::config::{Interner, SharedConfig};
use super::instance::Instance;
use super::load_monitor::{LiveGuard, LoadMonitor};
use super::log_share::{LogReserve, LogShare};
use crate::auth::Principal;
use crate::limits::Limits;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Registry {
    by_id: BTreeMap<InstanceId, Arc<Instance>>,
    by_name: HashMap<InstanceName, InstanceId>,
    by_creator: HashMap<Principal, CreatorUsage>,
    pub(super) configs: Interner,
    /// Processes of all instances together.
    processes: usize,
    /// Bytes that all instances may come to take once they have ended.
    ended_case: usize,
    log: LogReserve,
    /// Instances that were inserted and removed since the server started.
    pub(super) inserted: u64,
    pub(super) removed: u64,
}

/// The instances of one creator.
#[derive(Debug, Default)]
struct CreatorUsage {
    /// Instances held, ended ones included.
    held: usize,
    /// Instances that have not ended.
    live: Arc<AtomicUsize>,
    log: LogReserve,
}

/// What decides whether there is capacity, beside the registry itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity<'a> {
    pub(super) limits: &'a Limits,
    pub(super) load: &'a LoadMonitor,
    /// Bytes that live instances may come to take beyond what they may take once they have ended.
    pub(super) reserved: usize,
    /// Whether there is a log on disk.
    pub(super) has_log: bool,
}

impl Registry {
    /// Instances held, their processes, and the bytes that they may come to take once they have ended.
    pub(super) fn usage(&self) -> (usize, usize, usize) {
        (self.by_id.len(), self.processes, self.ended_case)
    }

    /// Bytes of the log that they may come to take.
    pub(super) fn log_bytes(&self) -> usize {
        self.log.bytes()
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

    /// At most `limit` instances after this id, in the order of their ids.
    pub(super) fn after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).take(limit).map(|(_, it)| it.clone()).collect()
    }

    /// Why there is no capacity for an instance with this configuration; `None` if there is.
    pub(super) fn shortage(&self, config: &SharedConfig, capacity: Capacity<'_>) -> Option<String> {
        self.count_shortage(&config.creator, capacity)
            .or_else(|| self.memory_shortage(config, capacity))
            .or_else(|| self.log_shortage(config, capacity))
    }

    fn log_shortage(
        &self,
        config: &SharedConfig,
        Capacity { limits, has_log, .. }: Capacity<'_>,
    ) -> Option<String> {
        if !has_log {
            return None;
        }
        let needed = log_case(config, limits);
        let (all, limit) = (self.log.bytes(), limits.log_bytes);
        let own = self.by_creator.get(&config.creator).map_or(0, |created| created.log.bytes());
        let own_limit = limits.log_bytes_per_creator;
        Some(if all + needed > limit {
            format!(
                "the instances that the server holds may come to take {all} bytes of its log, and with this one more than \
                 the {limit} that they may: wait until some have ended"
            )
        } else if own + needed > own_limit {
            format!(
                "your instances may come to take {own} bytes of the server's log, and with this one more than the \
                 {own_limit} that they may: let some come to their end"
            )
        } else {
            return None;
        })
    }

    fn count_shortage(
        &self,
        creator: &Principal,
        Capacity { limits, load, .. }: Capacity<'_>,
    ) -> Option<String> {
        let (held, live) = (self.by_id.len(), load.live());
        let created = self.by_creator.get(creator);
        let own_held = created.map_or(0, |created| created.held);
        let own_live = created.map_or(0, |created| created.live.load(Ordering::Relaxed));
        let retention = humantime::format_duration(limits.retention);
        Some(if live >= limits.live_instances {
            format!(
                "the server has {live} instances that have not ended, as many as it may: wait until some have"
            )
        } else if own_live >= limits.live_instances_per_creator {
            format!(
                "you have {own_live} instances that have not ended, as many as you may: let some come to their end, or \
                 close some"
            )
        } else if held >= limits.instances {
            format!(
                "the server holds {held} instances, ended ones included, as many as it may: each is let go of \
                 {retention} after its end"
            )
        } else if own_held >= limits.instances_per_creator {
            format!(
                "the server holds {own_held} instances of yours, ended ones included, as many as it may: each is let \
                 go of {retention} after its end"
            )
        } else if load.refuses(own_live) {
            format!(
                "the server has all the work that it can do, and you have {own_live} instances that have not ended: \
                 let some come to their end"
            )
        } else {
            return None;
        })
    }

    fn memory_shortage(
        &self,
        config: &SharedConfig,
        Capacity { limits, reserved, .. }: Capacity<'_>,
    ) -> Option<String> {
        let worst_case = self.ended_case + reserved;
        Some(if self.processes + config.params.processes() as usize > limits.processes {
            format!(
                "the instances that the server holds have {} processes, and may have {}",
                self.processes, limits.processes
            )
        } else if worst_case + limits.worst_case(&config.params) > limits.instance_bytes {
            format!(
                "the instances that the server holds may come to take {worst_case} bytes, and with this one more than \
                 the {} that they may: a smaller pipeline or smaller values need less",
                limits.instance_bytes
            )
        } else {
            return None;
        })
    }

    /// Adds an instance, which counts as live from now on, until the guard is dropped. Also returns its share of the
    /// log, if there is one.
    pub(super) fn insert(
        &mut self,
        instance: &Arc<Instance>,
        capacity: Capacity<'_>,
    ) -> (LiveGuard, Option<LogShare>) {
        let shared = &instance.config().shared;
        let created = self.by_creator.entry(shared.creator.clone()).or_default();
        created.held += 1;
        self.inserted += 1;
        let guard = capacity.load.track(&created.live);
        let bytes = capacity.has_log.then(|| log_case(shared, capacity.limits));
        let log_share = bytes.map(|bytes| LogShare::new([&self.log, &created.log], bytes));
        let config = instance.config();
        if let Some(name) = &config.name {
            self.by_name.insert(name.clone(), config.id);
        }
        self.processes += shared.params.processes() as usize;
        self.ended_case += capacity.limits.ended_case(&shared.params);
        self.configs.add(shared);
        self.by_id.insert(config.id, instance.clone());
        (guard, log_share)
    }

    /// Removes an instance. The caller drops it when the lock of the registry is free again.
    pub(super) fn remove(&mut self, id: InstanceId, limits: &Limits) -> Option<Arc<Instance>> {
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
            if created.held == 0 {
                self.by_creator.remove(creator);
            }
        }
        self.processes -= params.processes() as usize;
        self.ended_case -= limits.ended_case(params);
        self.configs.remove(&config.shared);
        Some(instance)
    }
}

/// Bytes of the log that an instance with this configuration may come to take.
fn log_case(config: &SharedConfig, limits: &Limits) -> usize {
    limits.log_case(&config.params, config.roster.bytes())
}
