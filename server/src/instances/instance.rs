//! One instance: its machine behind one short lock, and the way of every step through it.
//!
//! Every input goes the same way, in one synchronous step under the lock, and reads top to bottom in this file. An
//! operation hands the input to the machine, which returns the [`Effects`]; [`Instance::commit`] hands them to the
//! [commit log](crate::commit_log); when the step is committed, [`Instance::release`] records the events and then tells
//! sessions, waiting calls and watchers. Nothing is awaited in between, so a call that is cancelled leaves nothing half
//! done (SPEC F8a).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stickycas_model::access::{Access, Answer, Refusal};
use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::machine::{Admission, State};
use stickycas_model::params::Params;
use stickycas_model::types::{AccessNumber, ProcessId, SessionId, Time, Value};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::completed_access::CompletedAccess;
use super::config::InstanceConfig;
use super::context::Context;
use super::effects::{Effects, Uncommitted};
use super::lifecycle::{Inner, Lifecycle};
use super::live::Live;
use super::load_monitor::LiveGuard;
use super::outbox::{Outgoing, PendingWelcome};
use super::sessions::SessionSink;
use super::waiters::{TooManyWaiters, Waiter};
use crate::auth::Principal;
use crate::commit_log::{Append, Settled, Step};

/// One instance. See the module.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) config: InstanceConfig,
    pub(super) context: Arc<Context>,
    /// When the instance was created: moment 0 of its time.
    epoch: Instant,
    pub(super) inner: Mutex<Inner>,
}

/// A session that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOpened {
    pub(crate) session: SessionId,
    /// Whether it replaces an open session.
    pub(crate) replaces: bool,
}

/// An access on a stream that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitted {
    /// It is new.
    New,
    /// It came before (F8b).
    Repeated,
}

/// An access that came with a unary call.
#[derive(Debug)]
pub(crate) struct UnaryAccess {
    pub(crate) answer: UnaryAnswer,
    /// Whether it came before (F8b).
    pub(crate) repeated: bool,
}

/// How a unary call comes to its answer.
#[derive(Debug)]
pub(crate) enum UnaryAnswer {
    /// The answer, or the refusal, is known.
    Known(Uncommitted<Result<CompletedAccess, RpcRefusal>>),
    /// The answer will come when the access is executed and its phase committed.
    Waiting(Waiter),
}

/// The operations: each is one step, or none if the instance is gone.
impl Instance {
    pub(super) fn new(config: InstanceConfig, context: Arc<Context>) -> Self {
        let inner = Mutex::new(Inner::new(Live::new(&config, &context)));
        Self { config, context, epoch: Instant::now(), inner }
    }

    /// The instance has been registered: commits its creation, and has it woken when it is time.
    pub(super) fn start(&self) -> Uncommitted<()> {
        // An instance that has just been created is not gone.
        self.unary_step(|_, _, _| Ok(())).map(|_| ())
    }

