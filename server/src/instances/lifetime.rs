//! An instance from its creation to its end: the effects of time, of the commit log and of a restart of the
//! server on it. It ends when it expires, when a step of it has panicked, or when the log refuses its steps.

use std::mem;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prost::Message as _;
use stickycas_model::machine::State;
use stickycas_model::types::{ProcessId, SessionId, Time};
use stickycas_proto::convert::log::counts_to_log;
use stickycas_proto::log::v1::Expired;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::config::{InstanceConfig, nanos};
use super::effects::Effects;
use super::instance::Instance;
use super::lifecycle::{Gone, Inner, Lifecycle};
use super::live::Live;
use super::sessions::{SessionSink, Sessions};
use super::shard::ShardContext;
use crate::commit_log::{CommitOutcome, LogIndex, Step, Submission};
use crate::gate::Uncommitted;

/// From creation on.
impl Instance {
    /// A new instance, whose time begins now.
    pub(super) fn new(config: InstanceConfig, shard: Arc<ShardContext>) -> Self {
        let live = Box::new(Live::new(&config, &shard));
        Self::with(config, shard, Lifecycle::Live(live))
    }

    /// An instance whose time goes on now.
    pub(super) fn with(config: InstanceConfig, shard: Arc<ShardContext>, lifecycle: Lifecycle) -> Self {
        let mut inner = Inner::new(lifecycle, 0);
        let latest = inner.latest();
        inner.resume(latest, shard.server.timers.now());
        Self { config, shard, inner: Mutex::new(inner) }
    }

    /// Commits the creation, and has the instance woken when it is time. `inner` has been locked since before
    /// the instance was registered, so this is its first step.
    ///
    /// # Errors
    /// If the log has failed: nothing was created.
    pub(super) fn start(&self, inner: &mut Inner) -> Result<Uncommitted<()>, RpcRefusal> {
        let created = self.step(inner, Instant::now(), |live, effects| {
            if live.keeps_inputs {
                effects.note(Input::Created(self.config.to_log()));
            }
        });
        created.map_err(|gone| *gone)?;
        Ok(Uncommitted::new((), inner.commit_gate()))
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

    /// The timer that was set to the moment `due` has fired. Returns whether the instance is gone: it has
    /// expired (F10), or an earlier step has panicked.
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
            self.run(live, now, |_, effects| effects.note(counts_to_log(&counts)));
        }
    }

    /// Has the instance woken when time alone changes something.
    pub(super) fn set_timer(&self, inner: &mut Inner) {
        let Some(due) = inner.next_wake(self.params(), &self.config.shared.lifetimes) else { return };
        inner.timer.set(inner.moment(due), self.config.id, &self.context().timers);
    }

    /// The stream of this session has ended. The session's accesses stay (F8a).
    pub(crate) fn close_session(&self, process: ProcessId, session: SessionId) {
        // Also called while a panic unwinds, and a second one would end the server.
        let Ok(mut inner) = self.inner.lock() else { return };
        match &mut inner.lifecycle {
            Lifecycle::Live(live) => live.close_session(process, session),
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
            && let Some(live) = inner.live()
        {
            live.waiters.cancel_all();
        }
    }
}

/// The outcomes of steps, from the log.
impl Instance {
    /// The commit log resolves steps: see [`crate::commit_log::CommitLog::on_commit`]. Returns whether the
    /// instance is gone.
    pub(super) fn resolve(&self, resolved: CommitOutcome) -> bool {
        let Ok(mut inner) = self.inner.lock() else {
            self.abandon();
            return true;
        };
        let inner = &mut *inner;
        match resolved {
            CommitOutcome::Committed(log_index) => self.resolve_through(inner, log_index),
            CommitOutcome::Refused(why) => self.refuse_all(inner, *why),
        }
        inner.is_gone()
    }

    /// The server has lost the shard of the instance, which is gone for that reason: nothing of it is told
    /// any more. Its reservations are given back, even while there are references to it.
    pub(super) fn lose(&self, why: &RpcRefusal) {
        let inner = &mut *self.lock_poisoned();
        self.refuse_all(inner, why.clone());
        inner.share = None;
    }

    /// Nothing more is committed: tells all callers that wait for it.
    fn refuse_all(&self, inner: &mut Inner, why: RpcRefusal) {
        if let Lifecycle::Live(live) = &mut inner.lifecycle {
            for effects in live.uncommitted.drain(..) {
                // Its accesses were not counted, and are forgotten with the others.
                self.context().steps.restore_waiting_of(&effects.events);
                effects.refuse(&why, &live.sessions);
            }
        }
        let gone = inner.gone.take().map_or_else(Vec::new, |gone| gone.uncommitted);
        for effects in gone {
            effects.refuse(&why, &Sessions::default());
        }
        self.end(inner, why);
    }

