//! The clock that the time of instances follows (SPEC F3): it stands still while the log is full, since the
//! inputs of clients are not read then, and from the moment on at which the server begins to drain.
//!
//! Patience of a process whose access waits in front of a slow disk would be spent otherwise. It is one clock
//! for all instances, so timers keep their order and need not be set anew. A load that fills the log again
//! and again slows it down but cannot stop it for ever: it goes on whenever the log has room.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// See the module. Moments are in nanoseconds since the clock was made, without the time for which it stood
/// still.
#[derive(Debug)]
pub(crate) struct ServedClock {
    epoch: Instant,
    /// For how long it stood still before it was last resumed.
    stood_still: AtomicU64,
    /// The moment at which it was stopped; [`GOING`] while it goes.
    stopped_at: AtomicU64,
    /// The number of times it was stopped or resumed.
    changes: AtomicU64,
    resumed: Notify,
    /// Whether a test sets its reading.
    #[cfg(test)]
    is_set: std::sync::atomic::AtomicBool,
}

/// No moment: the clock goes.
const GOING: u64 = u64::MAX;

impl Default for ServedClock {
    fn default() -> Self {
        Self {
            epoch: Instant::now(),
            stood_still: AtomicU64::new(0),
            stopped_at: AtomicU64::new(GOING),
            changes: AtomicU64::new(0),
            resumed: Notify::new(),
            #[cfg(test)]
            is_set: false.into(),
        }
    }
}

impl ServedClock {
    /// The reading of the clock at this moment. After a later stop the same moment shows less, by as long as
    /// the clock stood still: the caller compares it with the time before.
    pub(crate) fn nanos(&self, at: Instant) -> u64 {
        // In this order: `resume` writes them in the opposite one.
        let stopped_at = self.stopped_at.load(Ordering::Acquire);
        #[cfg(test)]
        if self.is_set.load(Ordering::Relaxed) {
            return stopped_at;
        }
        self.elapsed(at).saturating_sub(self.stood_still.load(Ordering::Relaxed)).min(stopped_at)
    }

    /// The reading of the clock now.
    pub(crate) fn now(&self) -> u64 {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            let nanos = self.nanos(Instant::now());
            // A thread that rests between the two readings must not leave out a stop that was over by then.
            if self.changes.load(Ordering::Acquire) == changes {
                return nanos;
            }
        }
    }

    /// Completes when it may show this moment: it has done so, unless it has stood still meanwhile.
    pub(crate) async fn sleep_until(&self, nanos: u64) {
        let mut resumed = std::pin::pin!(self.resumed.notified());
        resumed.as_mut().enable();
        match self.stopped_at.load(Ordering::Acquire) {
            GOING => {}
            stopped_at if stopped_at < nanos => return resumed.await,
            _ => return,
        }
        let elapsed = nanos.saturating_add(self.stood_still.load(Ordering::Relaxed));
        match self.epoch.checked_add(Duration::from_nanos(elapsed)) {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            // The clock of the system does not go so far.
            None => std::future::pending().await,
        }
    }

    /// Stops it, if it goes. One thread at a time calls this or [`Self::resume`].
    pub(super) fn stop(&self, at: Instant) {
        if self.stopped_at.load(Ordering::Relaxed) == GOING {
            self.stopped_at.store(self.nanos(at), Ordering::Release);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Resumes it, if it stands still.
    pub(super) fn resume(&self, at: Instant) {
        let stopped_at = self.stopped_at.load(Ordering::Relaxed);
        if stopped_at != GOING {
            self.stood_still.store(self.elapsed(at).saturating_sub(stopped_at), Ordering::Relaxed);
            self.stopped_at.store(GOING, Ordering::Release);
            self.changes.fetch_add(1, Ordering::Release);
            self.resumed.notify_waiters();
        }
    }

    /// Shows this from now on, and stands still until the next call of this, which comes from one thread at a
    /// time.
    #[cfg(test)]
    pub(crate) fn set(&self, nanos: u64) {
        self.is_set.store(true, Ordering::Relaxed);
        self.stopped_at.store(nanos, Ordering::Release);
        self.changes.fetch_add(1, Ordering::Release);
        self.resumed.notify_waiters();
    }

    fn elapsed(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn it_leaves_out_the_time_for_which_it_stood_still() {
        let clock = ServedClock::default();
        let at = |seconds| clock.epoch + Duration::from_secs(seconds);
        let seconds = |at: Instant| clock.nanos(at) / 1_000_000_000;
        assert_eq!(seconds(at(3)), 3);
        clock.stop(at(5));
        clock.stop(at(6));
        assert_eq!([3, 5, 9].map(|second| seconds(at(second))), [3, 5, 5]);
        clock.resume(at(10));
        clock.resume(at(11));
        assert_eq!([10, 12].map(|second| seconds(at(second))), [5, 7]);
        clock.stop(at(12));
        clock.resume(at(20));
        assert_eq!(seconds(at(21)), 8);
    }

    #[tokio::test]
    async fn nobody_is_woken_while_it_stands_still() {
        let clock = ServedClock::default();
        let due = clock.now() + 1;
        clock.stop(clock.epoch);
        let mut woken = pin!(clock.sleep_until(due));
        let mut context = Context::from_waker(Waker::noop());
        while clock.elapsed(Instant::now()) <= due {}
        assert!(woken.as_mut().poll(&mut context).is_pending());
        clock.resume(clock.epoch);
        assert!(woken.as_mut().poll(&mut context).is_ready(), "it looks again");
        clock.sleep_until(due).await;
        assert!(clock.now() >= due);
    }
}
