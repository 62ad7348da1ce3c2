//! The processor time of a principal: what it may take before others come first.
//!
//! It is no bound. Whoever has taken more than its share is served when nobody waits who has not, see
//! [`crate::transport`]; so a server without other work gives all of its time to one client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::rate::{Bucket, Rate};

/// What one principal may take of one processor: a fiftieth, and 20 ms at once after a pause. A correct process that takes
/// part in a hundred instances a second needs half of it.
const SHARE: Rate = Rate::new(Duration::from_micros(50), 20_000);

/// The processor time that one principal has taken lately.
#[derive(Debug, Default)]
pub(super) struct ProcessorTime {
    taken: Bucket,
    /// The round behind that of the last of its tasks that wait for a turn.
    next_round: AtomicU64,
}

impl ProcessorTime {
    /// Charges this time, in which the server worked for the principal.
    pub(super) fn charge(&self, now: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> 32);
        if micros > 0 {
            self.taken.charge(now, micros, SHARE);
        }
    }

    /// Whether the principal has taken more than its share.
    pub(super) fn is_overdrawn(&self, now: u64) -> bool {
        self.taken.overdrawn(now, SHARE).is_some()
    }

    /// The round in which the next task of the principal has its turn, while `current` is under way: one task in each, so that
    /// whoever has many waits for no less than whoever has one.
    pub(super) fn take_round(&self, current: u64) -> u64 {
        let taken = self
            .next_round
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next.max(current) + 1));
        taken.unwrap_or_default().max(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_share_is_overdrawn_for_a_second_at_most() {
        let (time, second) = (ProcessorTime::default(), 1_000_000_000);
        time.charge(second, Duration::from_millis(20));
        assert!(!time.is_overdrawn(second));
        time.charge(second, Duration::from_millis(1));
        assert!(time.is_overdrawn(second) && !time.is_overdrawn(second + second / 20));
        time.charge(second, Duration::from_secs(3_600));
        assert!(time.is_overdrawn(2 * second - 1) && !time.is_overdrawn(2 * second));
    }

    #[test]
    fn a_principal_has_one_task_in_each_round() {
        let [one, other] = [ProcessorTime::default(), ProcessorTime::default()];
        assert_eq!([5; 3].map(|current| one.take_round(current)), [5, 6, 7]);
        assert_eq!(other.take_round(5), 5);
        assert_eq!(one.take_round(9), 9, "rounds that are over are not made up for");
    }
}
