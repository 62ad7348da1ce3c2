//! When to try again: exponential backoff with jitter, bounded by the time without progress.
//!
//! A retry is safe because accesses are numbered (F8b). It is bounded because a client that asks for ever
//! hides a dead server; and it is spread because n clients whose server restarts all fail at the same moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;

/// How a client retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Delay after the first failure; it doubles with each further one in a row.
    pub first: Duration,
    /// The longest delay.
    pub longest: Duration,
    /// Give up after this long without any progress. Waiting for one's phase on a connection that stands is
    /// no lack of progress. Zero: after the first failure.
    pub give_up_after: Duration,
    /// Give up after this long if no server was ever reached and nothing was sent; not later than after
    /// `give_up_after`. [`Duration::MAX`]: servers may still be started, and names of hosts become known;
    /// else a host that is unknown is not waited for.
    pub reach_within: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(50),
            longest: Duration::from_secs(2),
            give_up_after: Duration::from_secs(30),
            reach_within: Duration::MAX,
        }
    }
}

impl RetryPolicy {
    /// The default for a cluster, in which another server soon takes over from one that has died: pauses of
    /// 0.5 s at most.
    #[must_use]
    pub fn of_cluster() -> Self {
        Self { longest: Duration::from_millis(500), ..Self::default() }
    }

    /// The same, never giving up.
    #[must_use]
    pub const fn without_end(self) -> Self {
        Self { give_up_after: Duration::MAX, ..self }
    }

