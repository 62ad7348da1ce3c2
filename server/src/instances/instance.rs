//! One instance: its machine behind one short lock, and the way of every step through it.
//!
//! Every input goes the same way, in one synchronous step under the lock, and reads top to bottom in this file. An
//! operation hands the input to the machine, which returns the [`Effects`]; [`Instance::commit`] hands them to the
//! [commit log](crate::commit_log); when the step is committed, [`Instance::release`] records the events and then tells
//! sessions, waiting calls and watchers. Nothing is awaited in between, so a call that is cancelled leaves nothing half
//! done (SPEC F8a).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prost::Message as _;
use stickycas_model::access::Refusal;
use stickycas_model::history::Event;
use stickycas_model::params::{Order, Params};
use stickycas_model::types::{AccessNumber, ProcessId, Time};
use stickycas_proto::convert::log::counts_to_log;
use stickycas_proto::log::v1::Record;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::completed_access::CompletedAccess;
use super::config::InstanceConfig;
use super::context::Context;
use super::effects::{Effects, OpeningSession};
use super::lifecycle::Inner;
#[cfg(test)]
use super::lifecycle::Lifecycle;
use super::live::Live;
use super::outbox::Outgoing;
use super::sessions::SessionSink;
use super::shard::ShardContext;
use super::trace::trace_event;
use crate::auth::Principal;
use crate::commit_log::{LogIndex, Step, Submission};
use crate::gate::Uncommitted;
use crate::quota::{Account, LogBytes};

/// One instance. See the module.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) config: InstanceConfig,
    pub(super) shard: Arc<ShardContext>,
    pub(super) inner: Mutex<Inner>,
}

/// From creation to the end.
impl Instance {
    /// A new instance, whose time begins now.
    pub(super) fn new(config: InstanceConfig, shard: Arc<ShardContext>) -> Self {
        let live = Live::new(&config, &shard);
        Self::with(config, shard, live)
    }

    /// An instance whose time goes on now.
    pub(super) fn with(config: InstanceConfig, shard: Arc<ShardContext>, live: Live) -> Self {
        let latest = live.latest;
        let mut inner = Inner::new(live, 0);
        inner.resume(latest, shard.server.timers.now());
        Self { config, shard, inner: Mutex::new(inner) }
    }

    /// Commits the creation, and has the instance woken when it is time. `inner` has been locked since before the
    /// instance was registered, so this is its first step.
    ///
    /// # Errors
    /// If the log has failed: nothing was created.
    pub(super) fn start(&self, inner: &mut Inner) -> Uncommitted<Result<(), RpcRefusal>> {
        let created = self.step(inner, Instant::now(), |live, effects| {
            if live.keeps_inputs {
                effects.input = Some(Box::new(Input::Created(self.config.to_log())));
            }
        });
        inner.outcome(created.map(Ok))
    }

    /// The creation is one record of the log, which bounds its length.
    ///
    /// # Errors
    /// If it is longer: parameters that the log cannot take.
    pub(super) fn check_record(&self) -> Result<(), RpcRefusal> {
        let roster = self.config.shared.roster.bytes();
        // A name of one byte takes three in the record: a short roster need not be encoded.
        let Some(most) = self.shard.log.largest_record().filter(|most| roster > most / 4) else {
            return Ok(());
        };
        let created = Input::Created(self.config.to_log());
        // The other fields are the longest that they can be.
        let record = self.record(Time::from_nanos(u64::MAX), created, u32::MAX);
        let length = record.encoded_len();
        if length <= most {
            return Ok(());
        }
        let why = format!(
            "the record of such an instance has {length} bytes, and the log of a cluster takes {most}: give fewer processes or \
             shorter names of principals"
        );
        Err(RpcRefusal::new(RefusalReason::BadParameters, why))
    }