    fn resolve_through(&self, inner: &mut Inner, log_index: LogIndex) {
        if let Some(gone) = &mut inner.gone {
            if gone.uncommitted.first().is_some_and(|effects| effects.log_index <= log_index) {
                let (why, waiting) = (gone.why.clone(), mem::take(&mut gone.uncommitted));
                self.end(inner, why);
                waiting.into_iter().for_each(|mut effects| effects.reply_now());
            }
            return;
        }
        let Lifecycle::Live(live) = &mut inner.lifecycle else { return };
        // Its effects leave with the restart, and its time goes on behind that.
        if live.awaits_restart_commit {
            return;
        }
        self.release_through(live, log_index);
        let moment = self.context().timers.now();
        if live.stopped_until.is_some_and(|until| until <= log_index) {
            live.stopped_until = None;
            let latest = live.latest;
            inner.resume(latest, moment);
        }
        let now = inner.time(moment);
        self.archive_if_idle(inner, now);
        self.set_timer(inner);
    }

    /// A step has panicked: the instance ends, also for a server that recovers.
    pub(super) fn abandon(&self) {
        let inner = &mut *self.lock_poisoned();
        if inner.gone.is_none() {
            tracing::error!(instance = %self.config.id, "a step has panicked: the instance ends");
            let (latest, last) = (inner.latest(), LogIndex::START);
            self.append_expiry(latest, last);
            inner.gone = Some(Box::new(Gone { why: RpcRefusal::internal(), uncommitted: Vec::new() }));
        }
    }

    fn append_expiry(&self, now: Time, last: LogIndex) -> Submission {
        let record = self.shard.log.keeps_inputs().then(|| self.record(now, Input::Expired(Expired {}), 0));
        self.shard.log.submit(Step {
            instance: self.config.id,
            name: self.config.name.as_ref(),
            last,
            at: now,
            events: &[],
            record: record.as_ref(),
        })
    }

    /// The instance has expired (F10). That is told when it is committed.
    pub(super) fn expire(&self, inner: &mut Inner, now: Time) {
        let why = RpcRefusal::new(
            RefusalReason::InstanceUnknown,
            format!("instance {} has expired", self.config.id),
        );
        match self.append_expiry(now, LogIndex::START) {
            Submission::Committed => self.end(inner, why),
            Submission::Later(log_index) => {
                let effects = Effects { log_index, ..Effects::new(now) };
                inner.timer.clear(self.config.id, &self.context().timers);
                inner.gone = Some(Box::new(Gone { why, uncommitted: vec![effects] }));
            }
        }
    }

    /// The instance is gone: tells all callers that wait for it.
    fn end(&self, inner: &mut Inner, why: RpcRefusal) {
        let release = |sink: SessionSink| {
            if why.reason == RefusalReason::OwnerLost {
                // The client goes on elsewhere, also if it waits for nothing.
                sink.outbox.push(why.to_frame(sink.channel, None));
            }
            sink.outbox.release_channel(sink.channel);
        };
        match &mut inner.lifecycle {
            Lifecycle::Live(live) => {
                (live.live_guard, live.held_phase) = (None, None);
                self.context().steps.forget_waiting(live.machine.waiting());
                for (process, sink) in live.sessions.drain() {
                    for (number, _) in live.machine.member(process).waiting {
                        sink.outbox.push(why.to_frame(sink.channel, Some(number)));
                    }
                    release(sink);
                }
                live.waiters.refuse_all(&why);
                live.wake_watchers();
            }
            Lifecycle::Archived(archived) => {
                for (_, sink) in archived.sessions.take().into_iter().flat_map(|mut open| open.drain()) {
                    release(sink);
                }
            }
        }
        inner.timer.clear(self.config.id, &self.context().timers);
        inner.gone = Some(Box::new(Gone { why, uncommitted: Vec::new() }));
    }
}

/// A restart of the server.
impl Instance {
    /// Sets its time to the served time that the log has told last, if its machine waits for time: patience
    /// drains, the join timeout or the pace passes.
    pub(super) fn catch_up(&self, served: Duration) {
        let inner = &mut *self.lock();
        let now = inner.time(nanos(served));
        if let Some(live) = inner.live()
            && now > live.latest
            && live.machine.awaits_time()
        {
            live.awaits_restart_commit = true;
            self.run(live, now, Live::catch_up);
        }
    }

    /// The server has restarted, and that is committed.
    pub(super) fn restart(&self, inner: &mut Inner) {
        if let Some(live) = inner.live()
            && !matches!(live.machine.state(), State::Finished | State::Closed)
        {
            self.release_through(live, LogIndex::END);
            live.stopped_until = None;
            let now = live.latest;
            let mut effects = Effects::new(now);
            live.restart(self.config.shared.lifetimes.rejoin, &mut effects);
            live.machine.take_changed();
            live.touched = now;
            self.release_uncounted(live, &mut effects);
        }
    }

    /// The server has restarted, and serves from this moment on. `served`: how long instances had been
    /// served. The rest of the retention of an ended instance is as long as it was then; for another one the
    /// restart counts as a call (F10).
    pub(super) fn go_on(&self, served: Duration, moment: Instant) {
        if self.shard.failure().is_some() {
            return;
        }
        let inner = &mut *self.lock();
        self.restart(inner);
        if let Some(live) = inner.live() {
            live.awaits_restart_commit = false;
            live.count_held_phase(&*self.shard.log);
        }
        let latest = inner.latest();
        let now = if inner.has_ended() { inner.time(nanos(served)).max(latest) } else { latest };
        inner.resume(now, self.context().timers.nanos(moment));
        self.set_timer(inner);
    }
}
