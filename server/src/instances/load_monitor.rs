//! The load of the server, and the refusal of new instances while the server is saturated.
//!
//! A server that gets more work than it can do has to refuse some of it; otherwise all calls wait longer and
//! longer and memory fills. This server refuses new instances and nothing else: processes of existing
//! instances go on (SPEC B1), and each instance that ends makes room for another.
//!
//! No fixed number of instances is too many: instances may be small or large, busy or idle. So the monitor
//! measures the load: the share of their time for which the threads of the runtime were busy. Threads that
//! are always busy do no harm by themselves, and a loop over few instances keeps them busy. But a creator
//! with so many live instances that they keep the machine busy gains nothing by another one: all of its
//! instances only wait longer. So while the server is saturated, a creator with
//! [`Limits::instances_when_busy`] live instances gets no more of them. This number is also the share of a
//! creator: with fewer live instances it is never refused because of the instances of others.
//!
//! An instance is live from its creation to its end, whether or not a process has joined. If only joined
//! instances counted, a creator could create any number of them before the first join, and all of them
//! together would exceed its share. So a creator that creates many instances ahead has to wait while the
//! server is saturated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use stickycas_model::history::Event;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::limits::Limits;

/// The length of one measurement: longer than a burst of calls.
const INTERVAL: Duration = Duration::from_millis(50);
/// The load from which on the server is saturated, in parts of a thousand. It is below 1,000 because a thread
/// that looks for its next task is not busy for that moment.
const SATURATED: u32 = 950;

/// See the module.
#[derive(Debug)]
pub(crate) struct LoadMonitor {
    /// The share of their time for which the threads were busy, in parts of a thousand.
    busy: AtomicU32,
    /// Live instances of all creators.
    live: Arc<AtomicUsize>,
    /// Live instances whose processes still gather.
    gathering: Arc<AtomicUsize>,
    /// Notified when there are so many live instances that the load has to be measured.
    measure: Notify,
    share: usize,
}

impl LoadMonitor {
    pub(crate) fn new(limits: &Limits) -> Self {
        let share = limits.instances_when_busy;
        Self {
            busy: AtomicU32::new(0),
            live: Arc::default(),
            gathering: Arc::default(),
            measure: Notify::new(),
            share,
        }
    }

    /// Measures the load for ever, but not while there are so few live instances that no creator can be
    /// refused.
    pub(crate) async fn run(&self) {
        let metrics = Handle::current().metrics();
        loop {
            if self.live() < self.share {
                self.set_load(0);
                self.measure.notified().await;
            }
            let (since, before) = (Instant::now(), worked(&metrics));
            sleep(INTERVAL).await;
            let time = since.elapsed() * u32::try_from(metrics.num_workers()).unwrap_or(u32::MAX);
            let busy = worked(&metrics).saturating_sub(before).as_secs_f64() / time.as_secs_f64();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a share")]
            self.set_load((busy * 1_000.0) as u32);
        }
    }

    fn set_load(&self, busy: u32) {
        self.busy.store(busy, Ordering::Relaxed);
    }

    /// The share of their time for which the threads have lately been busy; 0 if too few instances are live
    /// to measure it.
    pub(crate) fn busy(&self) -> f64 {
        f64::from(self.busy.load(Ordering::Relaxed)) / 1_000.0
    }

    /// Instances that are neither finished nor closed nor expired.
    pub(crate) fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Live instances whose processes still gather.
    pub(crate) fn gathering(&self) -> usize {
        self.gathering.load(Ordering::Relaxed)
    }

    /// Whether a creator with so many live instances may not have another now.
    pub(super) fn refuses(&self, own: usize) -> bool {
        own >= self.share && self.busy.load(Ordering::Relaxed) >= SATURATED
    }

    /// An instance of this creator is live from now on.
    pub(super) fn track(&self, creator: &Arc<AtomicUsize>) -> LiveGuard {
        creator.fetch_add(1, Ordering::Relaxed);
        if self.live.fetch_add(1, Ordering::Relaxed) + 1 >= self.share {
            self.measure.notify_one();
        }
        self.gathering.fetch_add(1, Ordering::Relaxed);
        LiveGuard {
            counts: [Arc::clone(creator), Arc::clone(&self.live)],
            gathering: Some(Arc::clone(&self.gathering)),
        }
    }
}

/// The time for which all threads together have been busy until now.
fn worked(metrics: &RuntimeMetrics) -> Duration {
    (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum()
}

/// An instance that counts as live until this is dropped.
#[derive(Debug)]
pub(super) struct LiveGuard {
    counts: [Arc<AtomicUsize>; 2],
    /// `None` once the processes have gathered.
    gathering: Option<Arc<AtomicUsize>>,
}

impl LiveGuard {
    /// Counts the instance as running if these events end its gathering.
    pub(super) fn observe(&mut self, events: &[Event]) {
        if self.gathering.is_some()
            && events.iter().any(|event| matches!(event, Event::GatheringEnded { .. }))
        {
            self.end_gathering();
        }
    }

    /// Counts the instance as running.
    pub(super) fn end_gathering(&mut self) {
        if let Some(gathering) = self.gathering.take() {
            gathering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.end_gathering();
        for count in &self.counts {
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
    fn an_instance_is_live_until_its_guard_is_dropped() {
        let (monitor, one, other) = (monitor(3), Arc::default(), Arc::default());
        let first = monitor.track(&one);
        let second = monitor.track(&other);
        assert_eq!((monitor.live(), one.load(Ordering::Relaxed)), (2, 1));
        drop(first);
        assert_eq!((monitor.live(), one.load(Ordering::Relaxed)), (1, 0));
        assert_eq!(monitor.gathering(), 1);
        let mut second = second;
        second.observe(&[Event::Finished]);
        second.observe(&[Event::GatheringEnded { joined: 1 }]);
        second.observe(&[Event::GatheringEnded { joined: 1 }]);
        assert_eq!((monitor.live(), monitor.gathering()), (1, 0));
        drop(second);
        assert_eq!(monitor.live(), 0);
    }

    #[tokio::test]
    async fn a_busy_thread_saturates_the_server_and_an_idle_one_does_not() {
        let monitor = Arc::new(monitor(1));
        let _instance = monitor.track(&Arc::default());
        let measured = Arc::clone(&monitor);
        let task = tokio::spawn(async move { measured.run().await });
        // This task seldom yields, and is ready again at once.
        while !monitor.refuses(1) {
            let turn = Instant::now();
            while turn.elapsed() < INTERVAL / 2 {
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
    async fn with_few_live_instances_nothing_is_measured() {
        let monitor = Arc::new(monitor(2));
        let _instance = monitor.track(&Arc::default());
        monitor.set_load(1_000);
        let measured = Arc::clone(&monitor);
        let task = tokio::spawn(async move { measured.run().await });
        tokio::task::yield_now().await;
        assert!(monitor.busy() < 1e-9, "the load is reset and not measured");
        task.abort();
    }
}
