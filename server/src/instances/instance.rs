//! One instance: its machine behind one short lock, and the way of every step through it.
//!
//! Every input goes the same way, in one synchronous step under the lock, and reads top to bottom in this
//! file. An operation that a client asks for hands the input to the machine ([`Live`]), which returns the
//! [`Effects`]; [`Instance::commit`] hands them to the [commit log](crate::commit_log); when the step is
//! committed, [`Instance::release`] records the events and then tells sessions, waiting calls and watchers.
//! Nothing is awaited in between, so a call that is cancelled leaves nothing half done (SPEC F8a).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use stickycas_model::access::{Access, Refusal};
use stickycas_model::history::{Event, Offence, OffenceKind};
use stickycas_model::machine::State;
use stickycas_model::types::{AccessNumber, ProcessId, SessionId, Time, Value};
use stickycas_proto::log::v1::Record;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::config::InstanceConfig;
use super::effects::{Effects, OpeningSession, trace_event};
use super::lifecycle::{Inner, Lifecycle};
use super::live::{Live, Submitted};
use super::outbox::{Outgoing, PendingWelcome};
use super::sessions::SessionSink;
use super::shard::ShardContext;
use super::waiters::{CompletedAccess, Waiter};
use crate::commit_log::{LogIndex, Step, Submission};
use crate::gate::Uncommitted;
use crate::poll_clock;
use crate::quota::{Account, LogBytes, OffenceSink};

/// One instance. See the module.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) config: InstanceConfig,
    pub(super) shard: Arc<ShardContext>,
    pub(super) inner: Mutex<Inner>,
}

/// A session that was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionOpened {
    pub(crate) session: SessionId,
    /// Whether it replaces an open session.
    pub(crate) replaces: bool,
}

/// An access that came with a unary call.
#[derive(Debug)]
pub(crate) struct UnaryAccess {
    pub(crate) answer: UnaryAnswer,
    /// Whether it came before (F8b).
    pub(crate) repeated: bool,
}

/// The state of an access that came with a unary call.
enum Called {
    /// Its answer.
    Answered(CompletedAccess),
    /// Its answer will come.
    Waits(Waiter),
    /// As many calls wait for the answer as may.
    Crowded,
}

/// The way of a unary call to its answer.
#[derive(Debug)]
pub(crate) enum UnaryAnswer {
    /// The answer, or the refusal, is known.
    Known(Uncommitted<Result<CompletedAccess, RpcRefusal>>),
    /// The answer will come when the access is executed and its phase committed.
    Waiting(Waiter),
}

