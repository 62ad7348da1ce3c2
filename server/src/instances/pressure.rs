//! Whether the server keeps up, and what it does not take when it does not.
//!
//! A server that is asked for more than it can do has to refuse something, or everything waits longer and longer and
//! nothing comes to its end. What it refuses here are new instances, and nothing else: whoever is at work in one that
//! exists goes on (SPEC B1), and each that ends makes room.
//!
//! Whether it keeps up is measured and not guessed from a number of instances, which may be small or large, busy or
//! idle. A task asks to be woken at a moment, as sockets wake the tasks of streams, stands in line behind what
//! is ready then, and looks how late it is: for so long work waits here. Bursts make it wait too, and are no overload: as in CoDel, a queue of packets
//! that drops some, only a wait that did not fall below the target for a whole interval counts.
//!
//! One creator must not use up another's share: who has few instances under way is not refused for it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::limits::Limits;

/// How often it is measured.
const EVERY: Duration = Duration::from_millis(4);
/// The runtime's clock goes in steps of a millisecond and wakes nobody early: so much is no wait.
const STEP: Duration = Duration::from_millis(1);
/// As many measurements in a row are one interval: 40 ms, several times what a burst takes.
const INTERVAL: usize = 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// Nanoseconds of the shortest wait of the last interval.
    behind: AtomicU64,
    /// Instances under way, whoever's.
    under_way: Arc<AtomicUsize>,
    /// Woken when there are so many that it is worth measuring.
    busy: Notify,
    target: Duration,
    share: usize,
}

impl Pressure {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            behind: AtomicU64::new(0),
            under_way: Arc::default(),
            busy: Notify::new(),
            target: limits.behind,
            share: limits.instances_when_behind,
        }
    }

    /// Measures for ever; not while there is so little to do that nobody would be refused.
    pub(crate) async fn run(&self) {
        let mut waits = [Duration::ZERO; INTERVAL];
        for place in (0..INTERVAL).cycle() {
            if self.under_way() < self.share {
                waits.fill(Duration::ZERO);
                self.found(Duration::ZERO);
                self.busy.notified().await;
            }
            let due = Instant::now() + EVERY;
            sleep_until(due).await;
            // Who is woken by the clock or a socket may run at once. What has come in before is behind it.
            stand_in_line().await;
            waits[place] = due.elapsed().saturating_sub(STEP);
            self.found(waits.iter().copied().min().unwrap_or_default());
        }
    }

    fn found(&self, shortest: Duration) {
        self.behind.store(u64::try_from(shortest.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// For how long work that was ready has lately waited at least.
    pub(crate) fn behind(&self) -> Duration {
        Duration::from_nanos(self.behind.load(Ordering::Relaxed))
    }

    /// Instances that are neither finished nor closed nor expired.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Whether a creator with so many instances under way may not have another now; then, by how much the server is
    /// behind.
    pub(super) fn refuses(&self, own: usize) -> Option<Duration> {
        let behind = self.behind();
        (own >= self.share && behind >= self.target).then_some(behind)
    }

    /// An instance of this creator is under way from now on.
    pub(super) fn begins(&self, creator: &Arc<AtomicUsize>) -> UnderWay {
        creator.fetch_add(1, Ordering::Relaxed);
        if self.under_way.fetch_add(1, Ordering::Relaxed) + 1 >= self.share {
            self.busy.notify_one();
        }
        UnderWay([Arc::clone(creator), Arc::clone(&self.under_way)])
    }
}

/// Waits until everything has had its turn that was ready before.
async fn stand_in_line() {
    let mut stood = false;
    poll_fn(|cx| {
        if stood {
            return Poll::Ready(());
        }
        stood = true;
        // A task that wakes itself goes to the end of the queue.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// An instance that counts as under way until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay([Arc<AtomicUsize>; 2]);

impl Drop for UnderWay {
    fn drop(&mut self) {
        for count in &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressure(share: usize) -> Pressure {
        Pressure::new(&Limits {
            behind: Duration::from_millis(10),
            instances_when_behind: share,
            ..Limits::default()
        })
    }

    #[test]
    fn only_who_has_more_than_the_share_is_refused_and_only_while_the_server_is_behind() {
        let pressure = pressure(3);
        assert_eq!(pressure.refuses(1_000), None);
        pressure.found(Duration::from_millis(9));
        assert_eq!(pressure.refuses(1_000), None);
        pressure.found(Duration::from_millis(12));
        assert_eq!(pressure.refuses(3), Some(Duration::from_millis(12)));
        assert_eq!(pressure.refuses(2), None);
    }

    #[test]
    fn an_instance_counts_until_it_is_over() {
        let (pressure, one, other) = (pressure(3), Arc::default(), Arc::default());
        let first = pressure.begins(&one);
        let second = pressure.begins(&other);
        assert_eq!((pressure.under_way(), one.load(Ordering::Relaxed)), (2, 1));
        drop(first);
        assert_eq!((pressure.under_way(), one.load(Ordering::Relaxed)), (1, 0));
        drop(second);
        assert_eq!(pressure.under_way(), 0);
    }

    /// Keeps the only thread busy for so long, so often.
    async fn hog(bursts: usize, each: Duration, between: Duration) {
        for _ in 0..bursts {
            let end = std::time::Instant::now() + each;
            while std::time::Instant::now() < end {}
            tokio::time::sleep(between).await;
        }
    }

    #[tokio::test]
    async fn a_thread_that_is_always_busy_is_behind_and_bursts_are_not() {
        let pressure = Arc::new(pressure(1));
        let _instance = pressure.begins(&Arc::default());
        let measured = Arc::clone(&pressure);
        let task = tokio::spawn(async move { measured.run().await });
        // Longer than the interval, and never a moment of rest.
        hog(40, Duration::from_millis(20), Duration::ZERO).await;
        assert!(pressure.behind() >= Duration::from_millis(5), "{:?}", pressure.behind());
        // One burst between times of rest, in which the shortest wait is short.
        hog(3, Duration::from_millis(20), Duration::from_millis(100)).await;
        assert!(pressure.behind() < Duration::from_millis(15), "{:?}", pressure.behind());
        task.abort();
    }

    #[tokio::test]
    async fn where_little_is_under_way_nothing_is_measured() {
        let pressure = Arc::new(pressure(2));
        let one = Arc::default();
        let first = pressure.begins(&one);
        let measured = Arc::clone(&pressure);
        let task = tokio::spawn(async move { measured.run().await });
        pressure.found(Duration::from_secs(1));
        tokio::task::yield_now().await;
        assert_eq!(pressure.behind(), Duration::ZERO, "it has looked once and waits");
        drop(first);
        task.abort();
    }
}
