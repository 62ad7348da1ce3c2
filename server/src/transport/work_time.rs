//! The processor time of a poll.
//!
//! The clock of the system tells it at little cost, unless the thread was interrupted meanwhile: for other
//! programs, that of the client itself among them, which would be held against the client. So a poll that
//! seems to have taken long is looked at with the clock of the thread, which costs a system call.

use std::cell::Cell;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time from which on a poll may have been interrupted. Most take less.
const LONG: Duration = Duration::from_micros(100);
/// After so many polls the clock of the thread is read again, so that the work of the thread between polls is
/// not taken for a part of the next long one.
const POLLS: u32 = 64;

/// The polls of a thread since its clock was read.
#[derive(Clone, Copy, Debug)]
struct SinceRead {
    /// The time of the clock at that read.
    read: Duration,
    /// The time of the polls since.
    polled: Duration,
    polls: u32,
}

thread_local! {
    static SINCE_READ: Cell<Option<SinceRead>> = const { Cell::new(None) };
}

/// The processor time of a poll of this thread that has just ended, after this time.
pub(super) fn worked(elapsed: Duration) -> Duration {
    let since = SINCE_READ.get();
    if let Some(since) = since.filter(|since| elapsed < LONG && since.polls < POLLS) {
        SINCE_READ.set(Some(SinceRead { polled: since.polled + elapsed, polls: since.polls + 1, ..since }));
        return elapsed;
    }
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let now = Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default());
    SINCE_READ.set(Some(SinceRead { read: now, polled: Duration::ZERO, polls: 0 }));
    let most = since.map(|since| now.saturating_sub(since.read).saturating_sub(since.polled));
    most.map_or(elapsed, |most| elapsed.min(most))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn timed(poll: impl FnOnce()) -> Duration {
        let began = Instant::now();
        poll();
        worked(began.elapsed())
    }

    #[test]
    fn a_poll_that_was_interrupted_took_no_more_than_it_worked() {
        const ASLEEP: Duration = Duration::from_millis(50);
        timed(|| ());
        let took = timed(|| std::thread::sleep(ASLEEP));
        assert!(took < ASLEEP / 2, "{took:?}");
    }

    #[test]
    fn work_is_told_whole() {
        const WORK: Duration = Duration::from_millis(5);
        let thread_time = || clock_gettime(ClockId::ThreadCPUTime);
        for _ in 0..2 * POLLS {
            timed(|| ());
        }
        let took = timed(|| {
            let began = thread_time();
            let nanos = |at: rustix::time::Timespec| at.tv_sec * 1_000_000_000 + at.tv_nsec;
            while nanos(thread_time()) - nanos(began) < 5_000_000 {}
        });
        assert!(took >= WORK * 9 / 10, "{took:?}");
    }
}
