//! Whether the server has time to spare, and what it does not take when it has not.
//!
//! A server that is asked for more than it can do has to refuse something, or everything waits longer and longer and
//! memory fills. What it refuses here are new instances, and nothing else: whoever is at work in one that exists goes
//! on (SPEC B1), and each that ends makes room.
//!
//! How many instances are too many cannot be said in advance: they may be small or large, busy or idle. So it is
//! measured: for which share of their time the runtime's threads had work. Threads that never rest are no harm by
//! themselves, and a loop of few instances keeps them so; but whoever has as many under way as keep the machine busy
//! gains nothing by another, for all of them only wait longer. So while there is no rest, a creator with
//! [`Limits::instances_when_busy`] live ones gets no more. That is its share as well: what others do cannot have it
//! refused while it has fewer.
//!
//! An instance is live from its creation to its end, whether or not somebody plays at it yet. If only those counted
//! that somebody has joined, a creator could have any number created before the first join comes, and its share would
//! be exceeded by all of them. So whoever creates many ahead is held up while there is no rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::limits::Limits;

/// How often it is measured, each time of what has been since: longer than a burst.
const EVERY: Duration = Duration::from_millis(50);
/// Parts of a thousand of their time that threads without rest are busy: to look for work takes a moment too.
const SATURATED: u32 = 950;

/// See the module.
#[derive(Debug)]
pub(crate) struct LoadMonitor {
    /// Parts of a thousand of their time for which threads had work.
    busy: AtomicU32,
    /// Instances that have not ended, whoever's.
    live: Arc<AtomicUsize>,
    /// Woken when there are so many that it is worth measuring.
    worth: Notify,
    share: usize,
}

impl LoadMonitor {
    pub(crate) fn new(limits: &Limits) -> Self {
        let share = limits.instances_when_busy;
        Self { busy: AtomicU32::new(0), live: Arc::default(), worth: Notify::new(), share }
    }

    /// Measures for ever; not while there is so little to do that nobody would be refused.
    pub(crate) async fn run(&self) {
        let metrics = Handle::current().metrics();
        loop {
            if self.live() < self.share {
                self.set_load(0);
                self.worth.notified().await;
            }
            let (since, before) = (Instant::now(), worked(&metrics));
            sleep(EVERY).await;
            let time = since.elapsed() * u32::try_from(metrics.num_workers()).unwrap_or(u32::MAX);
            let busy = worked(&metrics).saturating_sub(before).as_secs_f64() / time.as_secs_f64();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is about a share"
            )]
            self.set_load((busy * 1_000.0) as u32);
        }
    }

    fn set_load(&self, busy: u32) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// For which share of their time the threads have lately had work; 0 if too few are live to measure it.
    pub(crate) fn busy(&self) -> f64 {
        f64::from(self.busy.load(Ordering::Relaxed)) / 1_000.0
    }

    /// Instances that are neither finished nor closed nor expired.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether a creator with so many live instances may not have another now.
    pub(super) fn refuses(&self, own: usize) -> bool {
        own >= self.share && self.busy.load(Ordering::Relaxed) >= SATURATED
    }

    /// An instance of this creator is live from now on.
    pub(super) fn track(&self, creator: &Arc<AtomicUsize>) -> LiveGuard {
        creator.fetch_add(1, Ordering::Relaxed);
        if self.live.fetch_add(1, Ordering::Relaxed) + 1 >= self.share {
            self.worth.notify_one();
        }
        LiveGuard([Arc::clone(creator), Arc::clone(&self.live)])
    }
}

/// How long all threads together have worked until now.
fn worked(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum()
}

/// An instance that counts as live until this is dropped.
#[derive(Debug)]
pub(super) struct LiveGuard([Arc<AtomicUsize>; 2]);

impl Drop for LiveGuard {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(share: usize) -> LoadMonitor {
        LoadMonitor::new(&Limits { instances_when_busy: share, ..Limits::default() })
    }

    #[test]
    fn only_creators_over_their_share_are_refused_when_saturated() {
        let monitor = monitor(3);
        assert!(!monitor.refuses(1_000));
        monitor.set_load(SATURATED - 1);
        assert!(!monitor.refuses(1_000));
        monitor.set_load(SATURATED);
        assert!(monitor.refuses(3) && !monitor.refuses(2));
    }

    #[test]
    fn an_instance_counts_until_it_is_over() {
        let (monitor, one, other) = (monitor(3), Arc::default(), Arc::default());
        let first = monitor.track(&one);
        let second = monitor.track(&other);
        assert_eq!((monitor.live(), one.load(Ordering::Relaxed)), (2, 1));
        drop(first);
        assert_eq!((monitor.live(), one.load(Ordering::Relaxed)), (1, 0));
        drop(second);
        assert_eq!(monitor.live(), 0);
    }

    #[tokio::test]
    async fn a_thread_that_never_rests_is_seen_and_one_that_does_is_too() {
        let monitor = Arc::new(monitor(1));
        let _instance = monitor.track(&Arc::default());
        let measured = Arc::clone(&monitor);
        let task = tokio::spawn(async move { measured.run().await });
        // It seldom gives others their turn, and is ready again at once.
        while !monitor.refuses(1) {
            let turn = Instant::now();
            while turn.elapsed() < EVERY / 2 {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
        }
        while monitor.refuses(1) {
            sleep(Duration::from_millis(5)).await;
        }
        task.abort();
    }

    #[tokio::test]
    async fn where_little_is_live_nothing_is_measured() {
        let monitor = Arc::new(monitor(2));
        let _instance = monitor.track(&Arc::default());
        monitor.set_load(1_000);
        let measured = Arc::clone(&monitor);
        let task = tokio::spawn(async move { measured.run().await });
        tokio::task::yield_now().await;
        assert!(monitor.busy() < 1e-9, "it has looked once and waits");
        task.abort();
    }
}
