//! What the lock of an instance guards, and what follows from each step under it: delivery, the record, the
//! timer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use stickycas_model::access::{Answer, Refusal};
use stickycas_model::history::Event;
use stickycas_model::machine::{Input, Machine, State};
use stickycas_model::types::{Phase, Time};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::answered::Answered;
use super::callers::Callers;
use super::house::{House, Reserved, WatcherId};
use super::instance::Instance;
use super::outlets::Outlets;
use super::pressure::Alive;
use super::terms::Definition;
use crate::limits::Limits;
use crate::store::memory::Record;

/// See the module.
#[derive(Debug)]
pub(super) struct Guarded {
    pub(super) machine: Machine,
    pub(super) record: Record,
    pub(super) outlets: Outlets,
    pub(super) callers: Callers,
    /// Watch streams that have sent everything and want to be woken.
    pub(super) watchers: BTreeMap<WatcherId, Waker>,
    pub(super) touched: Time,
    /// That it counts as live.
    pub(super) alive: Option<Alive>,
    /// When it finished or was closed.
    pub(super) ended: Option<Time>,
    /// What it may take until it has ended for the first time.
    pub(super) reserved: Option<Reserved>,
    /// Used again by every step.
    pub(super) events: Vec<Event>,
}

/// How many events the instance keeps for its watchers.
pub(super) fn kept_events(definition: &Definition, limits: &Limits) -> usize {
    limits.events + limits.events_per_process * definition.terms.params.processes() as usize
}

impl Guarded {
    /// A new instance, in which nothing has happened.
    pub(super) fn new(definition: &Definition, house: &Arc<House>) -> Self {
        let (params, limits) = (definition.params(), &house.limits);
        let reserved = house.reserve(limits.worst_case(&params) - limits.ended_case(&params));
        let record = Record::new(kept_events(definition, limits), house.budget.clone());
        let machine = Machine::new(Arc::new(params));
        let fresh = Self::ended(machine, record, Outlets::default(), limits, Time::ZERO);
        Self { ended: None, reserved: Some(reserved), ..fresh }
    }

    /// One that ended at this time, of which all this is left.
    pub(super) fn ended(
        machine: Machine,
        record: Record,
        outlets: Outlets,
        limits: &Limits,
        at: Time,
    ) -> Self {
        Self {
            machine,
            record,
            outlets,
            callers: Callers::new(limits.callers_per_access),
            watchers: BTreeMap::new(),
            touched: at,
            alive: None,
            ended: Some(at),
            reserved: None,
            events: Vec::new(),
        }
    }

    /// Does what is due by time alone.
    pub(super) fn catch_up(&mut self, instance: &Instance, now: Time) {
        if self.machine.deadline().is_some_and(|due| due <= now) {
            let tick = self.machine.apply(now, Input::Tick, &mut self.events);
            debug_assert!(tick.is_ok(), "{tick:?}");
            self.settle(instance, now);
        }
    }

    /// Delivers what happened and records it.
    pub(super) fn settle(&mut self, instance: &Instance, now: Time) {
        if !self.events.is_empty() {
            let mut events = std::mem::take(&mut self.events);
            for event in &events {
                self.deliver(instance, event);
            }
            if self.ended.is_none() && matches!(self.machine.state(), State::Finished | State::Closed) {
                self.ended = Some(now);
                self.alive = None;
            }
            self.record.extend(now, &events);
            events.clear();
            self.events = events;
            self.wake_watchers();
        }
    }

    /// An executed access of this instance.
    pub(super) fn answered(&self, phase: Option<Phase>, answer: Answer) -> Answered {
        Answered::new(phase, answer, self.machine.shared_list())
    }

    fn deliver(&mut self, instance: &Instance, event: &Event) {
        match event {
            Event::Answered { process, number, phase, answer } => {
                let list = self.machine.shared_list();
                let answered = || Answered::new(Some(*phase), *answer, list);
                self.outlets.answer(*process, *number, answered);
                self.callers.answer(*process, *number, answered);
            }
            Event::Withdrawn { process, number } => {
                let why = if self.machine.state() == State::Closed { Refusal::Closed } else { Refusal::Left };
                self.outlets.withdraw(*process, *number, &why);
                self.callers.withdraw(*process, *number, &why);
            }
            event => trace(instance, event),
        }
    }

    /// Its time is over: lets go of everybody who waits, since nothing will happen here any more.
    pub(super) fn expire(&mut self, id: InstanceId) {
        self.alive = None;
        let why = RpcRefusal::new(RefusalReason::InstanceUnknown, format!("instance {id} has expired"));
        for (process, outlet) in self.outlets.take() {
            for (number, _) in self.machine.member(process).waiting {
                outlet.outbox.withdraw(why.to_frame(outlet.channel, Some(number)));
            }
            outlet.outbox.free(outlet.channel);
        }
        self.callers.dismiss();
        self.wake_watchers();
    }

    pub(super) fn wake_watchers(&mut self) {
        std::mem::take(&mut self.watchers).into_values().for_each(Waker::wake);
    }
}

/// What is worth telling operators and developers.
fn trace(instance: &Instance, event: &Event) {
    let id = instance.definition.id;
    match event {
        Event::Offence(offence) => tracing::warn!(
            instance = %id, process = %offence.process, kind = ?offence.kind, detail = ?offence.detail, "offence"
        ),
        Event::GatheringEnded { joined } => tracing::debug!(instance = %id, joined, "gathering ended"),
        Event::PatienceSpent { process } => tracing::info!(instance = %id, %process, "patience spent"),
        Event::Stepped { phase, warp, length } => {
            tracing::trace!(instance = %id, %phase, %warp, length, "phase executed");
        }
        Event::Added { position, process, phase, .. } => {
            tracing::trace!(instance = %id, %position, %process, %phase, "entry added");
        }
        Event::Sealed { phase, length } => tracing::debug!(instance = %id, %phase, length, "list sealed"),
        Event::Finished => tracing::info!(instance = %id, "finished"),
        Event::Closed => tracing::info!(instance = %id, "closed"),
        Event::Joined { .. }
        | Event::Session { .. }
        | Event::Accepted { .. }
        | Event::Refused { .. }
        | Event::Answered { .. }
        | Event::Decided { .. }
        | Event::Withdrawn { .. } => {}
    }
}
