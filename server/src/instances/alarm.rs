//! The timers that one instance has set and that have not fired yet.

use stickycas_model::types::Time;

/// See the module. A timer is never taken back, so one that has become too early stays, and it is what makes a
/// later one needless: when it fires, the instance looks again. So every new one is earlier than all before.
#[derive(Debug, Default)]
pub(super) struct Alarm(Vec<Time>);

impl Alarm {
    /// Something is due at this time. Whether a timer must be set for it.
    #[must_use]
    pub(super) fn wants(&mut self, due: Time) -> bool {
        if self.0.last().is_some_and(|&next| next <= due) {
            return false;
        }
        self.0.push(due);
        true
    }

    /// Forgets the timers that have fired by now.
    pub(super) fn fired(&mut self, now: Time) {
        while self.0.pop_if(|next| *next <= now).is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_timer_is_set_only_if_it_is_earlier_than_all_that_are_set() {
        let mut alarm = Alarm::default();
        assert!(alarm.wants(at(10)));
        assert!(!alarm.wants(at(10)));
        assert!(!alarm.wants(at(11)));
        assert!(alarm.wants(at(3)));
    }

    #[test]
    fn a_late_timer_is_not_set_again_and_again_between_early_ones() {
        let mut alarm = Alarm::default();
        let mut set = 0;
        for second in 0..1_000 {
            for due in [second + 1, second + 3_600] {
                set += u32::from(alarm.wants(at(due)));
            }
            alarm.fired(at(second + 1));
        }
        // One a second, as each fires, and a late one only once the first of them was reached.
        assert_eq!(set, 1_000);
        assert!(alarm.wants(at(1_001)));
    }
}