    /// The timer that was set to the moment `due` has fired. Returns whether the instance is gone: it has expired (F10), or
    /// an earlier step has panicked.
    pub(super) fn wake(&self, due: u64) -> bool {
        let Ok(mut inner) = self.inner.lock() else {
            self.abandon();
            return true;
        };
        let inner = &mut *inner;
        inner.timer.fired(due);
        // The clock has shown that moment, even if it was stopped since.
        let moment = self.context().timers.now().max(due);
        if inner.gone.is_some() || self.shard.failure().is_some() {
            return inner.is_gone();
        }
        let now = inner.time(moment).max(inner.latest());
        if !inner.is_stopped()
            && let Some(live) = inner.live()
            && live.machine.deadline().is_some_and(|due| due <= now)
        {
            self.run(live, now, Live::tick);
        }
        self.archive_if_idle(inner, now);
        if inner.is_committed() && inner.expires(&self.config.shared.lifetimes) <= now {
            self.expire(inner, now);
        } else {
            self.set_timer(inner);
        }
        inner.is_gone()
    }
}

/// The step: from an input to its effects, to the commit, to the clients.
impl Instance {
    /// A step for a request on a session. The client is told on the session what is refused.
    pub(super) fn session_step<T>(
        &self,
        sink: &SessionSink,
        number: Option<AccessNumber>,
        at: Instant,
        input: impl FnOnce(&mut Live, &mut Effects) -> Result<T, RpcRefusal>,
    ) -> Result<T, RefusalReason> {
        let inner = &mut *self.lock();
        let taken = self.step(inner, at, |live, effects| {
            input(live, effects).map_err(|refused| {
                effects.reply(sink, refused.to_frame(sink.channel, number));
                refused.reason
            })
        });
        taken.unwrap_or_else(|gone| {
            inner.tell(sink, gone.to_frame(sink.channel, number), &self.shard);
            Err(gone.reason)
        })
    }

    /// A step for a unary call, which may tell the outcome when the step is committed.
    pub(super) fn unary_step<T>(
        &self,
        input: impl FnOnce(&mut Live, &mut Effects) -> Result<T, RpcRefusal>,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        let inner = &mut *self.lock();
        let outcome = self.step(inner, Instant::now(), input);
        inner.outcome(outcome)
    }

    /// Takes one input that came at the moment `at`, in the order of the lock.
    ///
    /// # Errors
    /// Why the instance is gone, if it is.
    pub(super) fn step<T>(
        &self,
        inner: &mut Inner,
        at: Instant,
        input: impl FnOnce(&mut Live, &mut Effects) -> T,
    ) -> Result<T, Box<RpcRefusal>> {
        if let Some(gone) = self.gone(inner) {
            return Err(Box::new(gone));
        }
        let now = inner.time(self.context().timers.nanos(at));
        let live = inner.restore(&self.config, &self.shard);
        // Another call, or the timer, may have been here since that moment: time never goes back.
        let now = now.max(live.latest);
        live.touched = now;
        let outcome = self.run(live, now, input);
        self.archive_if_idle(inner, now);
        self.set_timer(inner);
        Ok(outcome)
    }

    /// Admits a request of this account that brings so many bytes to the log. They wait there from [`Self::keep_charge`] on.
    ///
    /// # Errors
    /// If the principal has its share of what waits.
    pub(crate) fn charge_log(
        &self,
        account: &Arc<Account>,
        bytes: usize,
    ) -> Result<Option<LogBytes>, RpcRefusal> {
        if self.shard.log.keeps_inputs() { account.charge_log(bytes) } else { Ok(None) }
    }

    /// The request was taken: its bytes wait until the log has committed it.
    pub(crate) fn keep_charge(&self, bytes: Option<LogBytes>) {
        if let Some(bytes) = bytes {
            self.shard.log.charge(bytes);
        }
    }

    /// Why the instance is gone, if it is.
    pub(super) fn gone(&self, inner: &Inner) -> Option<RpcRefusal> {
        inner.gone().or_else(|| self.shard.failure().cloned())
    }

    /// Runs one input of a live instance and commits what it brings about.
    pub(super) fn run<T>(
        &self,
        live: &mut Live,
        now: Time,
        input: impl FnOnce(&mut Live, &mut Effects) -> T,
    ) -> T {
        debug_assert!(live.latest <= now, "time never goes back");
        live.latest = now;
        let mut effects = Effects::new(now, std::mem::take(&mut live.spare_events));
        let outcome = input(live, &mut effects);
        self.commit(live, &mut effects);
        live.count_held_phase(&*self.shard.log);
        live.spare_events = effects.events;
        outcome
    }

    /// Archives an ended instance that is idle, once its counters are logged.
    pub(super) fn archive_if_idle(&self, inner: &mut Inner, now: Time) {
        if inner.may_be_archived(self.params(), now)
            && let Some(live) = inner.live()
        {
            self.log_counts(live);
        }
        inner.archive_if_idle(&self.config, now);
    }

