//! The lifecycle of an instance: live, archived once it has ended, gone; and when each of these is due.

use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Time;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::ServerFrame;

use super::archive::{Archived, restored_for};
use super::byte_share::InstanceShare;
use super::config::{InstanceConfig, Lifetimes};
use super::effects::Effects;
use super::live::Live;
use super::load_monitor::LiveGuard;
use super::outbox::Outgoing;
use super::sessions::SessionSink;
use super::shard::ShardContext;
use super::timers::TimerHandle;
use crate::event_log::EventsView;
use crate::gate::{CommitReceiver, Gate, Uncommitted};

/// The part of an instance that its lock guards.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) timer: TimerHandle,
    /// The moment at which the instance's time was or would have been 0, as timers keep moments. It moves on
    /// when the time of the instance stands still, and is before the start of the server after a restart.
    pub(super) epoch: i64,
    /// The reason for which the instance is gone, while there are references to it; `None` if it is not.
    pub(super) gone: Option<Box<Gone>>,
    /// The memory and the space on the log's disk that the instance has reserved, once it is registered.
    pub(super) share: Option<InstanceShare>,
    pub(super) lifecycle: Lifecycle,
}

/// An instance that is gone.
#[derive(Debug)]
pub(super) struct Gone {
    /// The reason.
    pub(super) why: RpcRefusal,
    /// The effects of its expiry, and of calls since then: no caller is told that it is gone before the
    /// expiry is committed. Empty: it is committed.
    pub(super) uncommitted: Vec<Effects>,
}

/// See the module.
#[derive(Debug)]
pub(super) enum Lifecycle {
    Live(Box<Live>),
    Archived(Archived),
}

impl Inner {
    /// Of a new instance, whose time begins at this moment.
    pub(super) fn new(lifecycle: Lifecycle, epoch: i64) -> Self {
        Self { timer: TimerHandle::default(), epoch, gone: None, share: None, lifecycle }
    }

    /// The time of the instance at this moment, as timers keep moments (F3).
    pub(super) fn time(&self, moment: u64) -> Time {
        if self.is_stopped() {
            return self.latest();
        }
        let since = i64::try_from(moment).unwrap_or(i64::MAX).saturating_sub(self.epoch);
        Time::from_nanos(since.try_into().unwrap_or(0))
    }

    /// The moment of this time of the instance.
    pub(super) fn moment(&self, time: Time) -> u64 {
        self.epoch.saturating_add_unsigned(time.as_nanos()).try_into().unwrap_or(0)
    }

    /// The time of the instance goes on from `time` at this moment.
    pub(super) fn resume(&mut self, time: Time, moment: u64) {
        self.epoch = i64::try_from(moment).unwrap_or(i64::MAX).saturating_sub_unsigned(time.as_nanos());
    }

    /// The time of the last step; of an archived instance, when it ended.
    pub(super) fn latest(&self) -> Time {
        match &self.lifecycle {
            Lifecycle::Live(live) => live.latest,
            Lifecycle::Archived(archived) => archived.ended,
        }
    }

    /// The state of the instance.
    pub(super) fn state(&self) -> State {
        match &self.lifecycle {
            Lifecycle::Live(live) => live.machine.state(),
            Lifecycle::Archived(archived) => archived.state,
        }
    }

    /// Whether the instance has ended: nothing but reads and its expiry can come.
    pub(super) fn has_ended(&self) -> bool {
        self.live_ref().is_none_or(|live| live.ended.is_some())
    }

    /// Whether the instance was closed, and the close is committed.
    pub(super) fn is_closed(&self) -> bool {
        self.has_ended() && self.state() == State::Closed
    }

    /// Whether the time of the instance stands still.
    pub(super) fn is_stopped(&self) -> bool {
        self.live_ref().is_some_and(|live| live.stopped_until.is_some())
    }

    /// The outcome of a call, which may be told when everything that it follows from is committed. `outcome`:
    /// an error is the reason for which the instance is gone.
    pub(super) fn outcome<T>(
        &mut self,
        outcome: Result<Result<T, RpcRefusal>, Box<RpcRefusal>>,
    ) -> Uncommitted<Result<T, RpcRefusal>> {
        let outcome = outcome.unwrap_or_else(|gone| Err(*gone));
        Uncommitted::new(outcome, self.commit_gate())
    }

    /// Counts the instance as live until it has ended.
    pub(super) fn set_live_guard(&mut self, guard: Option<LiveGuard>) {
        let (Some(live), Some(mut guard)) = (self.live(), guard) else { return };
        if live.machine.state() != State::Gathering {
            guard.end_gathering();
        }
        live.live_guard = Some(guard);
    }

    /// Sets what the instance has reserved.
    pub(super) fn set_share(&mut self, share: InstanceShare, config: &InstanceConfig) {
        self.share = Some(share);
        self.resize_share(config);
        if self.has_ended() {
            self.note_expiration(config);
        }
    }

    /// The instance has ended: notes the moment at which the server lets go of it.
    fn note_expiration(&self, config: &InstanceConfig) {
        if let Some(share) = &self.share {
            share.add_expiration(self.moment(self.expires(&config.shared.lifetimes)));
        }
    }

    /// The checkpoint of the instance has so many bytes. While it lives that is reserved; once it has ended,
    /// calls may have come since its reserve was measured, and it is still restored.
    pub(super) fn count_checkpoint(&mut self, bytes: usize) {
        let has_ended = self.has_ended();
        if let Some(share) = self.share.as_mut().filter(|_| has_ended) {
            share.grow_log_to(2 * bytes);
        }
    }

