//! The rate of requests of a principal: a token bucket that holds what one second allows.
//!
//! It is one number, the instant at which the bucket will be full again (the generic cell rate algorithm), so
//! that many tasks charge it without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The cost of a unary call, where a frame on Attach costs 1: about as many frames are handled in the time
/// that the server needs for one call, so that neither is the cheaper way to overload it.
pub(super) const CALL_COST: u64 = 10;

/// The cost of the verification of a token, beside its call: Ed25519 takes as long as some six calls, ES256
/// as three.
pub(super) const VERIFICATION_COST: u64 = 60;

/// The speed at which a bucket fills, and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Nanoseconds in which one request is refilled.
    interval: u64,
    /// Nanoseconds in which an empty bucket is refilled.
    capacity: u64,
}

impl Rate {
    /// This number of requests in a second, at least 1.
    pub(super) fn per_second(requests: u32) -> Self {
        const SECOND: u64 = 1_000_000_000;
        let interval = SECOND / u64::from(requests.clamp(1, 1_000_000_000));
        Self { interval, capacity: interval * u64::from(requests.max(1)) }
    }

    /// The same, with a bucket of another size.
    pub(super) const fn new(interval: Duration, capacity: u32) -> Self {
        let interval = interval.as_nanos() as u64;
        Self { interval, capacity: interval * capacity as u64 }
    }
}

/// The bucket of one principal, full at first.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// The moment at which it will be full, in nanoseconds.
    full_at: AtomicU64,
}

impl Bucket {
    /// Takes as many of `wanted` requests, each of this cost, as the bucket allows. Returns their number.
    pub(super) fn take(&self, now: u64, wanted: u64, cost: u64, rate: Rate) -> u64 {
        let price = rate.interval * cost;
        let mut taken = 0;
        // No other memory is ordered by this number.
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let level = now.max(full_at);
            let most = match (now + rate.capacity).saturating_sub(level) {
                // A full bucket allows one request of any cost: it could never have more.
                full if full == rate.capacity => (full / price).max(1),
                rest => rest / price,
            };
            taken = wanted.min(most);
            (taken > 0).then(|| level + taken * price)
        });
        taken
    }

    /// Gives back what was taken for something of this cost.
    pub(super) fn give_back(&self, cost: u64, rate: Rate) {
        // A moment in the past is a full bucket.
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            Some(full_at.saturating_sub(rate.interval * cost))
        });
    }

    /// The time until the bucket allows a request of this cost.
    pub(super) fn wait(&self, now: u64, cost: u64, rate: Rate) -> Duration {
        let ready =
            (self.full_at.load(Ordering::Relaxed) + rate.interval * cost).saturating_sub(rate.capacity);
        Duration::from_nanos(ready.saturating_sub(now))
    }

    /// Takes all of them from the bucket, which may be overdrawn by as much as it holds at most: requests
    /// that have come already cannot be refused, and later ones do not pay for all of them.
    pub(super) fn charge(&self, now: u64, requests: u64, rate: Rate) {
        let price = rate.interval * requests;
        let _ = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            Some((now.max(full_at) + price).min(now + 2 * rate.capacity).max(full_at))
        });
    }

    /// The time until the bucket is not overdrawn any more; `None`: it is not overdrawn.
    pub(super) fn overdrawn(&self, now: u64, rate: Rate) -> Option<Duration> {
        let level = self.full_at.load(Ordering::Relaxed).saturating_sub(rate.capacity);
        level.checked_sub(now).filter(|wait| *wait > 0).map(Duration::from_nanos)
    }

    /// Whether more than so many requests have been taken and are not refilled yet, the overdrawn ones
    /// included.
    pub(super) fn has_taken_more(&self, now: u64, requests: u32, rate: Rate) -> bool {
        self.full_at.load(Ordering::Relaxed).saturating_sub(now) > rate.interval * u64::from(requests)
    }

    /// Whether the bucket is full.
    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_bucket_holds_one_second_and_refills_steadily() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        assert_eq!(bucket.take(0, 25, 1, rate), 10);
        assert_eq!(bucket.take(0, 1, 1, rate), 0);
        assert_eq!(bucket.wait(0, 1, rate), Duration::from_millis(100));
        assert_eq!(bucket.take(SECOND / 10 - 1, 1, 1, rate), 0);
        assert_eq!(bucket.take(SECOND / 10, 9, 1, rate), 1);
        assert!(!bucket.is_full(SECOND));
        assert!(bucket.is_full(SECOND + SECOND / 10));
        assert_eq!(bucket.take(9 * SECOND, 25, 1, rate), 10, "idle time is not saved up");
    }

    #[test]
    fn an_overdrawn_bucket_refills_as_fast_as_a_full_one_empties() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        bucket.charge(0, 10, rate);
        assert_eq!(bucket.overdrawn(0, rate), None, "empty");
        bucket.charge(0, 5, rate);
        assert_eq!(bucket.overdrawn(0, rate), Some(Duration::from_millis(500)));
        assert_eq!(bucket.overdrawn(SECOND / 2 - 1, rate), Some(Duration::from_nanos(1)));
        assert_eq!(bucket.overdrawn(SECOND / 2, rate), None);
        bucket.charge(SECOND / 2, 1_000, rate);
        assert_eq!(bucket.overdrawn(SECOND / 2, rate), Some(Duration::from_secs(1)), "nobody pays for more");
        for (now, taken) in [(SECOND / 2, 20), (SECOND, 15)] {
            assert!(bucket.has_taken_more(now, taken - 1, rate) && !bucket.has_taken_more(now, taken, rate));
        }
        bucket.charge(9 * SECOND, 11, rate);
        assert_eq!(bucket.overdrawn(9 * SECOND, rate), Some(Duration::from_millis(100)));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again_and_no_more() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        assert_eq!(bucket.take(SECOND, 8, 1, rate), 8);
        bucket.give_back(5, rate);
        assert_eq!(bucket.take(SECOND, 25, 1, rate), 7);
        bucket.give_back(10, rate);
        bucket.give_back(10, rate);
        assert_eq!(bucket.take(SECOND, 25, 1, rate), 10, "never more than it holds");
    }

    #[test]
    fn a_higher_cost_empties_the_bucket_sooner() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(10));
        assert_eq!(bucket.take(0, 9, 4, rate), 2);
        assert_eq!(bucket.wait(0, 4, rate), Duration::from_millis(200));
        assert_eq!(bucket.take(0, 9, 1, rate), 2);
    }

    #[test]
    fn a_full_bucket_allows_a_cost_above_its_capacity() {
        let (bucket, rate) = (Bucket::default(), Rate::per_second(1));
        assert_eq!(bucket.take(0, 2, 10, rate), 1);
        assert_eq!(bucket.take(9 * SECOND, 1, 10, rate), 0);
        assert_eq!(bucket.take(10 * SECOND, 1, 10, rate), 1);
    }
}