    /// Logs counters that have risen by inputs that changed nothing else, before a view tells them.
    pub(super) fn log_counts(&self, live: &mut Live) {
        if live.keeps_inputs
            && let Some(counts) = live.machine.take_counts()
        {
            let now = live.latest;
            self.run(live, now, |_, effects| effects.input = Some(Box::new(counts_to_log(&counts))));
        }
    }

    /// The one exit of every step: its effects leave when it is committed, behind those of all steps before it.
    fn commit(&self, live: &mut Live, effects: &mut Effects) {
        effects.opened_phases += live.machine.take_opened_phases();
        match self.log_step(live, effects) {
            Submission::Committed if live.uncommitted.is_empty() => self.release(live, effects),
            Submission::Committed => {
                live.uncommitted.push_back(effects.take());
                self.release_through(live, LogIndex::END);
            }
            Submission::Later(log_index) => {
                effects.log_index = log_index;
                live.uncommitted.push_back(effects.take());
            }
        }
    }

    /// Hands a step to the log. A step that changed nothing is not logged: it stands where the step before it does.
    fn log_step(&self, live: &mut Live, effects: &mut Effects) -> Submission {
        let record;
        let mut logged = None;
        if live.keeps_inputs {
            let input = effects.input.take();
            let Some(input) = input.filter(|input| live.has_changed(input) || effects.always_logged) else {
                if effects.refuses() {
                    // The transaction of a step before this one may have been begun before the request came.
                    effects.gate = self.shard.ownership();
                }
                let Some(last) = live.uncommitted.back() else { return Submission::Committed };
                self.shard.log.hold(last.log_index, effects.bytes());
                return Submission::Later(last.log_index);
            };
            record = self.record(effects.at, *input, effects.digest());
            logged = Some(&record);
        }
        let step = Step {
            instance: self.config.id,
            name: self.config.name.as_ref(),
            last: live.last_log_index,
            at: effects.at,
            events: &effects.events,
            record: logged,
        };
        let submitted = self.shard.log.submit(step);
        if let Submission::Later(log_index) = submitted {
            live.last_log_index = log_index;
            if effects.events.iter().any(|event| matches!(event, Event::Stepped { .. })) {
                live.stopped_until = Some(log_index);
            }
        }
        submitted
    }

    /// A record of this instance.
    pub(super) fn record(&self, at: Time, input: Input, digest: u32) -> Record {
        Record { instance: self.config.number, at_nanos: at.as_nanos(), input: Some(input), digest }
    }

    /// The steps up to this place are committed.
    pub(super) fn release_through(&self, live: &mut Live, log_index: LogIndex) {
        while live.uncommitted.front().is_some_and(|effects| effects.log_index <= log_index)
            && let Some(mut effects) = live.uncommitted.pop_front()
        {
            self.release(live, &mut effects);
        }
    }

    /// Counts the effects of a committed step, records them and then tells them.
    fn release(&self, live: &mut Live, effects: &mut Effects) {
        self.context().steps.count(&effects.events, std::mem::take(&mut effects.opened_phases));
        self.release_uncounted(live, effects);
    }

    /// As [`Self::release`], of a step that was counted by the server before this one.
    pub(super) fn release_uncounted(&self, live: &mut Live, effects: &mut Effects) {
        live.events.extend(effects.at, &effects.events);
        if let Some(guard) = &mut live.live_guard {
            guard.observe(&effects.events);
        }
        self.deliver(live, effects);
        if !effects.events.is_empty() {
            live.wake_watchers();
        }
        effects.reply_now();
        effects.events.clear();
    }

