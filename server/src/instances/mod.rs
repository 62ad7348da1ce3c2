//! All instances that the server holds, live and ended: by id, by name, and until when.

mod answered;
mod callers;
mod ended;
mod guarded;
mod held;
mod house;
mod instance;
mod life;
mod look;
mod outbox;
mod outlets;
mod pressure;
mod terms;
mod timers;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Seed;
use stickycas_proto::names::{InstanceId, InstanceName, InstanceRef};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::auth::Principal;
use crate::limits::Limits;

pub(crate) use answered::Answered;
pub(crate) use callers::Ticket;
pub(crate) use house::WatcherId;
pub(crate) use instance::{Instance, NotTaken, Opened, Taken};
pub(crate) use look::{Next, Snapshot};
pub(crate) use outbox::{Out, Outbox, Taker};
pub(crate) use outlets::Outlet;
pub(crate) use pressure::Pressure;
pub(crate) use terms::{Definition, Terms};

use held::{Held, Room};
use house::House;

/// What somebody asks to be created; the parameters are checked, the roster fits them.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) name: Option<InstanceName>,
    pub(crate) params: Params,
    /// Whether the request gave the seed; a drawn one equals any (F11).
    pub(crate) seed_given: bool,
    pub(crate) roster: Vec<String>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Instances {
    held: RwLock<Held>,
    house: Arc<House>,
    pressure: Arc<Pressure>,
}

impl Instances {
    pub(crate) fn new(limits: Limits) -> Self {
        let pressure = Arc::new(Pressure::new(&limits));
        Self { held: RwLock::default(), house: House::new(limits), pressure }
    }

    /// Whether the server keeps up.
    pub(crate) fn pressure(&self) -> &Arc<Pressure> {
        &self.pressure
    }

    /// Wakes instances when their time has come and lets go of those that have expired, for ever.
    pub(crate) async fn run_timers(&self) {
        let wake = |id| {
            let Some(instance) = self.held().get(id).cloned() else { return 0 };
            let processes = instance.params().processes();
            // A panic in its step is the end of this instance, and must not be that of all timers.
            let over = catch_unwind(AssertUnwindSafe(|| instance.wake())).unwrap_or(true);
            if over {
                drop(instance);
                let gone = self.held_mut().remove(id, self.limits());
                // Only now, when nobody is kept waiting by it.
                drop(gone);
                tracing::debug!(instance = %id, "expired");
            }
            processes
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
        const AT_ONCE: usize = 1_024;
        let mut after = None;
        loop {
            let some = self.after(after, AT_ONCE);
            let Some(last) = some.last() else { return };
            after = Some(last.definition().id);
            some.iter().for_each(|instance| instance.dismiss_callers());
        }
    }

    /// The instance with this id (F11).
    pub(crate) fn get(&self, id: InstanceId) -> Result<Arc<Instance>, RpcRefusal> {
        self.held().get(id).cloned().ok_or_else(|| unknown(&id.to_string()))
    }

    /// The instance that is named so.
    pub(crate) fn find(&self, which: &InstanceRef) -> Result<Arc<Instance>, RpcRefusal> {
        match which {
            InstanceRef::Id(id) => self.get(*id),
            InstanceRef::Name(name) => self.held().named(name).cloned().ok_or_else(|| unknown(name.as_str())),
        }
    }

    /// At most `limit` instances after this id, in the order of their ids.
    pub(crate) fn after(&self, id: Option<InstanceId>, limit: usize) -> Vec<Arc<Instance>> {
        self.held().after(id, limit)
    }

    /// Creates an instance, or finds the equal one of the same name (F11); true if it was created. A closed
    /// instance goes by its name until another takes it.
    pub(crate) fn create(
        &self,
        creator: &Principal,
        draft: Draft,
    ) -> Result<(Arc<Instance>, bool), RpcRefusal> {
        let Draft { name, params, seed_given, roster } = draft;
        let terms = self.shared(Terms::new(creator.clone(), &params, &roster));
        let id = InstanceId::new(rand::random());
        let mut definition = Definition::new(id, name, params.spec().seed, terms);
        loop {
            let named = definition.name.as_ref().and_then(|name| self.held().named(name).cloned());
            let closed = match named {
                Some(existing) if existing.state() != State::Closed => {
                    return existing
                        .definition()
                        .answers(&definition, seed_given)
                        .map(|()| (existing, false));
                }
                Some(closed) => Some(closed.definition().id),
                None => None,
            };
            self.check_room(&self.held(), &definition.terms, 0)?;
            // A large one takes long to build: the lock of all is not held meanwhile.
            match self.enter(Instance::new(definition, self.house.clone()), closed)? {
                Entered::Lives(instance) => {
                    instance.set_alarm();
                    return Ok((instance, true));
                }
                Entered::NameTaken(instance) => definition = instance.into_definition(),
            }
        }
    }

    /// These terms, or the equal ones that another instance has. They may be long, so they are compared here and not
    /// under the lock of all.
    fn shared(&self, terms: Terms) -> Arc<Terms> {
        let alike = self.held().terms.alike(&terms);
        alike.filter(|alike| **alike == terms).unwrap_or_else(|| Arc::new(terms))
    }

    /// Takes an instance in, if there is room, and if nobody goes by its name but the closed one that did.
    fn enter(&self, instance: Instance, closed: Option<InstanceId>) -> Result<Entered, RpcRefusal> {
        let terms = &instance.definition().terms;
        let reserved = self.limits().worst_case(&terms.params) - self.limits().ended_case(&terms.params);
        let mut held = self.held_mut();
        let named = instance.definition().name.as_ref().and_then(|name| held.named(name));
        if named.map(|named| named.definition().id) != closed {
            return Ok(Entered::NameTaken(instance));
        }
        self.check_room(&held, terms, reserved)?;
        Ok(Entered::Lives(held.insert(instance, self.room(reserved))))
    }

    /// Whether there is room for a new instance with these terms, for which so many bytes are reserved already.
    fn check_room(&self, held: &Held, terms: &Terms, reserved: usize) -> Result<(), RpcRefusal> {
        held.lacks(terms, self.room(reserved)).map_or(Ok(()), |full| {
            let retry_after = self.limits().retry_after;
            Err(RpcRefusal::new(RefusalReason::TooManyInstances, full).with_retry_after(retry_after))
        })
    }

    fn room(&self, reserved: usize) -> Room<'_> {
        let reserved = self.house.reserved().saturating_sub(reserved);
        Room { limits: self.limits(), pressure: &self.pressure, reserved }
    }

