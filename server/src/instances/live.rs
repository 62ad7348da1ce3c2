//! An instance while it is live: its machine, and everything that its committed steps are shown and told to.
//!
//! Every input of the machine goes through the methods here, which note it for a log that keeps inputs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use stickycas_model::access::{Access, Answer, Refusal};
use stickycas_model::history::Offence;
use stickycas_model::machine::{Admission, Machine, Welcome};
use stickycas_model::types::{ProcessId, SessionId, Time, Value};
use stickycas_proto::convert::log::{access_to_log, decision_to_log, hello_to_log, offence_to_log};
use stickycas_proto::log::v1::{self as log, record};

use super::config::InstanceConfig;
use super::effects::Effects;
use super::load_monitor::LiveGuard;
use super::sessions::Sessions;
use super::shard::{ShardContext, WatcherId};
use super::waiters::{CompletedAccess, Waiters};
use crate::commit_log::{CommitLog, HeldPhase, HeldPhases, LogIndex};
use crate::event_log::EventLog;
use crate::limits::{LONGEST_OFFENCE, Limits};

/// See the module. The machine may be ahead of the rest by the steps that are not committed yet.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) machine: Machine,
    /// Whether the log keeps inputs.
    pub(super) keeps_inputs: bool,
    /// The place of the last step in the log.
    pub(super) last_log_index: LogIndex,
    /// Effects of the last steps, which are not committed yet, in order.
    pub(super) uncommitted: VecDeque<Effects>,
    /// The time of the instance stands still until the step at this place is committed: a phase was executed
    /// in it, and nobody has been told its answers yet (F3).
    pub(super) stopped_until: Option<LogIndex>,
    /// The time that was served before this server is logged, and the restart behind it is not committed yet:
    /// the instance takes no other step in between, since that would stand behind the restart in the log.
    pub(super) awaits_restart_commit: bool,
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
    /// Counts it as one that holds a phase open, or gathers.
    pub(super) held_phase: Option<HeldPhase>,
    /// The time at which it finished or was closed.
    pub(super) ended: Option<Time>,
    /// Whether it was archived before: then it is archived again when no call has come for a while.
    pub(super) was_archived: bool,
}

/// An access that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It is new.
    New,
    /// It came before (F8b).
    Repeated,
}

/// The number of events that an instance keeps for its watchers.
pub(super) fn event_limit(config: &InstanceConfig, limits: &Limits) -> usize {
    limits.events + limits.events_per_process * config.shared.params.processes() as usize
}

impl Live {
    /// A new instance, in which nothing has happened.
    pub(super) fn new(config: &InstanceConfig, shard: &ShardContext) -> Self {
        Self::with_machine(Machine::new(Arc::new(config.params())), config, shard)
    }

    /// An instance with this machine and without events.
    pub(super) fn with_machine(machine: Machine, config: &InstanceConfig, shard: &ShardContext) -> Self {
        let context = &shard.server;
        let events = EventLog::new(event_limit(config, &context.limits), context.event_budget.clone());
        let ended = Self::unarchived(machine, events, Sessions::default(), shard, Time::ZERO);
        Self { ended: None, was_archived: false, ..ended }
    }

    /// An instance that ended at this time, from its archive.
    pub(super) fn unarchived(
        machine: Machine,
        events: EventLog,
        sessions: Sessions,
        shard: &ShardContext,
        ended: Time,
    ) -> Self {
        Self {
            machine,
            keeps_inputs: shard.log.keeps_inputs(),
            last_log_index: LogIndex::START,
            uncommitted: VecDeque::new(),
            stopped_until: None,
            awaits_restart_commit: false,
            events,
            sessions,
            waiters: Waiters::new(shard.server.limits.callers_per_access),
            watchers: BTreeMap::new(),
            touched: ended,
            latest: ended,
            live_guard: None,
            held_phase: None,
            ended: Some(ended),
            was_archived: true,
        }
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
        let uncommitted = self.uncommitted.iter().map(|effects| effects.events.len() as u64);
        self.events.view().next_index() + uncommitted.sum::<u64>()
    }