    /// Tells the events to the clients that they concern.
    fn deliver(&self, live: &mut Live, Effects { at, events, opening, .. }: &mut Effects) {
        // A close withdraws every access, and is the last event of its step. The machine may be further by now.
        let closed = matches!(events.last(), Some(Event::Closed));
        let mut spent = 0_usize;
        for event in events.iter() {
            match event {
                Event::Answered { process, number, phase, answer } => {
                    let list = live.machine.shared_list();
                    let completed = || CompletedAccess::new(Some(*phase), *answer, list);
                    live.sessions.complete(*process, *number, completed);
                    live.waiters.complete(*process, *number, completed);
                }
                Event::Session { incarnation, .. } => {
                    // What was answered before this event went to the older session; what comes now goes to this one.
                    if let Some(opening) = opening.take() {
                        self.open_session(live, *opening, *incarnation);
                    }
                }
                Event::Withdrawn { process, number } => {
                    let why = RpcRefusal::from(if closed { &Refusal::Closed } else { &Refusal::Left });
                    live.sessions.refuse(*process, *number, &why);
                    live.waiters.refuse(*process, *number, &why);
                }
                Event::Finished | Event::Closed => {
                    if *event == Event::Closed {
                        self.context().count_closed();
                    }
                    live.ended.get_or_insert(*at);
                    live.live_guard = None;
                }
                Event::PatienceSpent { .. } => spent += 1,
                _ => {}
            }
            trace_event(self.config.id, event);
        }
        if spent > 0 {
            tracing::info!(instance = %self.config.id, processes = spent, "patience spent");
        }
    }

    /// Opens a session and welcomes its client.
    fn open_session(&self, live: &mut Live, opening: OpeningSession, incarnation: u64) {
        let OpeningSession { process, session, sink, welcome, stream_ended } = opening;
        sink.outbox.push_outgoing(Outgoing::Welcome(Box::new(welcome)));
        live.sessions.open(process, session, incarnation, sink, self.params().processes());
        if stream_ended {
            live.sessions.close(process, session);
        }
    }
}

/// What an instance is and where it stands.
impl Instance {
    /// Has the instance woken when time alone changes something.
    pub(super) fn set_timer(&self, inner: &mut Inner) {
        let Some(due) = inner.next_wake(self.params(), &self.config.shared.lifetimes) else { return };
        inner.timer.set(inner.moment(due), self.config.id, &self.context().timers);
    }

    /// What all instances of the server share.
    pub(super) fn context(&self) -> &Context {
        &self.shard.server
    }

    /// What the instances of its shard share.
    pub(crate) fn shard(&self) -> &Arc<ShardContext> {
        &self.shard
    }

    pub(crate) fn config(&self) -> &InstanceConfig {
        &self.config
    }

    /// The parameters, without the seed.
    pub(crate) fn params(&self) -> &Params {
        &self.config.shared.params
    }

    /// What an access may cost beyond the usual, in frames of Attach: with shuffled warps each round has an order of its
    /// own, and the access of a process that is alone brings the next round. 65,536 warps take some 0.7 ms.
    pub(crate) fn round_work(&self) -> usize {
        const WARPS_PER_FRAME: usize = 64;
        match self.params().spec().order {
            Order::Shuffled => self.params().warps() as usize / WARPS_PER_FRAME,
            Order::Ascending | Order::Descending => 0,
        }
    }

    /// The process of this instance that the principal is; `None` if it is none of them.
    pub(crate) fn process_of(&self, principal: &Principal) -> Option<ProcessId> {
        self.config.shared.roster.process_of(principal.as_str())
    }

    /// Whether its close is committed.
    pub(super) fn is_closed(&self) -> bool {
        self.lock_poisoned().is_closed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no step of a machine panics")
    }

    /// The lock, even after a step has panicked.
    pub(super) fn lock_poisoned(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the instance now, as its lock shows it.
    pub(super) fn now(&self, inner: &Inner) -> Time {
        inner.time(self.context().timers.now())
    }

    /// Bytes of what is archived; `None` if nothing is.
    #[cfg(test)]
    pub(super) fn archived_size(&self) -> Option<usize> {
        match &self.lock().lifecycle {
            Lifecycle::Live(_) => None,
            Lifecycle::Archived(archived) => Some(archived.events.size()),
        }
    }

    /// Wakes the instance as a timer that fires now does.
    #[cfg(test)]
    pub(super) fn wake_now(&self) -> bool {
        let due = self.lock_poisoned().timer.due();
        self.wake(due.min(self.context().timers.now()))
    }

    /// Archives an ended instance as if no call had come for a while.
    #[cfg(test)]
    pub(super) fn archive_now(&self) {
        let inner = &mut *self.lock();
        let later = self.now(inner).after(super::archive::restored_for(self.params()));
        inner.archive_if_idle(&self.config, later);
    }
}
