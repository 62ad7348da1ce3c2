//! The timers of all instances: one sorted set, one task.
//!
//! An instance has at most one timer. It moves the timer only to an earlier moment, so in the usual run, in
//! which phases follow each other at once, that happens every patience and not every phase; a timer that
//! fires too early is set again. A removed instance leaves nothing behind.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stickycas_proto::names::InstanceId;
use tokio::sync::Notify;

use crate::commit_log::ServedClock;

/// See the module. Moments are kept in nanoseconds as the clock shows them: half the size of an [`Instant`].
#[derive(Debug, Default)]
pub(super) struct Timers {
    pub(super) clock: Arc<ServedClock>,
    set: Mutex<BTreeSet<Timer>>,
    earlier: Notify,
}

/// The moment at which a timer fires, and the id of its instance in two halves: a number of 128 bits would
/// take a third more.
type Timer = (u64, u64, u64);

fn timer(at: u64, id: InstanceId) -> Timer {
    let id = id.get();
    (at, (id >> 64) as u64, id as u64)
}

/// The timer that one instance has set and that has not fired yet.
#[derive(Debug)]
pub(super) struct TimerHandle(u64);

impl Default for TimerHandle {
    fn default() -> Self {
        Self(Self::NONE)
    }
}

impl TimerHandle {
    const NONE: u64 = u64::MAX;

    /// The timer that was set to this moment has fired. Another one may be set by now.
    pub(super) fn fired(&mut self, due: u64) {
        if self.0 == due {
            self.0 = Self::NONE;
        }
    }

    /// The moment to which it is set; `u64::MAX`: it is not set.
    #[cfg(test)]
    pub(super) fn due(&self) -> u64 {
        self.0
    }

    /// Removes the timer: the instance need not be woken any more.
    pub(super) fn clear(&mut self, id: InstanceId, timers: &Timers) {
        if self.0 != Self::NONE {
            timers.set().remove(&timer(self.0, id));
            self.0 = Self::NONE;
        }
    }

    /// Has this instance woken at `due`, or before.
    pub(super) fn set(&mut self, due: u64, id: InstanceId, timers: &Timers) {
        if due < self.0 {
            timers.replace((self.0 != Self::NONE).then_some(self.0), due, id);
            self.0 = due;
        }
    }
}

impl Timers {
    /// No timers; they follow this clock.
    pub(super) fn new(clock: Arc<ServedClock>) -> Self {
        Self { clock, ..Self::default() }
    }

    /// This moment as timers keep it.
    pub(super) fn nanos(&self, at: Instant) -> u64 {
        self.clock.nanos(at)
    }

    /// This moment, as timers keep moments.
    pub(super) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// The number of timers that are set.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.set().len()
    }

    fn set(&self) -> MutexGuard<'_, BTreeSet<Timer>> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn replace(&self, old: Option<u64>, at: u64, id: InstanceId) {
        let mut set = self.set();
        if let Some(old) = old {
            // It may have fired in this moment.
            set.remove(&timer(old, id));
        }
        let first = set.first().is_none_or(|(first, ..)| at < *first);
        set.insert(timer(at, id));
        drop(set);
        if first {
            self.earlier.notify_one();
        }
    }

    /// Wakes instances when their timers fire, for ever. `wake` returns the number of processes of the
    /// instance, which measures the work that its archiving may have been; it is given the moment to which
    /// the timer was set.
    pub(super) async fn run(&self, wake: impl Fn(InstanceId, u64) -> u32) {
        loop {
            let next = match self.take_due(self.now()) {
                Ok(due) => {
                    let mut processes = 0_u32;
                    for (at, id) in due {
                        processes = processes.saturating_add(wake(id, at));
                        if processes >= PROCESSES_PER_TURN {
                            processes = 0;
                            tokio::task::yield_now().await;
                        }
                    }
                    tokio::task::yield_now().await;
                    continue;
                }
                Err(next) => next,
            };
            match next {
                None => self.earlier.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = self.clock.sleep_until(at) => {}
                        () = self.earlier.notified() => {}
                    }
                }
            }
        }
    }

    /// Timers that have fired, not too many at once: the moment of each, and its instance. If there are none:
    /// when the first one will.
    fn take_due(&self, now: u64) -> Result<Vec<(u64, InstanceId)>, Option<u64>> {
        let mut set = self.set();
        let mut due = Vec::new();
        while due.len() < INSTANCES_PER_TURN
            && let Some((at, high, low)) = pop_due(&mut set, now)
        {
            due.push((at, InstanceId::new(u128::from(high) << 64 | u128::from(low))));
        }
        if due.is_empty() { Err(set.first().map(|(at, ..)| *at)) } else { Ok(due) }
    }
}