    /// An archived instance takes less than it might have.
    fn resize_share(&mut self, config: &InstanceConfig) {
        if let (Some(share), Lifecycle::Archived(archived)) = (&mut self.share, &self.lifecycle) {
            share.resize_memory(archived.bytes(config));
            share.resize_log(archived.log_case(config));
        }
    }

    /// The live instance, restored if it was archived.
    pub(super) fn restore(&mut self, config: &InstanceConfig, shard: &ShardContext) -> &mut Live {
        if let Lifecycle::Archived(archived) = &mut self.lifecycle {
            self.lifecycle = Lifecycle::Live(Box::new(archived.restore(config, shard)));
        }
        match &mut self.lifecycle {
            Lifecycle::Live(live) => live,
            Lifecycle::Archived(_) => unreachable!("it has just been restored"),
        }
    }

    /// The instance, if it is live.
    pub(super) fn live(&mut self) -> Option<&mut Live> {
        match &mut self.lifecycle {
            Lifecycle::Live(live) => Some(live),
            Lifecycle::Archived(_) => None,
        }
    }

    /// The same, to be looked at.
    pub(super) fn live_ref(&self) -> Option<&Live> {
        match &self.lifecycle {
            Lifecycle::Live(live) => Some(live),
            Lifecycle::Archived(_) => None,
        }
    }

    /// The committed events that are kept.
    pub(super) fn events(&self) -> EventsView<'_> {
        match &self.lifecycle {
            Lifecycle::Live(live) => live.events.view(),
            Lifecycle::Archived(archived) => archived.events.view(),
        }
    }

    /// The reason for which the instance is gone, if it is.
    pub(super) fn gone(&self) -> Option<RpcRefusal> {
        self.gone.as_deref().map(|gone| gone.why.clone())
    }

    /// Whether the instance is gone and everybody may know it.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.uncommitted.is_empty())
    }

    /// Tells a client on its session that the instance is gone, when that may be told.
    pub(super) fn tell(&mut self, sink: &SessionSink, frame: impl Into<ServerFrame>, shard: &ShardContext) {
        let waiting = self.gone.as_mut().map(|gone| &mut gone.uncommitted);
        match waiting.filter(|waiting| !waiting.is_empty()) {
            Some(waiting) => {
                let mut effects = Effects::new(waiting[0].at);
                effects.log_index = waiting[0].log_index;
                effects.reply(sink, frame);
                shard.log.hold(effects.log_index, effects.bytes());
                waiting.push(effects);
            }
            None => sink.push_gated(Outgoing::frame(frame), shard.ownership_of_gone()),
        }
    }

    /// Whether every step is committed.
    pub(super) fn is_committed(&self) -> bool {
        self.live_ref().is_none_or(|live| live.uncommitted.is_empty())
    }

    /// Opens when all steps so far are committed.
    pub(super) fn commit_gate(&mut self) -> Gate {
        Gate::of_step(self.commit_receiver())
    }

    fn commit_receiver(&mut self) -> Option<CommitReceiver> {
        if let Some(gone) = &mut self.gone {
            return gone.uncommitted.last_mut().map(Effects::commit_receiver);
        }
        self.live()?.uncommitted.back_mut().map(Effects::commit_receiver)
    }

    /// Whether the instance has ended and may be archived once everything is committed: at once when it ends,
    /// later when no call has come for a while.
    pub(super) fn may_be_archived(&self, params: &Params, now: Time) -> bool {
        let Some(live) = self.live_ref() else { return false };
        let is_idle = || now >= live.touched.after(restored_for(params));
        live.ended.is_some() && (!live.was_archived || is_idle())
    }

    /// Archives the instance if it may be and everything is committed.
    pub(super) fn archive_if_idle(&mut self, config: &InstanceConfig, now: Time) {
        if !self.may_be_archived(&config.shared.params, now) || !self.is_committed() {
            return;
        }
        let Lifecycle::Live(live) = &mut self.lifecycle else { return };
        let Some(ended) = live.ended else { return };
        let is_first_time = !live.was_archived;
        self.lifecycle = Lifecycle::Archived(Archived::new(live, ended));
        self.resize_share(config);
        if is_first_time {
            self.note_expiration(config);
        }
    }

    /// The time at which the instance expires if nothing happens (F10).
    pub(super) fn expires(&self, lifetimes: &Lifetimes) -> Time {
        match &self.lifecycle {
            Lifecycle::Archived(Archived { ended, .. }) => ended.after(lifetimes.retention),
            Lifecycle::Live(live) => match live.ended {
                Some(ended) => ended.after(lifetimes.retention),
                None => live.touched.after(lifetimes.idle),
            },
        }
    }

    /// The time of the next change by time alone: the machine's deadline, and once every step is committed
    /// the archiving or the expiry. `None`: only a commit changes something.
    pub(super) fn next_wake(&self, params: &Params, lifetimes: &Lifetimes) -> Option<Time> {
        let live = self.live_ref();
        if !self.is_committed() {
            return live.filter(|live| live.stopped_until.is_none())?.machine.deadline();
        }
        let sooner = live.and_then(|live| match live.ended {
            Some(_) => Some(live.touched.after(restored_for(params))),
            None => live.machine.deadline(),
        });
        let expires = self.expires(lifetimes);
        Some(sooner.map_or(expires, |sooner| sooner.min(expires)))
    }
}
