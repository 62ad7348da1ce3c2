//! The restarts of the server so far, and for how long they kept patience from draining (SPEC F3).

use std::time::Duration;

use crate::types::Time;

/// The restarts so far, and the last one's time to reconnect.
#[derive(Clone, Debug, Default)]
pub(super) struct RejoinState {
    /// Processes that have not been heard of since the last restart and are awaited.
    pub(super) away: u32,
    /// From when to when the last restart keeps patience from draining, if they stay away.
    pub(super) since: Time,
    pub(super) until: Time,
    /// For how long no patience drained because of restarts that are over.
    pub(super) spared: Duration,
    /// No event but the patience that the restart found spent has come since the restart.
    pub(super) just_now: bool,
}

impl RejoinState {
    /// When the time to reconnect ends, if processes are away.
    pub(super) fn until(&self) -> Option<Time> {
        (self.away > 0).then_some(self.until)
    }

    /// For how long no patience has drained up to `at`.
    pub(super) fn spared_until(&self, at: Time) -> Duration {
        let last = if self.away > 0 { at.min(self.until).since(self.since) } else { Duration::ZERO };
        self.spared + last
    }

    /// The last one is over: a new one begins, or nobody is away any more.
    pub(super) fn end(&mut self, at: Time) {
        self.spared = self.spared_until(at);
        self.away = 0;
    }

    /// Phases may open now: before, there was no patience to drain.
    pub(super) fn gathering_ended(&mut self, at: Time) {
        self.since = self.since.max(at);
        self.spared = Duration::ZERO;
    }
}
