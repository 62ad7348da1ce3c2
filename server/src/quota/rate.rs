//! How many requests a principal may make: a bucket of one second's worth that fills up steadily.
//!
//! Kept as one number, the moment at which the bucket will be full again (the generic cell rate algorithm), so
//! that many tasks charge it without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How fast buckets fill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Nanoseconds that one request takes to come back.
    interval: u64,
    /// Nanoseconds in which an empty bucket is full.
    whole: u64,
}

impl Rate {
    /// So many requests in a second, 1 at least.
    pub(super) fn per_second(requests: u32) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let interval = SECOND / u64::from(requests.clamp(1, 1_000_000_000));
        Self { interval, whole: interval * u64::from(requests.max(1)) }
    }
}

/// The bucket of one principal. Starts full.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// When it is full again, in nanoseconds.
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes out as many of `wanted` requests as are in it, each costing `cost`; how many that were.
    pub(super) fn take(&self, now: u64, wanted: u64, cost: u64, rate: Rate) -> u64 {
        let price = rate.interval * cost;
        let mut taken = 0;
        // Nothing but this number hangs on its order with other memory.
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let level = now.max(full_at);
            let most = match (now + rate.whole).saturating_sub(level) {
                // A full bucket allows anything once: a price above the whole would never be paid.
                all if all == rate.whole => (all / price).max(1),
                rest => rest / price,
            };
            taken = wanted.min(most);
            (taken > 0).then(|| level + taken * price)
        });
        taken
    }

    /// How long until `cost` requests are in it.
    pub(super) fn wait(&self, now: u64, cost: u64, rate: Rate) -> Duration {
        let ready = (self.full_at.load(Ordering::Relaxed) + rate.interval * cost).saturating_sub(rate.whole);
        Duration::from_nanos(ready.saturating_sub(now))
    }

    /// Whether it is full.
    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_second_s_worth_is_there_at_once_and_then_comes_back_steadily() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        assert_eq!(bucket.take(0, 25, 1, rate), 10);
        assert_eq!(bucket.take(0, 1, 1, rate), 0);
        assert_eq!(bucket.wait(0, 1, rate), Duration::from_millis(100));
        assert_eq!(bucket.take(SECOND / 10 - 1, 1, 1, rate), 0);
        assert_eq!(bucket.take(SECOND / 10, 9, 1, rate), 1);
        assert!(!bucket.is_full(SECOND));
        assert!(bucket.is_full(SECOND + SECOND / 10));
        assert_eq!(bucket.take(9 * SECOND, 25, 1, rate), 10, "time at rest is not saved up");
    }

    #[test]
    fn what_costs_more_empties_it_sooner() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        assert_eq!(bucket.take(0, 9, 4, rate), 2);
        assert_eq!(bucket.wait(0, 4, rate), Duration::from_millis(200));
        assert_eq!(bucket.take(0, 9, 1, rate), 2);
    }

    #[test]
    fn what_costs_more_than_all_of_it_is_allowed_when_it_is_full() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(1));
        assert_eq!(bucket.take(0, 2, 10, rate), 1);
        assert_eq!(bucket.take(9 * SECOND, 1, 10, rate), 0);
        assert_eq!(bucket.take(10 * SECOND, 1, 10, rate), 1);
    }
}
