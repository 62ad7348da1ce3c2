//! All living instances: by id, by name, and until when.

mod answered;
mod callers;
mod ended;
mod guarded;
mod house;
mod instance;
mod life;
mod outbox;
mod outlets;
mod pressure;
mod terms;
mod timers;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Seed;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::status::Refused;
use stickycas_proto::v1::RefusalReason;

use crate::identity::{Caller, Principal};
use crate::limits::Limits;

pub(crate) use answered::Answered;
pub(crate) use callers::Ticket;
pub(crate) use house::WatcherId;
pub(crate) use instance::{Instance, Next, NotTaken, Opened, Snapshot, Taken};
pub(crate) use outbox::{Out, Outbox, Taker, how_many};
pub(crate) use outlets::Outlet;
pub(crate) use pressure::Pressure;
pub(crate) use terms::{Facts, Terms};

use house::House;
use pressure::Presence;
use terms::AllTerms;

/// What somebody asks to be created; the parameters are checked, the roster fits them.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) name: Option<InstanceName>,
    pub(crate) params: Params,
    /// Whether the request gave the seed; a drawn one equals any (F11).
    pub(crate) seed_given: bool,
    pub(crate) roster: Vec<String>,
}

/// All living instances.
#[derive(Debug)]
pub(crate) struct Instances {
    living: RwLock<Living>,
    house: Arc<House>,
    pressure: Arc<Pressure>,
}

/// Of one creator.
#[derive(Debug, Default)]
struct Created {
    /// Living instances.
    living: usize,
    /// Those of them that are under way.
    under_way: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Living {
    by_id: BTreeMap<InstanceId, Arc<Instance>>,
    by_name: HashMap<InstanceName, InstanceId>,
    by_creator: HashMap<Principal, Created>,
    terms: AllTerms,
    /// Processes of all of them together.
    processes: usize,
    /// What they may come to take once they have ended, in bytes.
    ended_case: usize,
}

impl Instances {
    pub(crate) fn new(limits: Limits) -> Self {
        let pressure = Arc::new(Pressure::new(&limits));
        Self { living: RwLock::default(), house: House::new(limits), pressure }
    }

    /// Whether the server keeps up.
    pub(crate) fn pressure(&self) -> &Arc<Pressure> {
        &self.pressure
    }