/// Instances that are woken before other tasks run.
const INSTANCES_PER_TURN: usize = 256;
/// Processes of the instances that are woken before other tasks run; one instance may have more.
const PROCESSES_PER_TURN: u32 = 4_096;

fn pop_due(set: &mut BTreeSet<Timer>, now: u64) -> Option<Timer> {
    if set.first()?.0 > now { None } else { set.pop_first() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const ID: InstanceId = InstanceId::new(3 << 64 | 5);

    #[test]
    fn an_instance_moves_its_one_timer_only_to_earlier_moments() {
        let (timers, mut handle) = (Timers::default(), TimerHandle::default());
        for (due, set) in [(10, 10), (10, 10), (11, 10), (3, 3), (7, 3)] {
            handle.set(due, ID, &timers);
            assert_eq!(Vec::from_iter(timers.set().iter().copied()), [timer(set, ID)]);
        }
        assert_eq!(timers.take_due(2), Err(Some(3)));
        assert_eq!(timers.take_due(3), Ok(vec![(3, ID)]));
        assert_eq!(timers.take_due(u64::MAX), Err(None), "nothing is left behind");
        handle.fired(3);
        handle.set(7, ID, &timers);
        assert_eq!(timers.take_due(7), Ok(vec![(7, ID)]));
    }

    #[tokio::test]
    async fn other_tasks_run_between_large_instances() {
        for (processes, at_once) in [(PROCESSES_PER_TURN, 1), (PROCESSES_PER_TURN / 2, 2)] {
            let (timers, woken) = (Timers::default(), Cell::new(0));
            for id in 1..=6 {
                TimerHandle::default().set(id, InstanceId::new(id.into()), &timers);
            }
            timers.clock.set(10);
            let wake = |_, _| {
                woken.set(woken.get() + 1);
                processes
            };
            let others = async {
                let mut seen = vec![0];
                while seen.last() != Some(&6) {
                    seen.push(woken.get());
                    tokio::task::yield_now().await;
                }
                seen
            };
            let seen = tokio::select! {
                biased;
                () = timers.run(wake) => unreachable!("it runs for ever"),
                seen = others => seen,
            };
            assert!(seen.is_sorted_by(|before, after| after - before <= at_once), "{seen:?}");
        }
    }

    #[test]
    fn a_timer_that_is_set_while_another_fires_stays() {
        let (timers, mut handle) = (Timers::default(), TimerHandle::default());
        handle.set(5, ID, &timers);
        assert_eq!(timers.take_due(5), Ok(vec![(5, ID)]));
        handle.set(4, ID, &timers);
        handle.fired(5);
        assert_eq!(timers.take_due(9), Ok(vec![(4, ID)]));
    }

    /// The clock of timers may show less than before, when it is stopped between two readings.
    #[test]
    fn a_timer_can_be_set_again_once_it_has_fired_whatever_the_clock_shows() {
        let (timers, mut handle) = (Timers::default(), TimerHandle::default());
        handle.set(5, ID, &timers);
        for (due, next) in [(5, 6), (6, 9)] {
            assert_eq!(timers.take_due(due), Ok(vec![(due, ID)]));
            handle.fired(due);
            handle.set(next, ID, &timers);
        }
        assert_eq!(timers.take_due(9), Ok(vec![(9, ID)]));
    }
}
