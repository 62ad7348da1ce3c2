//! The processor time that a principal may take before others come first.
//!
//! It is no bound. A principal that has taken more than its share is served while no principal below its
//! share waits, see [`crate::transport`]; so a server without other work gives all of its time to one client.
//! All clients without identity are one principal here; the turns among them are taken by address.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::rate::{Bucket, Rate};

/// Of how much time a principal may have one part, a fiftieth of a processor. A correct process that takes
/// part in a hundred instances a second needs half of it.
const PARTS: Duration = Duration::from_micros(50);
/// The same of a principal with a role from the operator: a coordinator creates and watches the instances of
/// all processes.
const PARTS_WITH_A_ROLE: Duration = Duration::from_micros(8);
/// The time that a principal may take at once after a pause, in microseconds.
const AT_ONCE: u32 = 20_000;
/// The part of that with which a new principal begins, so that many that come together do not take much more.
const AT_FIRST: u32 = 1_000;
/// The debt that counts as far more than its share, in microseconds: a correct process that comes a little
/// above its share for a while, or has much to do at once, stays below. The debt of a principal is twice that
/// at most, and is gone after four seconds without work for it.
const FAR_MORE: u32 = 50_000;

const SHARE: Rate = Rate::new(PARTS, FAR_MORE);
const SHARE_WITH_A_ROLE: Rate = Rate::new(PARTS_WITH_A_ROLE, FAR_MORE);

/// The processor time that one principal has taken.
#[derive(Debug)]
pub(super) struct ProcessorTime {
    taken: Bucket,
    has_role: AtomicBool,
    rounds: Rounds,
}

/// The rounds in which the tasks of one principal, or of one address, have their turns: one task in each, so
/// that many tasks of one principal get no more turns than one task of another.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// The round behind that of the last task that waits.
    next: AtomicU64,
}

impl Rounds {
    /// The round of the next task, while `current` is under way.
    pub(crate) fn take(&self, current: u64) -> u64 {
        let taken =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| Some(next.max(current) + 1));
        taken.unwrap_or_default().max(current)
    }
}

impl ProcessorTime {
    /// That of a principal that comes now.
    pub(super) fn new(now: u64, has_role: bool) -> Self {
        let (taken, has_role) = (Bucket::default(), AtomicBool::new(has_role));
        let time = Self { taken, has_role, rounds: Rounds::default() };
        time.taken.charge(now, (AT_ONCE - AT_FIRST).into(), time.share());
        time
    }

    /// Tells whether the principal has a role.
    pub(super) fn set_role(&self, has_role: bool) {
        self.has_role.store(has_role, Ordering::Relaxed);
    }

    fn share(&self) -> Rate {
        if self.has_role.load(Ordering::Relaxed) { SHARE_WITH_A_ROLE } else { SHARE }
    }

    /// Charges this time, in which the server worked for the principal.
    pub(super) fn charge(&self, now: u64, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX >> 32);
        if micros > 0 {
            self.taken.charge(now, micros, self.share());
        }
    }

    /// Whether the principal has taken more than it may.
    pub(super) fn is_overdrawn(&self, now: u64) -> bool {
        self.taken.has_taken_more(now, AT_ONCE, self.share())
    }

    /// Whether it has taken far more.
    pub(super) fn is_far_overdrawn(&self, now: u64) -> bool {
        self.taken.has_taken_more(now, FAR_MORE, self.share())
    }

    /// The rounds of its tasks.
    pub(super) const fn rounds(&self) -> &Rounds {
        &self.rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn after(time: &ProcessorTime, now: u64, took: Duration) -> bool {
        time.charge(now, took);
        time.is_overdrawn(now)
    }

    #[test]
    fn who_comes_has_little_and_after_a_second_as_much_as_after_a_pause() {
        let time = ProcessorTime::new(SECOND, false);
        assert!(!after(&time, SECOND, Duration::from_millis(1)));
        assert!(after(&time, SECOND, Duration::from_micros(1)));
        let time = ProcessorTime::new(SECOND, false);
        assert!(!after(&time, 2 * SECOND, Duration::from_millis(20)));
        assert!(after(&time, 2 * SECOND, Duration::from_micros(1)));
    }

    #[test]
    fn who_has_a_role_may_take_more() {
        let time = ProcessorTime::new(0, true);
        assert!(!after(&time, 0, Duration::from_millis(1)), "it has as much at first as others");
        for step in 11..=400 {
            let now = step * SECOND / 10;
            assert!(!after(&time, now, Duration::from_millis(12)), "{step}");
        }
        assert!(after(&time, 40 * SECOND, Duration::from_millis(20)));
    }

    #[test]
    fn far_above_its_share_is_who_has_taken_it_for_long() {
        let time = ProcessorTime::new(0, false);
        // A tenth more than its share for twenty seconds.
        for step in 101..=300 {
            let now = step * SECOND / 10;
            time.charge(now, Duration::from_micros(2_200));
            assert!(!time.is_far_overdrawn(now), "{step}");
        }
        let now = 1_000 * SECOND;
        time.charge(now, Duration::from_millis(51));
        assert!(time.is_far_overdrawn(now) && !time.is_far_overdrawn(now + SECOND));
        // However much it was, it is over some seconds later.
        time.charge(now, Duration::from_secs(60));
        assert!(time.is_far_overdrawn(now + 2 * SECOND) && !time.is_far_overdrawn(now + 3 * SECOND));
        assert!(time.is_overdrawn(now + 3 * SECOND) && !time.is_overdrawn(now + 4 * SECOND));
    }

    #[test]
    fn a_principal_has_one_task_in_each_round() {
        let [one, other] = [Rounds::default(), Rounds::default()];
        assert_eq!([5; 3].map(|current| one.take(current)), [5, 6, 7]);
        assert_eq!(other.take(5), 5);
        assert_eq!(one.take(9), 9, "rounds that are over are not made up for");
    }
}