/// The operations that clients ask for: each is one step, or none if the instance is gone.
impl Instance {
    /// Opens a session whose answers go to `sink` from now on, the welcome first (F8e).
    ///
    /// # Errors
    /// The reason for which the hello was refused, which the client is told on `sink`.
    pub(crate) fn hello(
        &self,
        process: ProcessId,
        incarnation: u64,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<SessionOpened, RefusalReason> {
        self.session_step(sink, None, at, |live, effects| {
            let welcome = live.hello(process, incarnation, effects)?;
            let opened = SessionOpened { session: welcome.session, replaces: live.has_session(process) };
            let (session, sink) = (welcome.session, sink.clone());
            let welcome = PendingWelcome::new(sink.channel, process, welcome, &self.config);
            let opening = OpeningSession { process, session, sink, welcome, stream_ended: false };
            effects.opening = Some(Box::new(opening));
            Ok(opened)
        })
    }

    /// Takes an access that came on a session at this moment. Its answer goes to the process's newest
    /// session.
    ///
    /// # Errors
    /// The reason for which the access was refused, which the client is told on `sink`.
    pub(crate) fn access(
        &self,
        access: Access,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<Submitted, RefusalReason> {
        let number = access.number;
        self.session_step(sink, Some(number), at, |live, effects| {
            let (submitted, answered) = live.access(access, effects)?;
            if let Some(answered) = answered {
                effects.reply_outgoing(sink, Outgoing::Answer(sink.channel, number, answered));
            }
            Ok(submitted)
        })
    }

    /// Takes an access that came with a unary call.
    pub(crate) fn call(&self, access: Access) -> UnaryAccess {
        let (process, number) = (access.process, access.number);
        let inner = &mut *self.lock();
        let outcome = self.step(inner, poll_clock::now(), |live, effects| {
            let (submitted, answered) = live.access(access, effects)?;
            let repeated = submitted == Submitted::Repeated;
            // The answer may be among the events of this step already, which are told after this.
            let waits = || live.waiters.add(process, number).map_or(Called::Crowded, Called::Waits);
            Ok((answered.map_or_else(waits, Called::Answered), repeated))
        });
        let (known, repeated) = match outcome {
            Ok(Ok((Called::Waits(waiter), repeated))) => {
                return UnaryAccess { answer: UnaryAnswer::Waiting(waiter), repeated };
            }
            Ok(Ok((Called::Answered(completed), repeated))) => (Ok(Ok(completed)), repeated),
            Ok(Ok((Called::Crowded, _))) => (Ok(Err(self.too_many_waiters(process, inner))), false),
            Ok(Err(refused)) => (Ok(Err(refused)), false),
            Err(gone) => (Err(gone), false),
        };
        UnaryAccess { answer: UnaryAnswer::Known(inner.outcome(known)), repeated }
    }

    /// Refuses a call because as many wait for its access as may, which is an offence (B2).
    fn too_many_waiters(&self, process: ProcessId, inner: &mut Inner) -> RpcRefusal {
        let limits = &self.context().limits;
        let why = format!("{} calls wait for this access, as many as may", limits.callers_per_access);
        let (kind, detail) = (OffenceKind::QuotaExceeded, why.clone());
        let offence = Offence { process, kind, number: None, phase: None, detail };
        // The instance has just taken a step, so it is not gone.
        let _ = self.step(inner, Instant::now(), |live, effects| live.file_offence(offence, effects));
        RpcRefusal::new(RefusalReason::TooManyWaiting, why).with_retry_after(limits.retry_after)
    }

    /// A process reports its decision on a session and leaves (F10), unless a newer session has replaced this
    /// one (F8f).
    ///
    /// # Errors
    /// The reason for which the decision was refused, which the client is told on `sink`.
    pub(crate) fn decide(
        &self,
        process: ProcessId,
        session: SessionId,
        value: Value,
        sink: &SessionSink,
        at: Instant,
    ) -> Result<(), RefusalReason> {
        self.session_step(sink, None, at, |live, effects| {
            let current = live.machine.session(process);
            if current != Some(session) {
                return Err(RpcRefusal::from(&Refusal::OlderSession { given: session, current }));
            }
            live.decide(process, value, effects)?;
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
        self.unary_step(|live, effects| {
            live.decide(process, value, effects)?;
            Ok(())
        })
    }

    /// Files an offence of a message that was refused before it came to the machine (B2).
    pub(crate) fn file_offence(&self, offence: Offence) {
        // An instance that is gone keeps no offences.
        let _ = self.step(&mut self.lock(), Instant::now(), |live, effects| {
            live.file_offence(offence, effects);
        });
    }

    /// Refuses a message that came on a session before it comes to the machine, which is an offence (B2). The
    /// client is told on `sink`, when the offence is committed. Returns why.
    pub(crate) fn refuse(
        &self,
        offence: Offence,
        refused: RpcRefusal,
        sink: &SessionSink,
        at: Instant,
    ) -> RefusalReason {
        let (number, reason) = (offence.number, refused.reason);
        let told = self.session_step(sink, number, at, |live, effects| {
            live.file_offence(offence, effects);
            Err::<(), _>(refused)
        });
        told.err().unwrap_or(reason)
    }

    /// Refuses a unary call likewise.
    pub(crate) fn refuse_call<T>(
        &self,
        offence: Offence,
        refused: RpcRefusal,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        self.unary_step(|live, effects| {
            live.file_offence(offence, effects);
            Err(refused)
        })
    }

    /// The creator closes the instance (F10).
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
    pub(crate) fn close(&self) -> Uncommitted<Result<(), RpcRefusal>> {
        {
            let inner = self.lock();
            if let Lifecycle::Archived(archived) = &inner.lifecycle
                && archived.state == State::Closed
                && self.gone(&inner).is_none()
            {
                // It need not be restored to be closed again.
                return Uncommitted::new(Ok(()), self.shard.ownership());
            }
        }
        self.unary_step(|live, effects| {
            live.close(effects);
            Ok(())
        })
    }

    /// Admits a request of this account that brings so many bytes to the log. They wait there from
    /// [`Self::keep_charge`] on.
    ///
    /// # Errors
    /// If the principal has its share of the bytes that wait.
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
}

impl OffenceSink for Instance {
    fn file_offence(&self, offence: Offence) {
        Self::file_offence(self, offence);
    }
}

/// The step: from an input to its effects, to the commit, to the clients.
impl Instance {
    /// A step for a request on a session. The client is told refusals on the session.
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
        let outcome = self.step(inner, poll_clock::now(), input);
        inner.outcome(outcome)
    }

    /// Takes one input that came at the moment `at`, in the order of the lock.
    ///
    /// # Errors
    /// The reason for which the instance is gone, if it is.
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

    /// Runs one input of a live instance and commits its effects.
    pub(super) fn run<T>(
        &self,
        live: &mut Live,
        now: Time,
        input: impl FnOnce(&mut Live, &mut Effects) -> T,
    ) -> T {
        debug_assert!(live.latest <= now, "time never goes back");
        live.latest = now;
        let mut effects = Effects::new(now);
        let outcome = input(live, &mut effects);
        self.commit(live, effects);
        live.count_held_phase(&*self.shard.log);
        outcome
    }

    /// The one exit of every step: its effects leave when it is committed, behind those of all steps before
    /// it.
    fn commit(&self, live: &mut Live, mut effects: Effects) {
        effects.opened_phases += live.machine.take_opened_phases();
        match self.log_step(live, &mut effects) {
            Submission::Committed if live.uncommitted.is_empty() => self.release(live, &mut effects),
            Submission::Committed => {
                live.uncommitted.push_back(effects);
                self.release_through(live, LogIndex::END);
            }
            Submission::Later(log_index) => {
                effects.log_index = log_index;
                live.uncommitted.push_back(effects);
            }
        }
    }

    /// Hands a step to the log. A step that changed nothing is not logged: it stands where the step before it
    /// does.
    fn log_step(&self, live: &mut Live, effects: &mut Effects) -> Submission {
        let mut record = effects.record.take();
        if live.keeps_inputs {
            let always_logged = effects.always_logged;
            record = record.filter(|record| live.has_changed(record.input.as_ref()) || always_logged);
            let Some(record) = &mut record else {
                if effects.refuses() {
                    // The transaction of a step before this one may have been begun before the request came.
                    effects.gate = self.shard.ownership();
                }
                let Some(last) = live.uncommitted.back() else { return Submission::Committed };
                self.shard.log.hold(last.log_index, effects.bytes());
                return Submission::Later(last.log_index);
            };
            record.instance = self.config.number;
            record.at_nanos = effects.at.as_nanos();
            record.digest = effects.digest();
        }
        let step = Step {
            instance: self.config.id,
            name: self.config.name.as_ref(),
            last: live.last_log_index,
            at: effects.at,
            events: &effects.events,
            record: record.as_deref(),
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
        let mut uncommitted = std::mem::take(&mut live.uncommitted);
        let committed = uncommitted.partition_point(|effects| effects.log_index <= log_index);
        uncommitted.range_mut(..committed).for_each(|effects| self.release(live, effects));
        uncommitted.drain(..committed);
        live.uncommitted = uncommitted;
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
        effects.clear_events();
    }

    /// Tells the events to the clients that they concern.
    fn deliver(&self, live: &mut Live, Effects { at, events, opening, .. }: &mut Effects) {
        // A close withdraws every access, and is the last event of its step. The machine may be further by
        // now.
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
                    // Answers before this event went to the older session; later ones go to this one.
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

#[cfg(test)]
mod tests;
