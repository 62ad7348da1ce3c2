//! What the commit log resolves of an instance, and how an instance ends: it expires, a step of it has panicked, or the log
//! refuses its steps.

use stickycas_model::types::Time;
use stickycas_proto::log::v1::Expired;
use stickycas_proto::log::v1::record::Input;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::effects::Effects;
use super::instance::Instance;
use super::lifecycle::{Gone, Inner, Lifecycle};
use super::sessions::{SessionSink, Sessions};
use crate::commit_log::{CommitOutcome, LogIndex, Step, Submission};

impl Instance {
    /// The commit log resolves steps: see [`crate::commit_log::CommitLog::on_commit`]. Returns whether the instance is
    /// gone.
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

    /// The server has lost the shard of the instance, which is gone for that reason: nothing of it is told any more. What it
    /// had reserved is given back, whoever still has a reference to it.
    pub(super) fn lose(&self, why: &RpcRefusal) {
        let inner = &mut *self.lock_poisoned();
        self.refuse_all(inner, why.clone());
        inner.shares = None;
    }

    /// Nothing more is committed: tells everybody who waits for it.
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
                let (why, waiting) = (gone.why.clone(), std::mem::take(&mut gone.uncommitted));
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
                let effects = Effects { log_index, ..Effects::new(now, Vec::new()) };
                inner.timer.clear(self.config.id, &self.context().timers);
                inner.gone = Some(Box::new(Gone { why, uncommitted: vec![effects] }));
            }
        }
    }

    /// The instance is gone: tells everybody who waits for it.
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
