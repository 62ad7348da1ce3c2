//! One instance: its machine behind one short lock, and the way of every step through it.
//!
//! Every input goes the same way, in one synchronous step under the lock, and reads top to bottom in this file. An
//! operation hands the input to the machine, which returns the [`Effects`]; [`Instance::commit`] hands them to the
//! [commit log](crate::commit_log); when the step is committed, [`Instance::release`] records the events and then tells
//! sessions, waiting calls and watchers. Nothing is awaited in between, so a call that is cancelled leaves nothing half
//! done (SPEC F8a).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use stickycas_model::access::Refusal;
use stickycas_model::history::Event;
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, ProcessId, Time};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::completed_access::CompletedAccess;
use super::config::InstanceConfig;
use super::context::Context;
use super::effects::{Effects, OpeningSession, Uncommitted};
use super::lifecycle::{Inner, Lifecycle};
use super::live::Live;
use super::outbox::Outgoing;
use super::sessions::SessionSink;
use super::trace::trace_event;
use crate::auth::Principal;
use crate::commit_log::{Append, Settled, Step};
use crate::limits::Limits;

/// One instance. See the module.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) config: InstanceConfig,
    pub(super) context: Arc<Context>,
    /// When the instance was created, as timers keep moments: moment 0 of its time.
    epoch: u64,
    pub(super) inner: Mutex<Inner>,
}

/// From creation to the end.
impl Instance {
    pub(super) fn new(config: InstanceConfig, context: Arc<Context>) -> Self {
        let inner = Mutex::new(Inner::new(Live::new(&config, &context)));
        let epoch = context.timers.nanos(Instant::now());
        Self { config, context, epoch, inner }
    }

    /// Commits the creation, and has the instance woken when it is time. `inner` has been locked since before the
    /// instance was registered, so this is its first step.
    pub(super) fn start(&self, inner: &mut Inner) -> Uncommitted<()> {
        let created = self.step(inner, Instant::now(), |_, _, _| ());
        created.expect("a new instance is not gone and has no step that is not committed");
        Uncommitted::new((), inner.commit_receiver())
    }

    /// The timer fired. Returns whether the instance is gone: it has expired (F10), or an earlier step has panicked.
    pub(super) fn wake(&self) -> bool {
        let Ok(mut inner) = self.inner.lock() else { return true };
        let inner = &mut *inner;
        let now = self.now();
        inner.timer.fired(self.context.timers.nanos(Instant::now()));
        if let Some(live) = inner.committed_live()
            && live.machine.deadline().is_some_and(|due| due <= now)
        {
            self.run(live, now, |live, now, effects| live.machine.tick(now, &mut effects.events));
        }
        inner.archive_if_idle(self.params(), now);
        if inner.is_committed() && inner.expires(&self.context.limits) <= now {
            self.expire(inner);
        } else {
            self.set_timer(inner);
        }
        inner.gone.is_some()
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
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> Result<T, RpcRefusal>,
    ) -> Result<T, RefusalReason> {
        let taken = self.step(&mut self.lock(), at, |live, now, effects| {
            input(live, now, effects).map_err(|refused| {
                effects.reply(sink, refused.to_frame(sink.channel, number));
                refused.reason
            })
        });
        taken.unwrap_or_else(|refused| {
            sink.outbox.push(refused.to_frame(sink.channel, number));
            Err(refused.reason)
        })
    }

    /// A step for a unary call, which may tell the outcome when the step is committed.
    pub(super) fn unary_step<T>(
        &self,
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> Result<T, RpcRefusal>,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        let inner = &mut *self.lock();
        match self.step(inner, Instant::now(), input) {
            Ok(outcome) => Uncommitted::new(outcome, inner.commit_receiver()),
            // There was no step, and the refusal tells nothing of any.
            Err(refused) => Uncommitted::new(Err(*refused), None),
        }
    }

    /// Takes one input that came at the moment `at`, in the order of the lock.
    ///
    /// # Errors
    /// Why the instance is gone, if it is; or that too many of its steps are not committed yet.
    pub(super) fn step<T>(
        &self,
        inner: &mut Inner,
        at: Instant,
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> T,
    ) -> Result<T, Box<RpcRefusal>> {
        if let Some(gone) = &inner.gone {
            return Err(gone.clone());
        }
        let limits = &self.context.limits;
        let live = inner.restore(&self.config, limits);
        if live.uncommitted.len() >= limits.uncommitted_steps {
            return Err(too_many_uncommitted(limits));
        }
        // Another call, or the timer, may have been here since that moment: time never goes back.
        let now = self.time(at).max(live.latest);
        live.touched = now;
        let outcome = self.run(live, now, input);
        inner.archive_if_idle(self.params(), now);
        self.set_timer(inner);
        Ok(outcome)
    }