    /// Counts the instance as one that holds a phase open, or gathers, exactly while it does: its log tells
    /// the time meanwhile (F3).
    pub(super) fn count_held_phase(&mut self, log: &dyn CommitLog) {
        let drains = self.keeps_inputs && self.machine.drains();
        if drains != self.held_phase.is_some() {
            self.held_phase = log.held_phases().filter(|_| drains).map(HeldPhases::hold);
        }
    }

    pub(super) fn wake_watchers(&mut self) {
        if !self.watchers.is_empty() {
            std::mem::take(&mut self.watchers).into_values().for_each(Waker::wake);
        }
    }
}

/// The inputs of the machine.
impl Live {
    /// A process opens a session.
    ///
    /// # Errors
    /// The reason for which the machine refuses it.
    pub(super) fn hello(
        &mut self,
        process: ProcessId,
        incarnation: u64,
        effects: &mut Effects,
    ) -> Result<Welcome, Refusal> {
        self.note(effects, || hello_to_log(process, incarnation));
        let welcome = self.machine.hello(effects.at, process, incarnation, &mut effects.events);
        effects.refused = welcome.is_err();
        welcome
    }

    /// A process sends an access. Returns its answer, if that is known already.
    ///
    /// # Errors
    /// The reason for which the machine refuses it.
    pub(super) fn access(
        &mut self,
        access: Access,
        effects: &mut Effects,
    ) -> Result<(Submitted, Option<CompletedAccess>), Refusal> {
        self.note(effects, || access_to_log(&access));
        let admission = self.machine.access(effects.at, access, &mut effects.events);
        effects.refused = admission.is_err();
        let completed = |phase, answer| Some(CompletedAccess::new(phase, answer, self.machine.shared_list()));
        Ok(match admission? {
            Admission::Accepted => (Submitted::New, None),
            Admission::AlreadyWaiting => (Submitted::Repeated, None),
            Admission::AnsweredBefore { phase, answer } => {
                (Submitted::Repeated, completed(Some(phase), answer))
            }
            Admission::ReadOutsidePhases(read) => (Submitted::New, completed(None, Answer::Read(read))),
        })
    }

    /// A process reports its decision.
    ///
    /// # Errors
    /// The reason for which the machine refuses it.
    pub(super) fn decide(
        &mut self,
        process: ProcessId,
        value: Value,
        effects: &mut Effects,
    ) -> Result<(), Refusal> {
        self.note(effects, || decision_to_log(process, &value));
        let decided = self.machine.decide(effects.at, process, value, &mut effects.events);
        effects.refused = decided.is_err();
        decided
    }

    /// The server has refused a message, and that is an offence.
    pub(super) fn file_offence(&mut self, mut offence: Offence, effects: &mut Effects) {
        offence.detail.truncate(offence.detail.floor_char_boundary(LONGEST_OFFENCE));
        self.note(effects, || offence_to_log(&offence));
        self.machine.file_offence(effects.at, offence, &mut effects.events);
    }

    /// The creator closes the instance.
    pub(super) fn close(&mut self, effects: &mut Effects) {
        self.note(effects, || record::Input::Close(log::Close {}));
        self.machine.close(effects.at, &mut effects.events);
    }

    /// The machine does everything that is due.
    pub(super) fn tick(&mut self, effects: &mut Effects) {
        self.note(effects, || record::Input::Tick(log::Tick {}));
        self.machine.tick(effects.at, &mut effects.events);
    }

    /// Time has been served, by another server or before this one was started.
    pub(super) fn catch_up(&mut self, effects: &mut Effects) {
        effects.always_logged = true;
        self.tick(effects);
    }

    /// The server has restarted.
    pub(super) fn restart(&mut self, rejoin: Duration, effects: &mut Effects) {
        self.machine.restart(effects.at, rejoin, &mut effects.events);
    }

    /// Whether the input has changed anything but counters, so that it must be logged.
    pub(super) fn has_changed(&mut self, input: Option<&record::Input>) -> bool {
        let always = matches!(input, Some(record::Input::Created(_) | record::Input::Counts(_)));
        self.machine.take_changed() || always
    }

    fn note(&self, effects: &mut Effects, input: impl FnOnce() -> record::Input) {
        if self.keeps_inputs {
            effects.note(input());
        }
    }
}
