//! The instances that the server holds, ended ones included, and whether there is room for another.
//!
//! All of them stand behind one lock, and nothing that takes long is done under it: terms are hashed and compared
//! before ([`super::terms`]), machines are built before and dropped after, and no instance's own lock is taken.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stickycas_proto::names::{InstanceId, InstanceName};

use super::instance::Instance;
use super::pressure::Pressure;
use super::terms::{AllTerms, Terms};
use crate::auth::Principal;
use crate::limits::Limits;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Held {
    by_id: BTreeMap<InstanceId, Arc<Instance>>,
    by_name: HashMap<InstanceName, InstanceId>,
    by_creator: HashMap<Principal, Created>,
    pub(super) terms: AllTerms,
    /// Processes of all of them together.
    processes: usize,
    /// What they may come to take once they have ended, in bytes.
    ended_case: usize,
}

/// Of one creator.
#[derive(Debug, Default)]
struct Created {
    /// Instances held, ended ones included.
    held: usize,
    /// Those of them that have not ended.
    live: Arc<AtomicUsize>,
}

/// How the server stands beside the instances themselves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    pub(super) limits: &'a Limits,
    pub(super) pressure: &'a Pressure,
    /// Bytes that those who have not ended may come to take beyond what they may take then.
    pub(super) reserved: usize,
}

impl Held {
    pub(super) fn get(&self, id: InstanceId) -> Option<&Arc<Instance>> {
        self.by_id.get(&id)
    }

    /// Which instance goes by this name.
    pub(super) fn named(&self, name: &InstanceName) -> Option<&Arc<Instance>> {
        self.get(*self.by_name.get(name)?)
    }

    /// At most `limit` instances after this id, in the order of their ids.
    pub(super) fn after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).take(limit).map(|(_, it)| it.clone()).collect()
    }

    /// Why there is no room for an instance with these terms; `None` if there is.
    pub(super) fn lacks(&self, terms: &Terms, room: Room<'_>) -> Option<String> {
        self.lacks_places(&terms.creator, room).or_else(|| self.lacks_memory(terms, room))
    }

    fn lacks_places(&self, creator: &Principal, Room { limits, pressure, .. }: Room<'_>) -> Option<String> {
        let (held, live) = (self.by_id.len(), pressure.live());
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
        } else if pressure.refuses(own_live) {
            format!(
                "the server has all the work that it can do, and you have {own_live} instances that have not ended: \
                 let some come to their end"
            )
        } else {
            return None;
        })
    }

    fn lacks_memory(&self, terms: &Terms, Room { limits, reserved, .. }: Room<'_>) -> Option<String> {
        let worst_case = self.ended_case + reserved;
        Some(if self.processes + terms.params.processes() as usize > limits.processes {
            format!(
                "the instances that the server holds have {} processes, and may have {}",
                self.processes, limits.processes
            )
        } else if worst_case + limits.worst_case(&terms.params) > limits.instance_bytes {
            format!(
                "the instances that the server holds may come to take {worst_case} bytes, and with this one more than \
                 the {} that they may: a smaller pipeline or smaller values need less",
                limits.instance_bytes
            )
        } else {
            return None;
        })
    }

    /// Adds an instance, which counts as live from now on.
    pub(super) fn insert(&mut self, mut instance: Instance, room: Room<'_>) -> Arc<Instance> {
        let terms = instance.definition().terms.clone();
        let created = self.by_creator.entry(terms.creator.clone()).or_default();
        created.held += 1;
        instance.counts(room.pressure.begins(&created.live));
        let instance = Arc::new(instance);
        let definition = instance.definition();
        if let Some(name) = &definition.name {
            self.by_name.insert(name.clone(), definition.id);
        }
        self.processes += terms.params.processes() as usize;
        self.ended_case += room.limits.ended_case(&terms.params);
        self.terms.add(&terms);
        self.by_id.insert(definition.id, instance.clone());
        instance
    }

    /// Takes an instance out; to be dropped when nobody waits for it.
    pub(super) fn remove(&mut self, id: InstanceId, limits: &Limits) -> Option<Arc<Instance>> {
        let instance = self.by_id.remove(&id)?;
        let definition = instance.definition();
        let Terms { creator, params, .. } = &*definition.terms;
        if let Some(name) = &definition.name
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
        self.terms.remove(&definition.terms);
        Some(instance)
    }
}
