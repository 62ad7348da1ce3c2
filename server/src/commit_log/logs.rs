//! The logs of all shards of a server, and the state that they share: the bytes that may wait for their
//! commit, the clock, and the failure that ends the server.
//!
//! The bound is one for the server, and so is the clock. A stream carries the accesses of one client for
//! instances of any shard: while too much waits nothing more is read from it, for whichever shard. So the
//! time of every instance stands still then, not only of those whose log is slow (SPEC F3).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use stickycas_proto::status::RpcRefusal;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, oneshot, watch};

use super::{CommitLog, ServedClock};
use crate::gate::{Confirmation, LogSource, NoSpace};

/// See the module.
#[derive(Debug)]
pub(crate) struct LogState {
    /// The clock that the time of instances follows.
    clock: Arc<ServedClock>,
    /// Bytes that may wait for their commit before no further inputs are read.
    limit: usize,
    /// Bytes that wait, of all logs.
    bytes: AtomicUsize,
    /// Whether more wait.
    full: AtomicBool,
    /// One thread at a time changes `full` and the clock.
    changing: Mutex<StandsStill>,
    /// Notified when there is room again.
    room: Arc<Notify>,
    failure: OnceLock<RpcRefusal>,
    /// Whether nothing can be committed for want of space in the store that servers share; `None`: there is
    /// none.
    store_full: Option<watch::Receiver<bool>>,
}

/// The reasons for which the clock stands still, beside too many bytes that wait.
#[derive(Debug, Default)]
struct StandsStill {
    /// Nobody is served any more.
    is_over: bool,
    /// The store that servers share has no space.
    store_full: bool,
}

impl Default for LogState {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl LogState {
    /// Nothing waits; this many bytes may.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            clock: Arc::default(),
            limit,
            bytes: AtomicUsize::new(0),
            full: AtomicBool::new(false),
            changing: Mutex::default(),
            room: Arc::default(),
            failure: OnceLock::new(),
            store_full: None,
        }
    }

    /// The same over a store that servers share, and that tells whether it is full.
    pub(crate) fn with_full(self, full: watch::Receiver<bool>) -> Self {
        Self { store_full: Some(full), ..self }
    }

    /// Completes while nothing can be committed for want of space; `None`: that never happens.
    pub(crate) fn no_space(&self) -> Option<NoSpace> {
        let mut full = self.store_full.clone()?;
        Some(Box::pin(async move {
            if full.wait_for(|full| *full).await.is_err() {
                // Nobody tells any more.
                std::future::pending::<()>().await;
            }
        }))
    }

    /// The clock that the time of instances follows: it stands still while there is no [room](Self::room), or
    /// no space in the store that servers share.
    pub(crate) fn clock(&self) -> &Arc<ServedClock> {
        &self.clock
    }

    /// Nobody is served any more: the clock stands still for good.
    pub(crate) fn stop_clock(&self) {
        self.set_clock(|why| why.is_over = true);
    }

    /// The store that servers share has no space, or has some again. Without space nothing is committed, so
    /// the clock stands still.
    pub(crate) fn set_store_full(&self, is_full: bool) {
        self.set_clock(|why| why.store_full = is_full);
    }

    fn set_clock(&self, change: impl FnOnce(&mut StandsStill)) {
        let mut why = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut why);
        self.stop_or_resume(&why);
    }

    fn stop_or_resume(&self, why: &StandsStill) {
        if why.is_over || why.store_full || self.full.load(Ordering::SeqCst) {
            self.clock.stop(Instant::now());
        } else {
            self.clock.resume(Instant::now());
        }
    }

    /// While too much waits for its commit, no further inputs of clients are read: completes when they may be
    /// again. `None`: they may be.
    pub(crate) fn room(&self) -> Option<OwnedNotified> {
        if !self.full.load(Ordering::Relaxed) {
            return None;
        }
        let room = self.room.clone().notified_owned();
        // There may be room since the first look.
        self.full.load(Ordering::SeqCst).then_some(room)
    }

    /// The reason for which the server may tell nothing any more; `None` while it may. The loss of one shard
    /// is no such failure.
    pub(crate) fn failure(&self) -> Option<&RpcRefusal> {
        self.failure.get()
    }

    /// A log has failed, and with it the server.
    pub(crate) fn fail(&self, why: &RpcRefusal) {
        let _ = self.failure.set(why.clone());
    }

    /// In one log so many bytes wait now, and not as many as before.
    pub(super) fn recount(&self, before: usize, now: usize) {
        let (all, is_full) = if now > before {
            (self.bytes.fetch_add(now - before, Ordering::SeqCst) + (now - before), true)
        } else if now < before {
            (self.bytes.fetch_sub(before - now, Ordering::SeqCst) - (before - now), false)
        } else {
            return;
        };
        let changes = if is_full { all > self.limit } else { all <= self.limit / 2 };
        if changes && self.full.load(Ordering::SeqCst) != is_full {
            self.check_room();
        }
    }

    /// Too much may wait by now, or there may be room again.
    fn check_room(&self) {
        let why = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let (bytes, was_full) = (self.bytes.load(Ordering::SeqCst), self.full.load(Ordering::SeqCst));
            if bytes > self.limit && !was_full {
                self.full.store(true, Ordering::SeqCst);
                self.stop_or_resume(&why);
            } else if bytes <= self.limit / 2 && was_full {
                self.full.store(false, Ordering::SeqCst);
                self.stop_or_resume(&why);
                self.room.notify_waiters();
            } else {
                // A log that counted while this one changed `full` saw the old state of it: so it is looked
                // at once more.
                return;
            }
        }
    }
}

