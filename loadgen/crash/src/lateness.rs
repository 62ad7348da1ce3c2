//! When threads of this machine wait long for a turn.
//!
//! Patience is a total over the life of an instance, and on a machine that gives clients no turn a correct process may spend
//! it through no fault of the server. A thread that sleeps and looks how late it wakes measures that. Only long stalls
//! count: every busy machine wakes a thread some milliseconds late, and these add up to any limit in a long round.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long the thread sleeps.
const BEAT: Duration = Duration::from_millis(10);
/// A thread that wakes later than this has been stalled.
const STALL: Duration = Duration::from_millis(100);

/// See the module. The thread ends with it.
#[derive(Debug)]
pub(crate) struct Lateness(Arc<Mutex<Stalls>>);

impl Lateness {
    /// Begins to measure.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn measure() -> std::io::Result<Self> {
        let stalls = Arc::new(Mutex::new(Stalls::default()));
        let shared = Arc::downgrade(&stalls);
        thread::Builder::new().name("lateness".to_owned()).spawn(move || {
            while let Some(stalls) = shared.upgrade() {
                let due = Instant::now() + BEAT;
                thread::sleep(BEAT);
                stalls.lock().unwrap_or_else(PoisonError::into_inner).note(due..Instant::now());
            }
        })?;
        Ok(Self(stalls))
    }

    /// How long the thread was stalled within this time, in all.
    pub(crate) fn within(&self, time: &Range<Instant>) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).within(time)
    }
}

/// From when a thread should have woken until it did, each time that this took long.
#[derive(Debug, Default)]
struct Stalls(Vec<Range<Instant>>);

impl Stalls {
    /// The thread should have woken at the start of this time, and woke at its end.
    fn note(&mut self, late: Range<Instant>) {
        if late.end.saturating_duration_since(late.start) > STALL {
            self.0.push(late);
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
    use super::*;

    #[test]
    fn only_long_stalls_within_the_time_count() {
        let began = Instant::now();
        let span = |from, until| began + Duration::from_millis(from)..began + Duration::from_millis(until);
        let mut stalls = Stalls::default();
        for beat in 0..1_000 {
            stalls.note(span(100 * beat, 100 * beat + 90));
        }
        assert_eq!(stalls.within(&span(0, 200_000)), Duration::ZERO, "no stall, though 90 s in all");
        stalls.note(span(1_000, 1_400));
        stalls.note(span(3_000, 3_300));
        for (time, millis) in [(span(0, 9_000), 700), (span(1_100, 3_100), 400), (span(1_500, 3_000), 0)] {
            assert_eq!(stalls.within(&time), Duration::from_millis(millis));
        }
    }
}
