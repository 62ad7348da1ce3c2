//! The times in which threads of this machine wait long for a processor.
//!
//! Patience is a total over the life of an instance, and on a machine that gives clients no turn a correct
//! process may spend it through no fault of the server. Two measures count: the delay of a thread that wakes
//! from sleep (the machine itself stood still), and the time for which threads that work for clients were
//! ready and had no processor (others had it). Only long waits count: every busy machine makes a thread wait
//! some milliseconds, and these add up to any limit in a long round.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread sleeps.
const BEAT: Duration = Duration::from_millis(10);
/// The number of beats between two looks at the other threads. A thread that waited for more than half of
/// this time was stalled.
const BEATS: u32 = 10;
/// A thread that wakes later than this has been stalled.
const STALL: Duration = Duration::from_millis(100);

/// See the module. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Lateness(Arc<Mutex<Stalls>>);

impl Lateness {
    /// Begins to measure.
    pub(crate) fn measure() -> std::io::Result<Self> {
        let stalls = Arc::new(Mutex::new(Stalls::default()));
        let shared = Arc::downgrade(&stalls);
        thread::Builder::new().name("lateness".to_owned()).spawn(move || {
            while let Some(stalls) = shared.upgrade() {
                let late = stalled();
                stalls.lock().unwrap_or_else(PoisonError::into_inner).note(Instant::now(), late);
            }
        })?;
        Ok(Self(stalls))
    }

    /// How long threads were stalled within this time, in all.
    pub(crate) fn within(&self, time: &Range<Instant>) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).within(time)
    }
}

/// How long a thread was stalled within the beats that begin now.
fn stalled() -> Duration {
    let (began, before) = (Instant::now(), waited());
    let mut overslept = Duration::ZERO;
    for _ in 0..BEATS {
        let due = Instant::now() + BEAT;
        thread::sleep(BEAT);
        overslept += Some(due.elapsed()).filter(|late| *late > STALL).unwrap_or_default();
    }
    let waits = waited().into_iter().filter_map(|(thread, after)| after.checked_sub(*before.get(&thread)?));
    let longest = waits.max().filter(|longest| *longest > began.elapsed() / 2);
    longest.unwrap_or_default().max(overslept)
}

/// How long each thread of this process was ready in its life and had no processor. Empty where the system
/// does not tell.
fn waited() -> HashMap<OsString, Duration> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waited = threads.filter_map(|thread| {
        let told = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        let nanoseconds = told.split(' ').nth(1)?.parse().ok()?;
        Some((thread.file_name(), Duration::from_nanos(nanoseconds)))
    });
    waited.collect()
}

/// From when a thread was stalled until it was not, each time.
#[derive(Debug, Default)]
struct Stalls(Vec<Range<Instant>>);

impl Stalls {
    /// A thread was stalled for so long until now.
    fn note(&mut self, now: Instant, late: Duration) {
        if let Some(since) = now.checked_sub(late).filter(|since| *since < now) {
            self.0.push(since..now);
        }
    }

    fn within(&self, time: &Range<Instant>) -> Duration {
        let part = |stall: &Range<Instant>| {
            stall.end.min(time.end).saturating_duration_since(stall.start.max(time.start))
        };
        self.0.iter().map(part).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[test]
    fn stalls_within_the_time_count() {
        let began = Instant::now();
        let after = |millis| began + Duration::from_millis(millis);
        let mut stalls = Stalls::default();
        stalls.note(after(500), Duration::ZERO);
        stalls.note(after(1_400), Duration::from_millis(400));
        stalls.note(after(3_300), Duration::from_millis(300));
        for (time, millis) in [(0..9_000, 700), (1_100..3_100, 400), (1_500..3_000, 0)] {
            assert_eq!(stalls.within(&(after(time.start)..after(time.end))), Duration::from_millis(millis));
        }
    }

    /// More threads than processors: some of them wait.
    #[test]
    fn threads_that_have_no_processor_are_seen() {
        let processors = thread::available_parallelism().unwrap().get();
        let stop = AtomicBool::new(false);
        let is_stalled = thread::scope(|scope| {
            for _ in 0..4 * processors {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let is_stalled = (0..1_000).any(|_| !stalled().is_zero());
            stop.store(true, Relaxed);
            is_stalled
        });
        assert!(is_stalled || waited().is_empty());
    }
}
