//! Counters of the steps of instances, from the events of committed steps.
//!
//! Every step of every instance passes here, so a step may cost no more than some additions. Each thread adds
//! to counters of its own: no other thread writes them, so adding needs no locked instruction and no cache
//! line moves between processors. Reading sums them up. The three events of an access cost some 9 ns so, and
//! 40 to 60 ns with locked instructions, which is 3 % of the time of an access on Attach (measured).

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use stickycas_model::access::{Answer, AppendAnswer, Op};
use stickycas_model::history::{Event, OffenceKind};

/// The counters. Those of offences follow, one for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepCounter {
    AcceptedAppend,
    AcceptedRead,
    AnsweredSuccess,
    AnsweredFailed,
    AnsweredLimitReached,
    AnsweredRead,
    PhaseOpened,
    PhaseExecuted,
    PhaseWon,
    PhaseTimedOut,
    PatienceSpent,
    Withdrawn,
    Joined,
    SessionOpened,
    GatheringEnded,
    Sealed,
    Decided,
    Finished,
    Closed,
}

const OFFENCES: usize = StepCounter::Closed as usize + 1;
const COUNTERS: usize = OFFENCES + OffenceKind::ALL.len();

/// Threads with counters of their own; further ones share the last.
const THREADS: usize = 64;

/// The number of the thread among those that count; taken when it counts for the first time.
fn thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed).min(THREADS));
        }
        number.get()
    })
}

/// The counters of one thread. No two threads' counters are on one cache line.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadCounters([AtomicU64; COUNTERS]);

/// See the module.
#[derive(Debug)]
pub(crate) struct StepCounters {
    /// By thread; the last are shared by all threads that came later.
    threads: Box<[ThreadCounters]>,
    /// Accesses that were waiting when the server started, less those that were waiting at instances that are
    /// gone.
    uncounted_waiting: AtomicI64,
}

impl Default for StepCounters {
    fn default() -> Self {
        let new = || ThreadCounters([const { AtomicU64::new(0) }; COUNTERS]);
        Self { threads: (0..=THREADS).map(|_| new()).collect(), uncounted_waiting: AtomicI64::new(0) }
    }
}

