//! The lifecycle of an instance: live, archived once it has ended, gone; and when each of these is due.

use stickycas_model::params::Params;
use stickycas_model::types::Time;
use stickycas_proto::status::RpcRefusal;

use super::archive::{Archived, restored_for};
use super::config::InstanceConfig;
use super::effects::{CommitReceiver, Effects};
use super::live::Live;
use super::load_monitor::LiveGuard;
use super::timers::TimerHandle;
use crate::limits::Limits;

/// What the lock of an instance guards.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) timer: TimerHandle,
    /// Why the instance is gone for everybody who still has a reference to it; `None` if it is not.
    pub(super) gone: Option<Box<RpcRefusal>>,
    pub(super) lifecycle: Lifecycle,
}

/// See the module.
#[derive(Debug)]
pub(super) enum Lifecycle {
    Live(Box<Live>),
    Archived(Archived),
}

impl Inner {
    /// Of a new instance.
    pub(super) fn new(live: Live) -> Self {
        Self { timer: TimerHandle::default(), gone: None, lifecycle: Lifecycle::Live(Box::new(live)) }
    }

    /// Counts the instance as live until it has ended.
    pub(super) fn set_live_guard(&mut self, guard: LiveGuard) {
        if let Lifecycle::Live(live) = &mut self.lifecycle {
            live.live_guard = Some(guard);
        }
    }

    /// The live instance, restored if it was archived.
    pub(super) fn restore(&mut self, config: &InstanceConfig, limits: &Limits) -> &mut Live {
        if let Lifecycle::Archived(archived) = &mut self.lifecycle {
            self.lifecycle = Lifecycle::Live(Box::new(archived.restore(config, limits)));
        }
        match &mut self.lifecycle {
            Lifecycle::Live(live) => live,
            Lifecycle::Archived(_) => unreachable!("it has just been restored"),
        }
    }

    /// The instance, if it is live and every step of it is committed.
    pub(super) fn committed_live(&mut self) -> Option<&mut Live> {
        match &mut self.lifecycle {
            Lifecycle::Live(live) if live.uncommitted.is_empty() => Some(live),
            Lifecycle::Live(_) | Lifecycle::Archived(_) => None,
        }
    }

    /// Why the instance is gone, if it is.
    pub(super) fn gone(&self) -> Option<RpcRefusal> {
        self.gone.as_deref().cloned()
    }

    /// Whether every step is committed.
    pub(super) fn is_committed(&self) -> bool {
        match &self.lifecycle {
            Lifecycle::Live(live) => live.uncommitted.is_empty(),
            Lifecycle::Archived(_) => true,
        }
    }

    /// Resolves when all steps so far are committed; `None` if they are.
    pub(super) fn commit_receiver(&mut self) -> Option<CommitReceiver> {
        match &mut self.lifecycle {
            Lifecycle::Live(live) => live.uncommitted.back_mut().map(Effects::commit_receiver),
            Lifecycle::Archived(_) => None,
        }
    }

    /// Archives an instance that has ended: at once when it ends, later when no call has come for a while.
    pub(super) fn archive_if_idle(&mut self, params: &Params, now: Time) {
        let Lifecycle::Live(live) = &mut self.lifecycle else { return };
        let Some(ended) = live.ended.filter(|_| live.uncommitted.is_empty()) else { return };
        if live.reserved.is_none() && now < live.touched.after(restored_for(params)) {
            return;
        }
        self.lifecycle = Lifecycle::Archived(Archived::new(live, ended));
    }

    /// When the instance expires as things stand (F10).
    pub(super) fn expires(&self, limits: &Limits) -> Time {
        match &self.lifecycle {
            Lifecycle::Archived(Archived { ended, .. }) => ended.after(limits.retention),
            Lifecycle::Live(live) => match live.ended {
                Some(ended) => ended.after(limits.retention),
                None => live.touched.after(limits.idle_lifetime),
            },
        }
    }

    /// When time alone changes something next: the machine's deadline, the archiving or the expiry. Every step is
    /// committed.
    pub(super) fn next_wake(&self, params: &Params, limits: &Limits) -> Time {
        let expires = self.expires(limits);
        let sooner = match &self.lifecycle {
            Lifecycle::Archived(_) => None,
            Lifecycle::Live(live) if live.ended.is_some() => Some(live.touched.after(restored_for(params))),
            Lifecycle::Live(live) => live.machine.deadline(),
        };
        sooner.map_or(expires, |sooner| sooner.min(expires))
    }
}
