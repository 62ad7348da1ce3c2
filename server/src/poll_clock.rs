//! The moment at which the poll under way began.
//!
//! A poll of a task is short, so its beginning is as good a time as any moment in it: for rates, and for when
//! a request came. The clock is read once for a poll, by [`crate::transport`], and not by everything that the
//! poll does.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The moment at which the poll under way began; outside of one, what the clock says.
pub(crate) fn now() -> Instant {
    BEGAN.get().unwrap_or_else(Instant::now)
}

/// Runs a poll that began at this moment.
pub(crate) fn run<T>(began: Instant, poll: impl FnOnce() -> T) -> T {
    /// The poll ends, also by a panic.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            BEGAN.set(None);
        }
    }
    BEGAN.set(Some(began));
    let _end = End;
    poll()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_stands_still_in_a_poll_and_goes_on_behind_it() {
        let began = Instant::now() - Duration::from_secs(3);
        assert_eq!(run(began, now), began);
        assert!(now() > began + Duration::from_secs(1));
        catch_unwind(|| run(began, || panic!("a poll panics"))).unwrap_err();
        assert!(now() > began + Duration::from_secs(1));
    }
}