    /// The delay after failure number `failures` (from 1) in a row; `jitter` in 0 to 1 spreads it over the
    /// upper half of its range.
    #[must_use]
    pub fn delay(&self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.first.saturating_mul(1 << doublings).min(self.longest);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// The least time that a try has.
const MIN_TRY_TIME: Duration = Duration::from_millis(500);

/// The time without progress after which the user is told what is waited for.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// The same result. If it takes long, the user is told that this server does not answer, unless something was
/// told already.
pub(crate) async fn noticed<T>(server: &str, is_told: bool, answer: impl Future<Output = T>) -> T {
    let mut answer = std::pin::pin!(answer);
    match tokio::time::timeout(NOTICE_AFTER, &mut answer).await {
        Ok(answer) => answer,
        Err(_) => {
            if !is_told {
                tracing::warn!("waiting for {server}: no answer yet");
            }
            answer.await
        }
    }
}

/// The failures in a row of one client.
#[derive(Debug)]
pub(crate) struct Backoff {
    policy: RetryPolicy,
    /// Whether a server has answered this client.
    reached: Arc<AtomicBool>,
    failures: u32,
    since: Option<Instant>,
    /// Whether a try may have happened.
    sent: bool,
    /// The failures that the user was told.
    noticed: Vec<String>,
}

impl Backoff {
    pub(crate) fn new(policy: RetryPolicy, reached: Arc<AtomicBool>) -> Self {
        Self { policy, reached, failures: 0, since: None, sent: false, noticed: Vec::new() }
    }

    /// Whether the user was told what is waited for.
    pub(crate) fn has_noticed(&self) -> bool {
        !self.noticed.is_empty()
    }

    /// Whether an earlier try may have happened.
    pub(crate) fn has_sent(&self) -> bool {
        self.sent
    }

    /// Whether the name of a host may become known.
    pub(crate) fn names_come(&self) -> bool {
        self.policy.reach_within == Duration::MAX
    }

    /// A try begins: the time counts from here, unless earlier tries have failed since the last progress.
    pub(crate) fn begin(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }

    /// How long the next try may take to be answered: this long, but no longer than the time that is left, or
    /// half of it if there are other servers, so that one that is silent leaves time for them. The last try,
    /// which falls on the end of the time, has a moment.
    pub(crate) fn limit(&self, longest: Duration, has_others: bool) -> Duration {
        let passed = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        match self.policy.give_up_after {
            // One try, which has its time.
            Duration::ZERO => longest,
            all => {
                let left = all.saturating_sub(passed);
                longest.min(if has_others { left / 2 } else { left }.max(MIN_TRY_TIME))
            }
        }
    }

    /// Something got on.
    pub(crate) fn progress(&mut self) {
        self.failures = 0;
        self.since = None;
        self.noticed.clear();
    }

    /// A session that lasted this long was progress even if nothing was answered on it: its process waited.
    pub(crate) fn lasted(&mut self, time: Duration) {
        if time > self.policy.longest {
            self.progress();
        }
    }

    /// A try failed. Returns the time to wait before the next one.
    ///
    /// # Errors
    /// The error to give up with: the same one if a retry does not help, else [`Error::GaveUp`] once the time
    /// is over.
    pub(crate) fn failed(&mut self, error: Error) -> Result<Duration, Error> {
        self.failed_at(Instant::now(), error, rand::random())
    }

    fn failed_at(&mut self, now: Instant, error: Error, jitter: f64) -> Result<Duration, Error> {
        if !error.may_retry() {
            return Err(error);
        }
        self.sent |= error.may_have_happened();
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        let after = now.saturating_duration_since(since);
        let RetryPolicy { give_up_after, reach_within, .. } = self.policy;
        let is_reached = self.sent || self.reached.load(Ordering::Relaxed);
        let limit = if is_reached { give_up_after } else { give_up_after.min(reach_within) };
        if after >= limit {
            let (tries, sent) = (self.failures, self.sent);
            return Err(Error::GaveUp { tries, after, last: Box::new(error), sent });
        }
        if after >= NOTICE_AFTER {
            self.notice(&error, limit - after);
        }
        let advised = error.retry_after().unwrap_or(Duration::ZERO);
        // The last try falls on the end of the time, not behind it.
        Ok(self.policy.delay(self.failures, jitter).max(advised).min(limit - after))
    }

    /// Tells the user what is waited for, unless that was told.
    fn notice(&mut self, error: &Error, left: Duration) {
        let what = match error {
            Error::Unreachable { server, cause, .. } => format!("waiting for {server}: {cause}"),
            other => format!("waiting: {other}"),
        };
        if self.noticed.contains(&what) {
            return;
        }
        match self.policy.give_up_after {
            Duration::MAX => tracing::warn!("{what}"),
            _ => tracing::warn!("{what}; giving up in {} s", left.as_secs_f64().ceil()),
        }
        self.noticed.push(what);
    }
}

#[cfg(test)]
mod tests {
    use stickycas_proto::status::RpcRefusal;
    use stickycas_proto::v1::RefusalReason;

    use super::*;

    fn broken() -> Error {
        Error::unreachable("http://server", "broken pipe", true)
    }

    #[test]
    fn delays_double_up_to_the_longest() {
        let policy = RetryPolicy::default();
        let delays: Vec<u128> = (1..=8).map(|failures| policy.delay(failures, 1.0).as_millis()).collect();
        assert_eq!(delays, [50, 100, 200, 400, 800, 1600, 2000, 2000]);
        assert_eq!(policy.delay(1, 0.0), Duration::from_millis(25));
        assert_eq!(policy.delay(u32::MAX, 0.0), Duration::from_secs(1));
    }

    #[test]
    fn the_last_try_falls_on_the_end_of_the_bounded_time() {
        let policy = RetryPolicy { give_up_after: Duration::from_secs(3), ..RetryPolicy::default() };
        let mut backoff = Backoff::new(policy, Arc::default());
        let start = Instant::now();
        let mut now = start;
        let error = loop {
            match backoff.failed_at(now, broken(), 1.0) {
                Ok(delay) => now += delay,
                Err(error) => break error,
            }
        };
        assert_eq!(now - start, Duration::from_secs(3));
        assert!(matches!(error, Error::GaveUp { tries: 7, .. }), "{error}");
    }

    #[test]
    fn a_server_that_was_never_reached_has_less_time_than_a_sent_access() {
        let policy = RetryPolicy { reach_within: Duration::from_secs(2), ..RetryPolicy::default() };
        let start = Instant::now();
        let late = start + Duration::from_secs(3);
        let absent = || Error::unreachable("http://server", "Connection refused", false);
        let backoff = |reached: bool| Backoff::new(policy, Arc::new(AtomicBool::new(reached)));
        let mut never = backoff(false);
        never.failed_at(start, absent(), 0.0).unwrap();
        let gave_up = never.failed_at(late, absent(), 0.0).unwrap_err();
        assert!(matches!(gave_up, Error::GaveUp { sent: false, .. }) && !gave_up.may_have_happened());
        for (reached, first) in [(true, absent()), (false, broken())] {
            let mut once = backoff(reached);
            once.failed_at(start, first, 0.0).unwrap();
            once.failed_at(late, absent(), 0.0).unwrap();
        }
    }

    #[test]
    fn progress_starts_the_time_anew() {
        let policy = RetryPolicy { give_up_after: Duration::from_secs(1), ..RetryPolicy::default() };
        let mut backoff = Backoff::new(policy, Arc::default());
        let start = Instant::now();
        backoff.failed_at(start, broken(), 1.0).unwrap();
        backoff.progress();
        let delay = backoff.failed_at(start + Duration::from_secs(5), broken(), 1.0).unwrap();
        assert_eq!(delay, Duration::from_millis(50));
    }

    #[test]
    fn the_servers_advice_is_kept() {
        let mut backoff = Backoff::new(RetryPolicy::default(), Arc::default());
        let draining = RpcRefusal::new(RefusalReason::Draining, "").with_retry_after(Duration::from_secs(7));
        let delay = backoff.failed_at(Instant::now(), draining.into(), 0.0).unwrap();
        assert_eq!(delay, Duration::from_secs(7));
    }

    #[test]
    fn an_error_that_no_retry_helps_ends_at_once() {
        let mut backoff = Backoff::new(RetryPolicy::default(), Arc::default());
        let unknown = RpcRefusal::new(RefusalReason::InstanceUnknown, "no such instance");
        let error = backoff.failed(unknown.into()).unwrap_err();
        assert!(matches!(error, Error::Refused(_)));
    }
}
