//! So many lines of a kind in a second; the others are counted, and one line tells how many they were.
//!
//! The kind of a line is the place in the code that logs it, so there are only so many kinds, whatever
//! clients do.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::COUNTS;

/// The time in which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// The target of lines about lines that were left out; these lines are not limited.
const TARGET: &str = "stickycas_server::logging";

/// See the module.
#[derive(Debug)]
pub(super) struct RateLimit {
    lines_per_second: u32,
    kinds: Mutex<HashMap<Identifier, Window>>,
}

/// The lines of one kind in one second.
#[derive(Debug)]
struct Window {
    since: Instant,
    lines: u32,
    left_out: u64,
    /// The message of the first line that was left out.
    like: String,
}

impl RateLimit {
    pub(super) fn new(lines_per_second: u32) -> Self {
        Self { lines_per_second, kinds: Mutex::default() }
    }

    /// Whether one more line of this kind may be written now. `message` is called for the first that may not.
    fn admit(&self, kind: Identifier, now: Instant, message: impl FnOnce() -> String) -> bool {
        let mut kinds = self.kinds();
        let new = || Window { since: now, lines: 0, left_out: 0, like: String::new() };
        let window = kinds.entry(kind).or_insert_with(new);
        if window.left_out == 0 && now.saturating_duration_since(window.since) >= WINDOW {
            (window.since, window.lines) = (now, 0);
        }
        if window.lines < self.lines_per_second {
            window.lines += 1;
            return true;
        }
        if window.left_out == 0 {
            window.like = message();
        }
        window.left_out += 1;
        COUNTS.left_out.fetch_add(1, Relaxed);
        false
    }

    /// The lines that were left out in seconds that are over: of each kind how many, and the message of the
    /// first.
    fn take_left_out(&self, now: Instant) -> Vec<(u64, String)> {
        let mut taken = Vec::new();
        self.kinds().retain(|_, window| {
            let over = now.saturating_duration_since(window.since) >= WINDOW;
            if over && window.left_out > 0 {
                taken.push((window.left_out, std::mem::take(&mut window.like)));
            }
            !over
        });
        taken
    }

    /// Logs how many lines were left out in seconds that are over.
    pub(super) fn report(&self, now: Instant) {
        for (lines, like) in self.take_left_out(now) {
            tracing::warn!(target: TARGET, "left out {lines} like this: {like}");
        }
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<Identifier, Window>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The limit as a layer. Not as a filter of one layer: with tracing-subscriber 0.3.23 such a filter that
/// leaves out an event leaves a mark in its thread, and the next event panics or is lost.
pub(super) struct RateLayer(pub(super) Arc<RateLimit>);

impl<S: Subscriber> Layer<S> for RateLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let kind = event.metadata();
        kind.target() == TARGET
            || self.0.admit(kind.callsite(), Instant::now(), || {
                let mut message = Message(String::new());
                event.record(&mut message);
                message.0
            })
    }
}

/// The message of an event, without its fields.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Metadata;
    use tracing::subscriber::Interest;

    use super::*;

    /// A place in the code. It has a size, so that each has an address of its own.
    struct Place(u8);

    impl tracing::Callsite for Place {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            panic!("place {} is only compared", self.0)
        }
    }

    static ONE: Place = Place(1);
    static OTHER: Place = Place(2);

    #[test]
    fn lines_above_the_limit_are_left_out_and_counted() {
        let (limit, start) = (RateLimit::new(2), Instant::now());
        let [one, other] = [Identifier(&ONE), Identifier(&OTHER)];
        let message = || "refused".to_owned();
        let admitted = (0..7).filter(|_| limit.admit(one.clone(), start, message)).count();
        assert_eq!(admitted, 2);
        assert!(limit.admit(other, start, message), "another kind has a limit of its own");
        assert_eq!(limit.take_left_out(start), [], "the second is not over");
        let later = start + WINDOW;
        assert_eq!(limit.take_left_out(later), [(5, message())]);
        assert_eq!(limit.take_left_out(later), [], "told once");
        assert!(limit.admit(one, later, message), "a new second");
    }
}