impl StepCounters {
    /// Counts the events of a committed step, and the phases that opened in it. Not inlined, so that its part
    /// of the time shows in profiles.
    #[inline(never)]
    pub(crate) fn count(&self, events: &[Event], opened_phases: u32) {
        if events.is_empty() && opened_phases == 0 {
            return;
        }
        let thread = thread();
        let counters = &self.threads[thread].0;
        let add = |counter: usize, count: u64| {
            let counter = &counters[counter];
            if thread < THREADS {
                // No other thread adds to it.
                counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
            } else {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        };
        tally(events, |counter| add(counter, 1));
        if opened_phases > 0 {
            add(StepCounter::PhaseOpened as usize, opened_phases.into());
        }
    }

    /// So many accesses wait that were accepted before the server started.
    pub(crate) fn restore_waiting(&self, accesses: usize) {
        self.uncounted_waiting.fetch_add(i64::try_from(accesses).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// These events of a step are never counted, since it was not committed; but its accesses wait at the
    /// machine or do so no more.
    pub(crate) fn restore_waiting_of(&self, events: &[Event]) {
        let waiting = events.iter().map(|event| match event {
            Event::Accepted { .. } => 1,
            Event::Answered { .. } | Event::Withdrawn { .. } => -1,
            _ => 0,
        });
        self.uncounted_waiting.fetch_add(waiting.sum(), Ordering::Relaxed);
    }

    /// An instance is gone, and with it so many accesses that were waiting.
    pub(crate) fn forget_waiting(&self, accesses: usize) {
        self.uncounted_waiting.fetch_sub(i64::try_from(accesses).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn get(&self, counter: StepCounter) -> u64 {
        self.sum(counter as usize)
    }

    /// Offences by kind.
    pub(crate) fn offences(&self) -> impl Iterator<Item = (&'static str, u64)> {
        OffenceKind::ALL.into_iter().map(|kind| (kind.name(), self.sum(OFFENCES + kind as usize)))
    }

    /// Accesses that were accepted and are neither answered nor withdrawn.
    pub(crate) fn waiting(&self) -> u64 {
        use StepCounter as C;
        let sum = |counters: &[C]| {
            let sum = counters.iter().map(|counter| self.get(*counter)).sum::<u64>();
            i64::try_from(sum).unwrap_or(i64::MAX)
        };
        // Read first: an access that ends in between is counted as waiting, and the difference is never
        // negative.
        let ended = sum(&[
            C::AnsweredSuccess,
            C::AnsweredFailed,
            C::AnsweredLimitReached,
            C::AnsweredRead,
            C::Withdrawn,
        ]);
        let accepted = sum(&[C::AcceptedAppend, C::AcceptedRead]);
        u64::try_from(accepted - ended + self.uncounted_waiting.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn sum(&self, counter: usize) -> u64 {
        self.threads.iter().map(|thread| thread.0[counter].load(Ordering::Relaxed)).sum()
    }
}

/// Calls `add` with the number of each counter that one of these events adds to.
#[inline(always)]
fn tally(events: &[Event], add: impl Fn(usize)) {
    use StepCounter as C;
    let mut patience_spent = false;
    for event in events {
        match event {
            Event::Accepted { op: Op::Append(_), .. } => add(C::AcceptedAppend as usize),
            Event::Accepted { op: Op::Read { .. }, .. } => add(C::AcceptedRead as usize),
            Event::Answered { answer, .. } => add(match answer {
                Answer::Append(AppendAnswer::Success(_)) => C::AnsweredSuccess,
                Answer::Append(AppendAnswer::Failed) => C::AnsweredFailed,
                Answer::Append(AppendAnswer::LimitReached) => C::AnsweredLimitReached,
                Answer::Read(_) => C::AnsweredRead,
            } as usize),
            Event::Stepped { .. } => {
                add(C::PhaseExecuted as usize);
                if std::mem::take(&mut patience_spent) {
                    add(C::PhaseTimedOut as usize);
                }
            }
            Event::Added { .. } => add(C::PhaseWon as usize),
            Event::PatienceSpent { .. } => {
                patience_spent = true;
                add(C::PatienceSpent as usize);
            }
            Event::Withdrawn { .. } => add(C::Withdrawn as usize),
            Event::Joined { .. } => add(C::Joined as usize),
            Event::Session { .. } => add(C::SessionOpened as usize),
            Event::GatheringEnded { .. } => add(C::GatheringEnded as usize),
            Event::Sealed { .. } => add(C::Sealed as usize),
            Event::Decided { .. } => add(C::Decided as usize),
            Event::Offence(offence) => add(OFFENCES + offence.kind as usize),
            Event::Finished => add(C::Finished as usize),
            Event::Closed => add(C::Closed as usize),
            // Refusals are counted where they are told, with their reason. A restart is one of all instances
            // at once: `stickycas_start_time_seconds` tells it.
            Event::Refused { .. } | Event::Restarted { .. } | Event::Rejoined { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::types::ProcessId;

    use super::*;

    fn joined() -> Event {
        Event::Joined { process: ProcessId::from_index(0).unwrap() }
    }

    #[test]
    fn threads_count_apart_and_are_summed_up() {
        let counters = StepCounters::default();
        std::thread::scope(|scope| {
            // More than have counters of their own.
            for _ in 0..THREADS + 9 {
                scope.spawn(|| (0..100).for_each(|_| counters.count(&[joined(), Event::Finished], 2)));
            }
        });
        let expected = 100 * (THREADS as u64 + 9);
        assert_eq!(counters.get(StepCounter::Joined), expected);
        assert_eq!(counters.get(StepCounter::Finished), expected);
        assert_eq!(counters.get(StepCounter::PhaseOpened), 2 * expected);
        assert_eq!(counters.waiting(), 0);
    }

    #[test]
    fn every_kind_of_offence_has_a_name_of_its_own() {
        let counters = StepCounters::default();
        let names: std::collections::BTreeSet<_> = counters.offences().map(|(name, _)| name).collect();
        assert_eq!(names.len(), OffenceKind::ALL.len());
    }
}