    /// Wakes instances when their time has come and lets go of those that have expired, for ever.
    pub(crate) async fn run_timers(&self) {
        let wake = |id| {
            let instance = self.living().by_id.get(&id).cloned();
            if instance.is_some_and(|instance| instance.wake()) {
                self.living_mut().remove(id, self.limits());
                tracing::debug!(instance = %id, "expired");
            }
        };
        let sleep = |at| async move {
            match self.house.moment(at) {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        self.house.timers.run(|| self.house.nanos(Instant::now()), sleep, wake).await;
    }

    fn limits(&self) -> &Limits {
        &self.house.limits
    }

    /// The server drains: unary calls that wait find that nobody will answer them. Their accesses stay.
    pub(crate) fn dismiss_callers(&self) {
        self.living().by_id.values().for_each(|instance| instance.dismiss_callers());
    }

    /// The instance with this id (F11).
    pub(crate) fn get(&self, id: InstanceId) -> Result<Arc<Instance>, Refused> {
        self.living().by_id.get(&id).cloned().ok_or_else(|| unknown(&id.to_string()))
    }

    /// The instance that is named so.
    pub(crate) fn find(&self, which: &InstanceRef) -> Result<Arc<Instance>, Refused> {
        match which {
            InstanceRef::Id(id) => self.get(*id),
            InstanceRef::Name(name) => {
                let living = self.living();
                let id = living.by_name.get(name);
                id.and_then(|id| living.by_id.get(id)).cloned().ok_or_else(|| unknown(name.as_str()))
            }
        }
    }

    /// At most `limit` instances after this id, in the order of their ids.
    pub(crate) fn after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.living().by_id.range((from, Bound::Unbounded)).take(limit).map(|(_, it)| it.clone()).collect()
    }

    /// Creates an instance, or finds the equal one of the same name (F11); true if it was created. A closed
    /// instance goes by its name until another takes it.
    pub(crate) fn create(&self, caller: &Caller, draft: Draft) -> Result<(Arc<Instance>, bool), Refused> {
        let seed_given = draft.seed_given;
        let terms = Terms::new(caller.principal.clone(), &draft.params, &draft.roster);
        let terms = self.living().terms.known(terms);
        let (id, seed) = (InstanceId::new(rand::random()), draft.params.spec().seed);
        let facts = Facts::new(id, draft.name, seed, terms);
        if let Some(existing) = self.place(&self.living(), &facts, seed_given, 0)? {
            return Ok((existing, false));
        }
        let reserved =
            self.limits().worst_case(&facts.terms.params) - self.limits().ended_case(&facts.terms.params);
        // A large one takes a while to build, and nobody should wait for that.
        let instance = Arc::new(Instance::new(facts, self.house.clone()));
        let mut living = self.living_mut();
        if let Some(existing) = self.place(&living, instance.facts(), seed_given, reserved)? {
            return Ok((existing, false));
        }
        let creator = living.insert(&instance, self.limits());
        instance.belongs_to(Presence::Empty(self.pressure.clone(), creator.clone()));
        Ok((instance, true))
    }

    /// Whether there is a place for a new instance, for which so many bytes are reserved already: `None`, or the equal
    /// one of the same name.
    fn place(
        &self,
        living: &Living,
        facts: &Facts,
        seed_given: bool,
        reserved: usize,
    ) -> Result<Option<Arc<Instance>>, Refused> {
        if let Some(name) = &facts.name
            && let Some(existing) = living.by_name.get(name).and_then(|id| living.by_id.get(id))
            && existing.state() != State::Closed
        {
            if existing.facts().answers(facts, seed_given) {
                return Ok(Some(existing.clone()));
            }
            let why = format!("{name} is the name of a living instance that was created differently");
            return Err(Refused::new(RefusalReason::NameTaken, why));
        }
        self.check_room(living, &facts.terms, reserved)?;
        Ok(None)
    }

    fn check_room(&self, living: &Living, terms: &Terms, reserved: usize) -> Result<(), Refused> {
        let (limits, processes) = (self.limits(), terms.params.processes() as usize);
        let creator = living.by_creator.get(&terms.creator);
        let own = creator.map_or(0, |created| created.living);
        let under_way = creator.map_or(0, |created| created.under_way.load(Ordering::Relaxed));
        let worst_case = living.ended_case + self.house.reserved().saturating_sub(reserved);
        let full = if living.by_id.len() >= limits.instances {
            format!("the server holds {} instances, as many as it may", living.by_id.len())
        } else if own >= limits.instances_per_creator {
            format!("you have {own} living instances, as many as you may: close some")
        } else if living.processes + processes > limits.processes {
            format!(
                "the living instances have {} processes, and may have {}",
                living.processes, limits.processes
            )
        } else if worst_case + limits.worst_case(&terms.params) > limits.instance_bytes {
            format!(
                "the living instances may come to take {worst_case} bytes, and with this one more than the {} that \
                 they may: a smaller pipeline or smaller values need less",
                limits.instance_bytes
            )
        } else if self.pressure.refuses(under_way) {
            format!(
                "the server has all the work that it can do, and you have {under_way} instances under way: let some \
                 come to their end"
            )
        } else {
            return Ok(());
        };
        Err(Refused::new(RefusalReason::TooManyInstances, full).with_retry_after(limits.retry_after))
    }

    fn living(&self) -> RwLockReadGuard<'_, Living> {
        self.living.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn living_mut(&self) -> RwLockWriteGuard<'_, Living> {
        self.living.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Living {
    /// Adds an instance. How many of its creator's are under way, without this one.
    fn insert(&mut self, instance: &Arc<Instance>, limits: &Limits) -> &Arc<AtomicUsize> {
        let facts = instance.facts();
        let Terms { creator, params, .. } = &*facts.terms;
        if let Some(name) = &facts.name {
            self.by_name.insert(name.clone(), facts.id);
        }
        self.processes += params.processes() as usize;
        self.ended_case += limits.ended_case(params);
        self.terms.add(&facts.terms);
        let created = self.by_creator.entry(creator.clone()).or_default();
        created.living += 1;
        self.by_id.insert(facts.id, instance.clone());
        &created.under_way
    }

    fn remove(&mut self, id: InstanceId, limits: &Limits) {
        let Some(instance) = self.by_id.remove(&id) else { return };
        let facts = instance.facts();
        let Terms { creator, params, .. } = &*facts.terms;
        if let Some(name) = &facts.name
            && self.by_name.get(name) == Some(&id)
        {
            self.by_name.remove(name);
        }
        if let Some(created) = self.by_creator.get_mut(creator) {
            created.living -= 1;
            if created.living == 0 {
                self.by_creator.remove(creator);
            }
        }
        self.processes -= params.processes() as usize;
        self.ended_case -= limits.ended_case(params);
        self.terms.remove(&facts.terms);
    }
}

fn unknown(which: &str) -> Refused {
    let why = format!(
        "there is no instance {which}: it never was, has expired, or was lost with the server's memory"
    );
    Refused::new(RefusalReason::InstanceUnknown, why)
}

/// A seed for an instance whose request gave none (W4).
pub(crate) fn draw_seed() -> Seed {
    Seed::new(rand::random())
}