    fn held(&self) -> RwLockReadGuard<'_, Held> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn held_mut(&self) -> RwLockWriteGuard<'_, Held> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What becomes of a new instance.
enum Entered {
    Lives(Arc<Instance>),
    /// Another has taken its name in the meantime.
    NameTaken(Instance),
}

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
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use stickycas_model::params::ParamsSpec;

    use super::*;

    fn draft(name: &str, processes: u32, first: &str) -> Draft {
        let roster = (2..=processes).map(|number| format!("p{number}"));
        Draft {
            name: InstanceName::optional(name).unwrap(),
            params: Params::try_new(ParamsSpec::new(processes, 1, 1)).unwrap(),
            seed_given: false,
            roster: [first.to_owned()].into_iter().chain(roster).collect(),
        }
    }

    #[test]
    fn of_those_who_create_one_name_in_the_same_moment_one_creates_it_and_the_others_find_it() {
        const THREADS: usize = 4;
        let instances = Instances::new(Limits::default());
        for round in 0..20 {
            let (name, start) = (format!("round-{round}"), Barrier::new(THREADS));
            let create = || {
                // It takes a while to build, so that the others are at it too.
                let draft = draft(&name, 4_096, "p1");
                start.wait();
                instances.create(&Principal::new("creator"), draft).unwrap()
            };
            let created: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(create)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(created.iter().filter(|(_, new)| *new).count(), 1);
            assert!(created.iter().all(|(it, _)| Arc::ptr_eq(it, &created[0].0)));
            assert_eq!(instances.pressure().live(), round + 1, "the others have left nothing behind");
        }
    }

    #[test]
    fn a_closed_instance_leaves_its_name_to_the_next_and_a_living_one_keeps_it() {
        let (instances, creator) = (Instances::new(Limits::default()), Principal::new("creator"));
        let (first, _) = instances.create(&creator, draft("name", 3, "p1")).unwrap();
        let refused = instances.create(&creator, draft("name", 3, "someone else")).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::NameTaken);
        first.close();
        let (second, new) = instances.create(&creator, draft("name", 3, "someone else")).unwrap();
        let named = InstanceRef::Name(InstanceName::optional("name").unwrap().unwrap());
        assert!(new && Arc::ptr_eq(&instances.find(&named).unwrap(), &second));
        // The name goes on when the one goes that had it first.
        instances.held_mut().remove(first.definition().id, instances.limits());
        assert!(Arc::ptr_eq(&instances.find(&named).unwrap(), &second));
    }
}