/// The logs of all shards of a server, for waits that concern no single shard: requests wait for room, and
/// refusals for the steps that were logged before them.
#[derive(Debug)]
pub(crate) struct Logs {
    state: Arc<LogState>,
    logs: RwLock<Vec<Arc<dyn CommitLog>>>,
    /// The number of logs that were removed. It changes with them.
    removals: AtomicU64,
}

impl Logs {
    /// No logs yet; those that come share this.
    pub(crate) fn new(state: Arc<LogState>) -> Self {
        Self { state, logs: RwLock::default(), removals: AtomicU64::new(0) }
    }

    /// The log of a shard that the server owns from now on.
    pub(crate) fn add(&self, log: Arc<dyn CommitLog>) {
        debug_assert!(Arc::ptr_eq(log.state(), &self.state), "the logs of a server have one state");
        self.logs.write().unwrap_or_else(PoisonError::into_inner).push(log);
    }

    /// The server owns its shard no more.
    pub(crate) fn remove(&self, log: &Arc<dyn CommitLog>) {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|it| !Arc::ptr_eq(it, log));
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    /// See [`LogState::stop_clock`].
    pub(crate) fn stop_clock(&self) {
        self.state.stop_clock();
    }

    /// See [`CommitLog::uncommitted_bytes`].
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        self.collect(|log| Some(log.uncommitted_bytes())).into_iter().sum()
    }

    fn collect<T>(&self, of: impl FnMut(&Arc<dyn CommitLog>) -> Option<T>) -> Vec<T> {
        // Nothing is allocated if there is nothing to wait for.
        self.logs.read().unwrap_or_else(PoisonError::into_inner).iter().filter_map(of).collect()
    }
}

impl LogSource for Logs {
    fn room(&self) -> Option<OwnedNotified> {
        self.state.room()
    }

    fn barriers(&self, bytes: usize) -> Vec<oneshot::Receiver<()>> {
        self.collect(|log| log.barrier(bytes))
    }

    fn confirmations(&self) -> Vec<Confirmation> {
        self.collect(|log| log.confirm())
    }

    fn removed(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    fn failure(&self) -> Option<&RpcRefusal> {
        self.state.failure()
    }

    fn no_space(&self) -> Option<NoSpace> {
        self.state.no_space()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_clock_stands_still_while_either_has_no_room() {
        let state = LogState::new(100);
        let stands_still = || {
            let before = state.clock().now();
            thread::sleep(std::time::Duration::from_millis(2));
            state.clock().now() == before
        };
        assert!(!stands_still());
        state.set_store_full(true);
        assert!(stands_still());
        state.recount(0, 101);
        state.set_store_full(false);
        assert!(stands_still(), "too much waits");
        state.set_store_full(true);
        state.recount(101, 0);
        assert!(stands_still(), "the store is full");
        state.set_store_full(false);
        assert!(!stands_still());
        state.stop_clock();
        state.set_store_full(false);
        assert!(stands_still(), "for good");
    }

    #[test]
    fn logs_that_count_at_once_leave_room_exactly_if_it_is_there() {
        const LIMIT: usize = 100;
        for round in 0..200 {
            let state = Arc::new(LogState::new(LIMIT));
            let logs: Vec<_> = (1..=4)
                .map(|log: usize| {
                    let state = state.clone();
                    thread::spawn(move || {
                        let mut waiting = 0;
                        for step in 0..50 {
                            let now = (step * 7 * log + round) % 60;
                            state.recount(waiting, now);
                            waiting = now;
                        }
                        // Of all together more than the limit, or less than half of it.
                        let last = if round % 2 == 0 { 30 } else { 5 };
                        state.recount(waiting, last);
                    })
                })
                .collect();
            logs.into_iter().for_each(|log| log.join().unwrap());
            assert_eq!(state.room().is_some(), round % 2 == 0, "round {round}");
        }
    }
}