    /// Runs one input of a live instance and commits what it brings about.
    fn run<T>(
        &self,
        live: &mut Live,
        now: Time,
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> T,
    ) -> T {
        debug_assert!(live.latest <= now, "time never goes back");
        live.latest = now;
        let mut effects = Effects::new(now, std::mem::take(&mut live.spare_events));
        let outcome = input(live, now, &mut effects);
        self.commit(live, &mut effects);
        live.spare_events = effects.events;
        outcome
    }

    /// The one exit of every step: its effects leave when it is committed, behind those of all steps before it.
    fn commit(&self, live: &mut Live, effects: &mut Effects) {
        let (instance, number) = (self.config.id, live.steps);
        live.steps += 1;
        match self.context.log.append(Step { instance, number, at: effects.at, events: &effects.events }) {
            Append::Committed if live.uncommitted.is_empty() => self.release(live, effects),
            Append::Committed => {
                live.uncommitted.push_back(effects.take());
                self.release_through(live, number);
            }
            Append::Later => live.uncommitted.push_back(effects.take()),
        }
    }

    /// The steps up to this number are committed.
    fn release_through(&self, live: &mut Live, number: u64) {
        while live.first_uncommitted() <= number
            && let Some(mut effects) = live.uncommitted.pop_front()
        {
            self.release(live, &mut effects);
        }
    }

    /// Records the effects of a committed step and then tells them.
    fn release(&self, live: &mut Live, effects: &mut Effects) {
        live.events.extend(effects.at, &effects.events);
        self.context.steps.count(&effects.events);
        if let Some(guard) = &mut live.live_guard {
            guard.observe(&effects.events);
        }
        self.deliver(live, effects);
        if let Some((sink, reply)) = effects.reply.take() {
            if let Outgoing::Decided(channel) = &reply {
                sink.outbox.release_channel(*channel);
            }
            sink.outbox.push_outgoing(reply);
        }
        if !effects.commit_waiters.is_empty() {
            for waiter in effects.commit_waiters.drain(..) {
                let _ = waiter.send(Ok(()));
            }
        }
        if !effects.events.is_empty() {
            live.wake_watchers();
        }
        effects.events.clear();
    }

    /// Tells the events to the clients that they concern.
    fn deliver(&self, live: &mut Live, Effects { at, events, opening, .. }: &mut Effects) {
        // A close withdraws every access, and is the last event of its step. The machine may be further by now.
        let closed = matches!(events.last(), Some(Event::Closed));
        for event in events.iter() {
            match event {
                Event::Answered { process, number, phase, answer } => {
                    let list = live.machine.shared_list();
                    let completed = || CompletedAccess::new(Some(*phase), *answer, list);
                    live.sessions.complete(*process, *number, completed);
                    live.waiters.complete(*process, *number, completed);
                }
                Event::Session { .. } => {
                    // What was answered before this event went to the older session; what comes now goes to this one.
                    if let Some(opening) = opening.take() {
                        self.open_session(live, *opening);
                    }
                }
                Event::Withdrawn { process, number } => {
                    let why = RpcRefusal::from(if closed { &Refusal::Closed } else { &Refusal::Left });
                    live.sessions.refuse(*process, *number, &why);
                    live.waiters.refuse(*process, *number, &why);
                }
                Event::Finished | Event::Closed => {
                    live.ended.get_or_insert(*at);
                    live.live_guard = None;
                }
                _ => {}
            }
            trace_event(self.config.id, event);
        }
    }

    /// Opens a session and welcomes its client.
    fn open_session(&self, live: &mut Live, opening: OpeningSession) {
        let OpeningSession { process, session, sink, welcome, stream_ended } = opening;
        sink.outbox.push_outgoing(Outgoing::Welcome(Box::new(welcome)));
        live.sessions.open(process, session, sink, self.params().processes());
        if stream_ended {
            live.sessions.close(process, session);
        }
    }

