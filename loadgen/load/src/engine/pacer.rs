//! Says when instances begin in an open loop. It is a thread of its own, since the runtime's timer is no
//! finer than a millisecond, and a busy runtime is what must not shift the schedule.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::super::arrivals::Arrivals;

/// How long the thread sleeps at most before it looks whether anybody still listens.
const NAP: Duration = Duration::from_millis(100);
/// As much is left to be waited for awake, so that a sleep that takes too long makes no start late; ...
const AWAKE: Duration = Duration::from_micros(60);
/// ... but no more than one part in so many of the time between two starts: the processors have other work.
const SHARE_AWAKE: u32 = 20;

/// See the module. The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Pacer {
    due: UnboundedReceiver<Instant>,
    gone: Arc<AtomicBool>,
}

impl Pacer {
    /// Starts the thread; moments are counted from `start`.
    pub(super) fn start(arrivals: Arrivals, start: Instant) -> Self {
        let (sender, due) = unbounded_channel();
        let gone = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&gone);
        std::thread::spawn(move || pace(arrivals, start, &sender, &seen));
        Self { due, gone }
    }

    /// The planned moment of the next start, as soon as it has come; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Instant> {
        self.due.recv().await
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

fn pace(arrivals: Arrivals, start: Instant, due: &UnboundedSender<Instant>, gone: &AtomicBool) {
    let mut last = Duration::ZERO;
    for at in arrivals {
        let planned = start + at;
        let awake = AWAKE.min((at - last) / SHARE_AWAKE);
        last = at;
        loop {
            if gone.load(Ordering::Relaxed) {
                return;
            }
            let left = planned.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match left.checked_sub(awake) {
                Some(asleep) => std::thread::sleep(asleep.min(NAP)),
                None => std::thread::yield_now(),
            }
        }
        if due.send(planned).is_err() {
            return;
        }
    }
}
