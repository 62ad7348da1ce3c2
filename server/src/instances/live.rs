//! An instance while it is live: its machine, and everything that its committed steps are shown and told to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use stickycas_model::access::Answer;
use stickycas_model::history::Event;
use stickycas_model::machine::Machine;
use stickycas_model::types::{Phase, ProcessId, SessionId, Time};

use super::completed_access::CompletedAccess;
use super::config::InstanceConfig;
use super::context::{Context, Reservation, WatcherId};
use super::effects::Effects;
use super::load_monitor::LiveGuard;
use super::sessions::Sessions;
use super::waiters::Waiters;
use crate::event_log::EventLog;
use crate::limits::Limits;

/// See the module. The machine may be ahead of the rest by the steps that are not committed yet.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) machine: Machine,
    /// How many steps there have been.
    pub(super) steps: u64,
    /// Effects of the last steps, which are not committed yet, in order.
    pub(super) uncommitted: VecDeque<Effects>,
    /// The committed events.
    pub(super) events: EventLog,
    pub(super) sessions: Sessions,
    pub(super) waiters: Waiters,
    /// Watch streams that have sent everything and want to be woken.
    pub(super) watchers: BTreeMap<WatcherId, Waker>,
    /// The last call.
    pub(super) touched: Time,
    /// The last step, by a call or by the timer.
    pub(super) latest: Time,
    /// Counts the instance as live.
    pub(super) live_guard: Option<LiveGuard>,
    /// When it finished or was closed.
    pub(super) ended: Option<Time>,
    /// What it may take until it has ended for the first time.
    pub(super) reserved: Option<Reservation>,
    /// The buffer of the next step's events.
    pub(super) spare_events: Vec<Event>,
}

/// How many events an instance keeps for its watchers.
pub(super) fn event_limit(config: &InstanceConfig, limits: &Limits) -> usize {
    limits.events + limits.events_per_process * config.shared.params.processes() as usize
}

impl Live {
    /// A new instance, in which nothing has happened.
    pub(super) fn new(config: &InstanceConfig, context: &Arc<Context>) -> Self {
        let (params, limits) = (config.params(), &context.limits);
        let reserved = context.reserve(limits.worst_case(&params) - limits.ended_case(&params));
        let events = EventLog::new(event_limit(config, limits), context.event_budget.clone());
        let machine = Machine::new(Arc::new(params));
        let ended = Self::unarchived(machine, events, Sessions::default(), 0, limits, Time::ZERO);
        Self { ended: None, reserved: Some(reserved), ..ended }
    }

    /// An instance that ended at this time, from what was archived of it.
    pub(super) fn unarchived(
        machine: Machine,
        events: EventLog,
        sessions: Sessions,
        steps: u64,
        limits: &Limits,
        ended: Time,
    ) -> Self {
        Self {
            machine,
            steps,
            uncommitted: VecDeque::new(),
            events,
            sessions,
            waiters: Waiters::new(limits.callers_per_access),
            watchers: BTreeMap::new(),
            touched: ended,
            latest: ended,
            live_guard: None,
            ended: Some(ended),
            reserved: None,
            spare_events: Vec::new(),
        }
    }

    /// An executed access of this instance.
    pub(super) fn completed(&self, phase: Option<Phase>, answer: Answer) -> CompletedAccess {
        CompletedAccess::new(phase, answer, self.machine.shared_list())
    }

    /// The number of the first step that is not committed, if there is one; else of the next step.
    pub(super) fn first_uncommitted(&self) -> u64 {
        self.steps - self.uncommitted.len() as u64
    }

    /// Whether the process has an open session, or will have one when all steps are committed.
    pub(super) fn has_session(&self, process: ProcessId) -> bool {
        let mut opening = self.uncommitted.iter().filter_map(|effects| effects.opening.as_ref());
        self.sessions.has_open(process) || opening.any(|it| it.process == process && !it.stream_ended)
    }

    /// The stream of this session has ended.
    pub(super) fn close_session(&mut self, process: ProcessId, session: SessionId) {
        self.sessions.close(process, session);
        let openings = self.uncommitted.iter_mut().filter_map(|effects| effects.opening.as_mut());
        for opening in openings.filter(|it| it.process == process && it.session == session) {
            opening.stream_ended = true;
        }
    }

    /// The index of the event that comes after all that has happened, committed or not.
    pub(super) fn next_index(&self) -> u64 {
        use crate::event_log::ReadEvents as _;
        let uncommitted = self.uncommitted.iter().map(|effects| effects.events.len() as u64);
        self.events.next_index() + uncommitted.sum::<u64>()
    }

    pub(super) fn wake_watchers(&mut self) {
        if !self.watchers.is_empty() {
            std::mem::take(&mut self.watchers).into_values().for_each(Waker::wake);
        }
    }
}