    /// The commit log settles steps: see [`crate::commit_log::CommitLog::on_settled`]. Returns whether the instance is
    /// gone.
    pub(super) fn settle(&self, settled: Settled) -> bool {
        let Ok(mut inner) = self.inner.lock() else { return true };
        let inner = &mut *inner;
        let Lifecycle::Live(live) = &mut inner.lifecycle else { return inner.gone.is_some() };
        match settled {
            Settled::Committed(number) => {
                self.release_through(live, number);
                inner.archive_if_idle(self.params(), self.now());
                self.set_timer(inner);
            }
            Settled::Refused(why) => {
                for effects in live.uncommitted.drain(..) {
                    effects.refuse(&why, &live.sessions);
                }
                self.end(inner, why);
            }
        }
        inner.gone.is_some()
    }

    /// The instance has expired (F10).
    fn expire(&self, inner: &mut Inner) {
        let why = format!("instance {} has expired", self.config.id);
        self.end(inner, Box::new(RpcRefusal::new(RefusalReason::InstanceUnknown, why)));
    }

    /// The instance is gone: tells everybody who waits for it.
    fn end(&self, inner: &mut Inner, why: Box<RpcRefusal>) {
        match &mut inner.lifecycle {
            Lifecycle::Live(live) => {
                live.live_guard = None;
                self.context.steps.forget_waiting(live.machine.waiting());
                for (process, sink) in live.sessions.drain() {
                    for (number, _) in live.machine.member(process).waiting {
                        sink.outbox.push(why.to_frame(sink.channel, Some(number)));
                    }
                    sink.outbox.release_channel(sink.channel);
                }
                live.waiters.refuse_all(&why);
                live.wake_watchers();
            }
            Lifecycle::Archived(archived) => {
                for (_, sink) in archived.sessions.take().into_iter().flat_map(|mut open| open.drain()) {
                    sink.outbox.release_channel(sink.channel);
                }
            }
        }
        inner.timer.clear(self.config.id, &self.context.timers);
        inner.gone = Some(why);
    }
}

/// What an instance is and where it stands.
impl Instance {
    /// Has the instance woken when time alone changes something; not while a step waits for its commit.
    fn set_timer(&self, inner: &mut Inner) {
        if !inner.is_committed() {
            return;
        }
        let due = inner.next_wake(self.params(), &self.context.limits);
        let due = self.epoch.saturating_add(due.as_nanos());
        inner.timer.set(due, self.config.id, &self.context.timers);
    }

    pub(crate) fn config(&self) -> &InstanceConfig {
        &self.config
    }

    /// The parameters, without the seed.
    pub(crate) fn params(&self) -> &Params {
        &self.config.shared.params
    }

    /// How long a finished or closed instance can still be read, and how long one lives that nobody touches (F10).
    pub(crate) fn lifetimes(&self) -> (Duration, Duration) {
        (self.context.limits.retention, self.context.limits.idle_lifetime)
    }

    /// The process of this instance that the principal is; `None` if it is none of them.
    pub(crate) fn process_of(&self, principal: &Principal) -> Option<ProcessId> {
        self.config.shared.roster.process_of(principal.as_str())
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no step of a machine panics")
    }

    /// The time of the instance.
    pub(super) fn now(&self) -> Time {
        self.time(Instant::now())
    }

    /// The time of the instance at this moment: since its creation.
    fn time(&self, at: Instant) -> Time {
        Time::from_nanos(self.context.timers.nanos(at).saturating_sub(self.epoch))
    }

    /// Bytes of what is archived; `None` if nothing is.
    #[cfg(test)]
    pub(super) fn archived_size(&self) -> Option<usize> {
        match &self.lock().lifecycle {
            Lifecycle::Live(_) => None,
            Lifecycle::Archived(archived) => Some(archived.events.size()),
        }
    }

    /// Archives an ended instance as if no call had come for a while.
    #[cfg(test)]
    pub(super) fn archive_now(&self) {
        let later = self.now().after(super::archive::restored_for(self.params()));
        self.lock().archive_if_idle(self.params(), later);
    }
}

/// The refusal of a request at an instance with too many steps that are not committed yet.
fn too_many_uncommitted(limits: &Limits) -> Box<RpcRefusal> {
    let why =
        format!("{} steps of the instance wait to be committed, as many as may", limits.uncommitted_steps);
    Box::new(RpcRefusal::new(RefusalReason::TooManyWaiting, why).with_retry_after(limits.retry_after))
}