    /// Opens a session whose answers go to `sink` from now on, the welcome first (F8e).
    ///
    /// # Errors
    /// Why the hello was refused, which the client is told on `sink`.
    pub(crate) fn hello(
        &self,
        process: ProcessId,
        incarnation: u64,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<SessionOpened, RefusalReason> {
        self.session_step(sink, None, at, |live, now, effects| {
            let welcome = live.machine.hello(now, process, incarnation, &mut effects.events)?;
            let opened =
                SessionOpened { session: welcome.session, replaces: live.sessions.has_open(process) };
            let welcome = PendingWelcome::new(sink.channel, process, welcome, &self.config);
            effects.session = Some((sink.clone(), Box::new(welcome)));
            Ok(opened)
        })
    }

    /// Takes an access that came on a session at this moment. Its answer goes to the process's newest session.
    ///
    /// # Errors
    /// Why the access was refused, which the client is told on `sink`.
    pub(crate) fn access(
        &self,
        access: Access,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<Submitted, RefusalReason> {
        let number = access.number;
        self.session_step(sink, Some(number), at, |live, now, effects| {
            let (submitted, answered) = match live.machine.access(now, access, &mut effects.events)? {
                Admission::Accepted => return Ok(Submitted::New),
                Admission::AlreadyWaiting => return Ok(Submitted::Repeated),
                Admission::AnsweredBefore { phase, answer } => {
                    (Submitted::Repeated, live.completed(Some(phase), answer))
                }
                Admission::ReadOutsidePhases(read) => {
                    (Submitted::New, live.completed(None, Answer::Read(read)))
                }
            };
            effects.reply_outgoing(sink, Outgoing::Answer(sink.channel, number, answered));
            Ok(submitted)
        })
    }

    /// Takes an access that came with a unary call.
    pub(crate) fn call(&self, access: Access) -> UnaryAccess {
        let (process, number) = (access.process, access.number);
        let inner = &mut *self.lock();
        let outcome = self.step(inner, Instant::now(), |live, now, effects| {
            let repeated = match live.machine.access(now, access, &mut effects.events)? {
                Admission::Accepted => false,
                Admission::AlreadyWaiting => true,
                Admission::AnsweredBefore { phase, answer } => {
                    return Ok((Ok(live.completed(Some(phase), answer)), true));
                }
                Admission::ReadOutsidePhases(read) => {
                    return Ok((Ok(live.completed(None, Answer::Read(read))), false));
                }
            };
            // The answer may be among the events of this step already, which are told after this.
            match live.waiters.add(process, number) {
                Ok(waiter) => Ok((Err(waiter), repeated)),
                Err(TooManyWaiters) => Err(self.too_many_waiters(process, live, now, effects)),
            }
        });
        let (known, repeated) = match outcome.unwrap_or_else(|gone| Err(*gone)) {
            Ok((Err(waiter), repeated)) => {
                return UnaryAccess { answer: UnaryAnswer::Waiting(waiter), repeated };
            }
            Ok((Ok(completed), repeated)) => (Ok(completed), repeated),
            Err(refused) => (Err(refused), false),
        };
        let known = Uncommitted::new(known, inner.commit_receiver());
        UnaryAccess { answer: UnaryAnswer::Known(known), repeated }
    }

    /// Refuses a call because as many wait for its access as may, which is an offence (B2).
    fn too_many_waiters(
        &self,
        process: ProcessId,
        live: &mut Live,
        now: Time,
        effects: &mut Effects,
    ) -> RpcRefusal {
        let limits = &self.context.limits;
        let why = format!("{} calls wait for this access, as many as may", limits.callers_per_access);
        let (kind, detail) = (OffenceKind::QuotaExceeded, why.clone());
        let offence = Offence { process, kind, number: None, phase: None, detail };
        live.machine.file_offence(now, offence, &mut effects.events);
        RpcRefusal::new(RefusalReason::TooManyWaiting, why).with_retry_after(limits.retry_after)
    }

    /// A process reports its decision on a session and leaves (F10), unless a newer session has replaced this one (F8f).
    ///
    /// # Errors
    /// Why the decision was refused, which the client is told on `sink`.
    pub(crate) fn decide(
        &self,
        process: ProcessId,
        session: SessionId,
        value: Value,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<(), RefusalReason> {
        self.session_step(sink, None, at, |live, now, effects| {
            if !live.sessions.is_open(process, session) {
                let current = live.machine.member(process).session;
                return Err(RpcRefusal::from(&Refusal::OlderSession { given: session, current }));
            }
            live.machine.decide(now, process, value, &mut effects.events)?;
            effects.reply_outgoing(sink, Outgoing::Decided(sink.channel));
            Ok(())
        })
    }

    /// A process reports its decision by a unary call and leaves (F10).
    pub(crate) fn call_decide(
        &self,
        process: ProcessId,
        value: Value,
    ) -> Uncommitted<Result<(), RpcRefusal>> {
        self.unary_step(|live, now, effects| {
            live.machine.decide(now, process, value, &mut effects.events)?;
            Ok(())
        })
    }

    /// Files an offence of a message that was refused before it came to the machine (B2).
    pub(crate) fn file_offence(&self, offence: Offence) {
        // An instance that is gone keeps no offences.
        let _ = self.step(&mut self.lock(), Instant::now(), |live, now, effects| {
            live.machine.file_offence(now, offence, &mut effects.events);
        });
    }

    /// The creator closes the instance (F10).
    pub(crate) fn close(&self) -> Uncommitted<()> {
        if let Lifecycle::Archived(archived) = &self.lock().lifecycle
            && archived.state == State::Closed
        {
            // It need not be restored to be closed again.
            return Uncommitted::new((), None);
        }
        let closed = self.unary_step(|live, now, effects| {
            live.machine.close(now, &mut effects.events);
            Ok(())
        });
        // An instance that has expired needs no closing.
        closed.map(|_| ())
    }

    /// The timer fired. Returns whether the instance is gone: it has expired (F10), or an earlier step has panicked.
    pub(super) fn wake(&self) -> bool {
        let Ok(mut inner) = self.inner.lock() else { return true };
        let inner = &mut *inner;
        let now = self.now();
        inner.timer.fired(self.context.timers.nanos(Instant::now()));
        if let Lifecycle::Live(live) = &mut inner.lifecycle
            && live.deadline.is_some_and(|due| due <= now)
        {
            self.run(live, now, |live, now, effects| live.machine.tick(now, &mut effects.events));
        }
        inner.archive_if_idle(self.params(), now);
        if inner.expires(&self.context.limits) <= now && inner.is_committed() {
            self.expire(inner);
        } else {
            self.set_timer(inner);
        }
        inner.gone.is_some()
    }

    /// The stream of this session has ended. The session's accesses stay (F8a).
    pub(crate) fn close_session(&self, process: ProcessId, session: SessionId) {
        // Also called while a panic unwinds, and a second one would end the server.
        let Ok(mut inner) = self.inner.lock() else { return };
        match &mut inner.lifecycle {
            Lifecycle::Live(live) => live.sessions.close(process, session),
            Lifecycle::Archived(archived) => {
                if let Some(sessions) = &mut archived.sessions {
                    sessions.close(process, session);
                    if sessions.is_empty() {
                        archived.sessions = None;
                    }
                }
            }
        }
    }

    /// The server drains: unary calls find that no answer will come. Their accesses stay.
    pub(super) fn cancel_waiters(&self) {
        if let Ok(inner) = &mut self.inner.lock()
            && let Lifecycle::Live(live) = &mut inner.lifecycle
        {
            live.waiters.cancel_all();
        }
    }
}

/// The step: from an input to its effects, to the commit, to the clients.
impl Instance {
    /// A step for a request on a session. The client is told on the session what is refused.
    fn session_step<T>(
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
        taken.unwrap_or_else(|gone| {
            sink.outbox.push(gone.to_frame(sink.channel, number));
            Err(gone.reason)
        })
    }

    /// A step for a unary call, which may tell the outcome when the step is committed.
    fn unary_step<T>(
        &self,
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> Result<T, RpcRefusal>,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        let inner = &mut *self.lock();
        let outcome = self.step(inner, Instant::now(), input);
        let outcome = outcome.unwrap_or_else(|gone| Err(*gone));
        Uncommitted::new(outcome, inner.commit_receiver())
    }

    /// Takes one input that came at the moment `at`, in the order of the lock.
    ///
    /// # Errors
    /// Why the instance is gone, if it is.
    fn step<T>(
        &self,
        inner: &mut Inner,
        at: Instant,
        input: impl FnOnce(&mut Live, Time, &mut Effects) -> T,
    ) -> Result<T, Box<RpcRefusal>> {
        if let Some(gone) = &inner.gone {
            return Err(gone.clone());
        }
        let live = inner.restore(&self.config, &self.context.limits);
        // Another call may have been here since that moment, with a later one: time never goes back.
        let now = self.time(at).max(live.touched);
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
        let mut effects = Effects::new(now, std::mem::take(&mut live.spare_events));
        let outcome = input(live, now, &mut effects);
        effects.deadline = live.machine.deadline();
        self.commit(live, effects);
        outcome
    }

    /// The one exit of every step: its effects leave when it is committed, behind those of all steps before it.
    fn commit(&self, live: &mut Live, effects: Effects) {
        let step = Step { instance: self.config.id, at: effects.at, events: &effects.events };
        match self.context.log.append(step) {
            Append::Committed if live.uncommitted.is_empty() => self.release(live, effects),
            Append::Committed => {
                live.uncommitted.push_back(effects);
                while let Some(effects) = live.uncommitted.pop_front() {
                    self.release(live, effects);
                }
            }
            Append::Later => live.uncommitted.push_back(effects),
        }
    }

    /// Records the effects of a committed step and then tells them.
    fn release(&self, live: &mut Live, mut effects: Effects) {
        live.deadline = effects.deadline;
        live.events.extend(effects.at, &effects.events);
        for event in &effects.events {
            self.deliver(live, effects.at, event, &mut effects.session);
        }
        if let Some((sink, reply)) = effects.reply.take() {
            sink.outbox.push_outgoing(reply);
        }
        for waiter in effects.commit_waiters.drain(..) {
            let _ = waiter.send(Ok(()));
        }
        if !effects.events.is_empty() {
            live.wake_watchers();
        }
        effects.events.clear();
        live.spare_events = effects.events;
    }

    /// Tells one event to the clients that it concerns.
    fn deliver(
        &self,
        live: &mut Live,
        at: Time,
        event: &Event,
        opening: &mut Option<(SessionSink, Box<PendingWelcome>)>,
    ) {
        match event {
            Event::Answered { process, number, phase, answer } => {
                let list = live.machine.shared_list();
                let completed = || CompletedAccess::new(Some(*phase), *answer, list);
                live.sessions.complete(*process, *number, completed);
                live.waiters.complete(*process, *number, completed);
            }
            Event::Session { process, session, .. } => {
                // What was answered before this event went to the older session; what comes now goes to this one.
                if let Some((sink, welcome)) = opening.take() {
                    sink.outbox.push_outgoing(Outgoing::Welcome(welcome));
                    live.sessions.open(*process, *session, sink, self.params().processes());
                }
            }
            Event::Withdrawn { process, number } => {
                let closed = live.machine.state() == State::Closed;
                let why = RpcRefusal::from(if closed { &Refusal::Closed } else { &Refusal::Left });
                live.sessions.refuse(*process, *number, &why);
                live.waiters.refuse(*process, *number, &why);
            }
            Event::Finished | Event::Closed => {
                live.ended.get_or_insert(at);
                live.live_guard = None;
            }
            _ => {}
        }
        trace(self.config.id, event);
    }

    /// Settles the oldest step that is not settled yet: see [`crate::commit_log::CommitLog::on_settled`]. Returns
    /// whether the instance is gone.
    pub(super) fn settle(&self, settled: Settled) -> bool {
        let Ok(mut inner) = self.inner.lock() else { return true };
        let inner = &mut *inner;
        let Lifecycle::Live(live) = &mut inner.lifecycle else { return inner.gone.is_some() };
        match settled {
            Settled::Committed => {
                if let Some(effects) = live.uncommitted.pop_front() {
                    self.release(live, effects);
                }
                inner.archive_if_idle(self.params(), self.now());
                self.set_timer(inner);
            }
            Settled::Refused(why) => {
                for effects in live.uncommitted.drain(..) {
                    effects.refuse(&why);
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
        inner.gone = Some(why);
    }
}

/// What an instance is and where it stands.
impl Instance {
    fn set_timer(&self, inner: &mut Inner) {
        let due = inner.next_wake(self.params(), &self.context.limits);
        let due = self.epoch.checked_add(Duration::from_nanos(due.as_nanos()));
        let due = due.map_or(u64::MAX, |due| self.context.timers.nanos(due));
        inner.timer.set(due, self.config.id, &self.context.timers);
    }

    /// Counts the instance as live until it has ended.
    pub(super) fn set_live_guard(&mut self, guard: LiveGuard) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Lifecycle::Live(live) = &mut inner.lifecycle {
            live.live_guard = Some(guard);
        }
    }

    /// The configuration of an instance that was never registered.
    pub(super) fn into_config(self) -> InstanceConfig {
        self.config
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
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        Time::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
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

/// Logs what operators and developers may want to know.
fn trace(id: InstanceId, event: &Event) {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context as TaskContext, Waker};

    use prost::Message as _;
    use stickycas_model::access::Op;
    use stickycas_model::params::{ParamsSpec, Patience};
    use stickycas_model::types::{Position, Seed};
    use stickycas_proto::attach::EncodedResponse;
    use stickycas_proto::v1;
    use stickycas_proto::v1::server_frame::Frame;

    use super::super::config::SharedConfig;
    use super::super::outbox::{Outbox, Polled, Receiver};
    use super::super::view::WatchPoll;
    use super::*;
    use crate::commit_log::{CommitLog, MemoryLog, Settle};
    use crate::limits::Limits;

    const READ: Op = Op::Read { start: Position::new(0) };

    /// Two processes in one warp with hardly any patience. No timer fires: what is due happens with the next input.
    fn instance_with(log: Arc<dyn CommitLog>, patience: Patience) -> Instance {
        let spec = ParamsSpec { patience, ..ParamsSpec::new(2, 2, 1) };
        let params = Params::try_new(spec).unwrap();
        let roster = ["p1".to_owned(), "p2".to_owned()];
        let shared = Arc::new(SharedConfig::new(Principal::new("creator"), &params, &roster));
        let config = InstanceConfig::new(InstanceId::new(1), None, Seed::default(), shared);
        let (retention, idle_lifetime) = (Duration::MAX, Duration::MAX);
        Instance::new(config, Context::new(Limits { retention, idle_lifetime, ..Limits::default() }, log))
    }

    fn instance() -> Instance {
        instance_with(Arc::new(MemoryLog), Patience::Finite(Duration::from_nanos(1)))
    }

    fn live(inner: &Inner) -> &Live {
        match &inner.lifecycle {
            Lifecycle::Live(live) => live,
            Lifecycle::Archived(_) => panic!("it has ended"),
        }
    }

    fn sink() -> SessionSink {
        SessionSink { outbox: Arc::new(Outbox::new(100)), channel: 0 }
    }

    fn sent(sink: &SessionSink) -> Vec<Frame> {
        let (mut receiver, cx) = (Receiver::default(), TaskContext::from_waker(Waker::noop()));
        match sink.outbox.poll(&mut receiver, 100, usize::MAX, &cx) {
            Polled::Frames(EncodedResponse(bytes)) => {
                let message = v1::AttachResponse::decode(&*bytes).unwrap();
                message.frames.into_iter().filter_map(|it| it.frame).collect()
            }
            Polled::Empty => Vec::new(),
            Polled::Overflow => panic!("too many frames"),
        }
    }

    fn access(process: ProcessId, session: Option<SessionId>, number: u64, op: Op) -> Access {
        Access { process, session, number: AccessNumber::new(number).unwrap(), op, no_wait: false }
    }

    fn value(text: &str) -> Value {
        Value::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_panic_in_a_step_ends_the_instance_and_nothing_else() {
        let instance = instance();
        let (process, watcher) = (ProcessId::FIRST, instance.next_watcher());
        let session = instance.hello(process, 0, &sink(), Instant::now()).unwrap().session;
        std::thread::scope(|scope| {
            let step = || instance.step(&mut instance.lock(), Instant::now(), |_, _, _| panic!("a bug"));
            scope.spawn(step).join().unwrap_err();
        });
        instance.close_session(process, session);
        instance.remove_watcher(watcher);
        instance.cancel_waiters();
        assert!(!instance.owes_answer(process, session));
        assert!(instance.wake());
    }

    #[test]
    fn an_answer_due_before_a_hello_goes_to_the_older_session() {
        let instance = instance();
        let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
        let [older, newer] = [sink(), sink()];
        let session = instance.hello(first, 0, &older, Instant::now()).unwrap().session;
        instance.hello(second, 0, &sink(), Instant::now()).unwrap();
        let read = access(first, Some(session), 1, READ);
        assert_eq!(instance.access(read, &older, Instant::now()), Ok(Submitted::New));
        assert!(instance.owes_answer(first, session), "the other process is awaited");
        let due = live(&instance.lock()).deadline.unwrap();
        while instance.now() <= due {}

        instance.hello(first, 0, &newer, Instant::now()).unwrap();
        let told = sent(&older);
        assert!(matches!(told[..], [Frame::Welcome(_), Frame::Answer(_), Frame::Replaced(_)]), "{told:?}");
        let welcomed = sent(&newer);
        assert!(matches!(&welcomed[..], [Frame::Welcome(it)] if it.own.as_ref().unwrap().waiting.is_empty()));
        assert!(!instance.owes_answer(first, session), "it was replaced");
    }

    #[test]
    fn an_archived_instance_is_viewed_and_closed_without_restoring_it() {
        let instance = instance();
        let unlocked = || *instance.view(|_, _, _| instance.inner.try_lock().is_ok()).peek();
        assert!(!unlocked(), "a live instance must not change meanwhile");
        instance.close().peek();
        assert!(unlocked());
        instance.close().peek();
        assert!(instance.archived_size().is_some());
    }

    #[test]
    fn a_watcher_leaves_nothing_behind() {
        let instance = instance();
        let watcher = instance.next_watcher();
        for _ in 0..3 {
            let next = instance.poll_events(0, 1, watcher, Waker::noop());
            assert!(matches!(next, WatchPoll::Pending), "{next:?}");
        }
        assert_eq!(live(&instance.lock()).watchers.len(), 1);
        instance.remove_watcher(watcher);
        assert!(live(&instance.lock()).watchers.is_empty());
    }

    /// A log that commits nothing by itself: as one that waits for a disk, or asks others who owns the instance.
    #[derive(Debug, Default)]
    struct DelayedLog(Mutex<VecDeque<(Time, usize)>>);

    impl CommitLog for DelayedLog {
        fn append(&self, Step { instance, at, events }: Step<'_>) -> Append {
            let mut steps = self.0.lock().unwrap();
            assert_eq!(instance, InstanceId::new(1));
            assert!(steps.back().is_none_or(|(before, _)| *before <= at), "time never goes back");
            steps.push_back((at, events.len()));
            Append::Later
        }

        fn on_settled(&self, _: Settle) {}
    }

    impl DelayedLog {
        fn unsettled(&self) -> usize {
            self.0.lock().unwrap().len()
        }

        /// Commits the oldest step.
        fn commit_one(&self, instance: &Instance) {
            let (_, count) = self.0.lock().unwrap().pop_front().expect("a step that is not settled");
            let before = events(instance);
            assert!(!instance.settle(Settled::Committed));
            assert_eq!(events(instance), before + count, "the events of the step are shown, and no others");
        }

        fn commit_all(&self, instance: &Instance) {
            while self.unsettled() > 0 {
                self.commit_one(instance);
            }
        }
    }

    fn delayed() -> (Arc<DelayedLog>, Instance) {
        let log = Arc::new(DelayedLog::default());
        (log.clone(), instance_with(log, Patience::Endless))
    }

    fn events(instance: &Instance) -> usize {
        match instance.poll_events(0, 1_000, instance.next_watcher(), Waker::noop()) {
            WatchPoll::Events(events) => events.len(),
            WatchPoll::Pending | WatchPoll::End => 0,
            WatchPoll::TooSlow(phase) => panic!("nothing before {phase} is kept"),
        }
    }

    fn waiter(call: UnaryAccess) -> Waiter {
        match call.answer {
            UnaryAnswer::Waiting(waiter) => waiter,
            UnaryAnswer::Known(known) => panic!("{known:?}"),
        }
    }

    fn known(call: UnaryAccess) -> Uncommitted<Result<CompletedAccess, RpcRefusal>> {
        match call.answer {
            UnaryAnswer::Waiting(waiter) => panic!("{waiter:?}"),
            UnaryAnswer::Known(known) => known,
        }
    }

    /// Whether this may be told.
    fn is_committed<T>(uncommitted: Uncommitted<T>) -> bool {
        let future = std::pin::pin!(uncommitted.committed());
        future.poll(&mut TaskContext::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn nothing_is_told_on_a_session_before_it_is_committed() {
        let (log, instance) = delayed();
        let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
        let [one, other, newer] = [sink(), sink(), sink()];
        let now = Instant::now();
        let session = instance.hello(first, 0, &one, now).unwrap().session;
        let others = instance.hello(second, 0, &other, now).unwrap().session;
        let append = access(first, Some(session), 1, Op::Append(value("a")));
        instance.access(append.clone(), &one, now).unwrap();
        instance.access(access(second, Some(others), 1, READ), &other, now).unwrap();
        // The answer once more; a refusal, which tells the expected number; a decision; a newer session.
        assert_eq!(instance.access(append, &one, now), Ok(Submitted::Repeated));
        instance.access(access(first, Some(session), 9, READ), &one, now).unwrap_err();
        instance.access(access(first, Some(session), 2, READ), &one, now).unwrap();
        assert!(matches!(sent(&one)[..], []) && matches!(sent(&other)[..], []), "nothing is committed");
        assert_eq!(events(&instance), 0);
        assert!(instance.owes_answer(first, session), "a reply is still to come");

        log.commit_one(&instance);
        assert!(matches!(sent(&one)[..], [Frame::Welcome(_)]));
        assert_eq!(events(&instance), 2, "it has joined and has a session");
        for _ in 0..2 {
            log.commit_one(&instance);
        }
        assert!(matches!(sent(&other)[..], [Frame::Welcome(_)]) && matches!(sent(&one)[..], []));
        log.commit_one(&instance);
        assert!(
            matches!(sent(&one)[..], [Frame::Answer(_)]) && matches!(sent(&other)[..], [Frame::Answer(_)])
        );
        for _ in 0..2 {
            log.commit_one(&instance);
        }
        assert!(matches!(sent(&one)[..], [Frame::Answer(_), Frame::Refusal(_)]));
        log.commit_all(&instance);

        instance.decide(first, session, value("a"), &one, now).unwrap();
        instance.hello(first, 0, &newer, now).unwrap();
        instance.decide(second, others, value("a"), &other, now).unwrap();
        for sink in [&one, &other, &newer] {
            assert!(matches!(sent(sink)[..], []));
        }
        log.commit_all(&instance);
        let told = sent(&one);
        let withdrawn = |told: &[Frame]| matches!(told, [Frame::Refusal(it), Frame::Decided(_), Frame::Replaced(_)] if it.access_number == 2);
        assert!(withdrawn(&told), "the read that waited is withdrawn: {told:?}");
        assert!(matches!(sent(&other)[..], [Frame::Decided(_)]));
        assert!(matches!(sent(&newer)[..], [Frame::Welcome(_)]));
        assert_eq!(instance.archived_size().is_some(), true, "it has finished and all of it is committed");
    }

    #[test]
    fn nothing_is_told_to_a_call_or_view_before_it_is_committed() {
        let (log, instance) = delayed();
        let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
        assert!(!is_committed(instance.start()));
        let mut waiting = waiter(instance.call(access(first, None, 1, Op::Append(value("a")))));
        drop(waiter(instance.call(access(second, None, 1, READ))));
        assert!(waiting.try_recv().is_err(), "the phase was executed, and is not committed");
        assert!(
            !is_committed(known(instance.call(access(first, None, 7, READ)))),
            "a refusal tells what was accepted"
        );
        assert!(!is_committed(instance.call_decide(first, value("a"))));
        assert!(!is_committed(instance.status(Some(first))));
        assert!(!is_committed(instance.state()));
        let snapshot = instance.snapshot();
        let next_index = snapshot.peek().next_index;
        assert!(!is_committed(snapshot) && events(&instance) == 0);
        assert!(!is_committed(instance.close()));

        let status = instance.status(None);
        log.commit_all(&instance);
        assert!(is_committed(status));
        assert!(matches!(waiting.try_recv(), Ok(Ok(_))));
        assert!(is_committed(instance.state()) && is_committed(instance.snapshot()));
        assert_eq!(events(&instance) as u64, next_index + 1, "of all before the close the snapshot knew");
    }

    #[test]
    fn a_watcher_is_woken_by_the_commit_and_not_by_the_step() {
        let (log, instance) = delayed();
        let woken = Arc::new(crate::counting_waker::CountingWaker::default());
        let waker = Waker::from(woken.clone());
        let poll = || instance.poll_events(0, 9, instance.next_watcher(), &waker);
        assert!(matches!(poll(), WatchPoll::Pending));
        instance.hello(ProcessId::FIRST, 0, &sink(), Instant::now()).unwrap();
        assert_eq!(woken.wake_count(), 0);
        log.commit_all(&instance);
        assert_eq!(woken.wake_count(), 1);
        assert!(matches!(poll(), WatchPoll::Events(_)));
    }

    #[test]
    fn time_of_an_instance_awaits_nobody_before_the_commit() {
        let log = Arc::new(DelayedLog::default());
        let instance = instance_with(log.clone(), Patience::Finite(Duration::from_nanos(1)));
        instance.hello(ProcessId::FIRST, 0, &sink(), Instant::now()).unwrap();
        assert!(live(&instance.lock()).deadline.is_none(), "no timer is set for what is not committed");
        log.commit_all(&instance);
        assert!(live(&instance.lock()).deadline.is_some());
    }

    #[test]
    fn a_refused_step_tells_every_client_and_ends_the_instance() {
        let (log, instance) = delayed();
        let [first, second] = [ProcessId::FIRST, ProcessId::FIRST.next()];
        let [one, other] = [sink(), sink()];
        let now = Instant::now();
        let session = instance.hello(first, 0, &one, now).unwrap().session;
        instance.access(access(first, Some(session), 1, READ), &one, now).unwrap();
        let mut waiting = waiter(instance.call(access(first, None, 1, READ)));
        log.commit_all(&instance);
        assert!(matches!(sent(&one)[..], [Frame::Welcome(_)]));

        instance.hello(second, 0, &other, now).unwrap();
        let view = instance.status(None);
        let why = RpcRefusal::new(RefusalReason::Draining, "another server owns the instance");
        assert!(instance.settle(Settled::Refused(Box::new(why.clone()))), "it is gone");
        for sink in [&one, &other] {
            let told = sent(sink);
            assert!(matches!(&told[..], [Frame::Refusal(it)] if it.message == why.message), "{told:?}");
        }
        assert!(matches!(waiting.try_recv(), Ok(Err(refused)) if *refused == why));
        assert!(!instance.owes_answer(first, session));
        let mut cx = TaskContext::from_waker(Waker::noop());
        let viewed = std::pin::pin!(view.committed());
        assert!(matches!(viewed.poll(&mut cx), std::task::Poll::Ready(Err(refused)) if refused == why));
        assert_eq!(instance.hello(first, 0, &one, now).unwrap_err(), RefusalReason::Draining);
        assert_eq!(events(&instance), 3, "only what was committed is shown");
    }
}
