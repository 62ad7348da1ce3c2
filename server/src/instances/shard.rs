//! The state that instances share: those of one shard, which are served or not, and those of the server, of
//! all its shards.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use stickycas_proto::status::RpcRefusal;
use tokio::sync::{Mutex, MutexGuard};

use super::placement::ShardKey;
use super::timers::Timers;
use crate::commit_log::{CommitLog, LogState};
use crate::event_log::Budget;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::metrics::StepCounters;

/// The state that the instances of one shard share, as long as this server owns it. If the server takes the
/// shard again later, that is another context.
#[derive(Debug)]
pub(crate) struct ShardContext {
    /// The state that all instances of the server share.
    pub(super) server: Arc<Context>,
    pub(super) key: ShardKey,
    pub(super) log: Arc<dyn CommitLog>,
    /// The number of the instance that was created last.
    last_number: AtomicU64,
    /// Whether it has been recovered: nobody finds its instances before.
    is_served: AtomicBool,
    /// Whether it is to be handed over: nobody finds its instances meanwhile.
    is_leaving: AtomicBool,
    /// The reason for which nothing of it may be told any more.
    pub(super) lost: OnceLock<RpcRefusal>,
    /// Locked while it is recovered, and while it is dropped.
    pub(super) recovery: Mutex<()>,
}

/// The shard was lost while it was recovered, or before.
#[derive(Debug)]
pub(super) struct ShardLost;

impl ShardContext {
    pub(super) fn new(server: Arc<Context>, key: ShardKey, log: Arc<dyn CommitLog>) -> Self {
        let [is_served, is_leaving] = [false, false].map(AtomicBool::new);
        let (last_number, lost, recovery) = (AtomicU64::new(0), OnceLock::new(), Mutex::new(()));
        Self { server, key, log, last_number, is_served, is_leaving, lost, recovery }
    }

    /// Of a server that has no other, for tests of one instance.
    #[cfg(test)]
    pub(super) fn alone(limits: Limits, log: Arc<dyn CommitLog>) -> Arc<Self> {
        let server = Context::new(limits, log.state());
        Arc::new(Self::new(server, ShardKey::default(), log))
    }

    /// The reason for which nothing of the shard may be told any more, if its log has failed or the shard is
    /// lost.
    pub(crate) fn failure(&self) -> Option<&RpcRefusal> {
        self.lost.get().or_else(|| self.log.failure())
    }

    /// Whether its instances are served.
    pub(super) fn is_served(&self) -> bool {
        self.is_served.load(Ordering::Acquire) && !self.is_leaving_or_lost()
    }

    /// Whether it is to be handed over, or is lost.
    pub(super) fn is_leaving_or_lost(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire) || self.lost.get().is_some()
    }

    /// Begins its recovery, which ends when the returned guard is dropped: a shard that is dropped waits for
    /// it.
    pub(super) fn begin_recovery(&self) -> Result<MutexGuard<'_, ()>, ShardLost> {
        // Nobody else has the lock before the shard is lost.
        let running = self.recovery.try_lock().map_err(|_| ShardLost)?;
        self.check_owned().map(|()| running)
    }

    /// Whether the server still has it.
    pub(super) fn check_owned(&self) -> Result<(), ShardLost> {
        if self.lost.get().is_some() { Err(ShardLost) } else { Ok(()) }
    }

    pub(super) fn set_served(&self) {
        self.is_served.store(true, Ordering::Release);
    }

    /// The shard is to be handed over: nobody finds its instances any more, unless it stays after all.
    pub(crate) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Release);
    }

    pub(crate) fn key(&self) -> ShardKey {
        self.key
    }

    /// Opens when it is confirmed that the server still owns the shard, before something is told that another
    /// server may know better.
    pub(crate) fn ownership(&self) -> Gate {
        Gate::of_ownership(self.log.confirm())
    }

    /// The same before it is told that an instance of the shard is gone: of a shard that is lost nothing can
    /// be confirmed.
    pub(super) fn ownership_of_gone(&self) -> Gate {
        if self.failure().is_some() { Gate::OPEN } else { self.ownership() }
    }

    /// The number of a new instance.
    pub(super) fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An instance of this number is there.
    pub(super) fn skip_number(&self, number: u64) {
        self.last_number.fetch_max(number, Ordering::Relaxed);
    }
}

/// The state that all instances of a server share, of every shard: the timers, the limits, and the memory
/// that they may take together.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) limits: Limits,
    pub(super) timers: Timers,
    /// The counters of the steps of all instances, for operators.
    pub(super) steps: StepCounters,
    /// The memory that all event logs may take together.
    pub(super) event_budget: Arc<Budget>,
    /// Instances that are held and were closed.
    closed: AtomicUsize,
    watchers: AtomicU64,
}

/// Names one Watch stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatcherId(u64);

impl Context {
    pub(super) fn new(limits: Limits, log: &LogState) -> Arc<Self> {
        let event_budget = Arc::new(Budget::new(limits.event_bytes));
        Arc::new(Self {
            timers: Timers::new(log.clock().clone()),
            limits,
            steps: StepCounters::default(),
            event_budget,
            closed: AtomicUsize::new(0),
            watchers: AtomicU64::new(0),
        })
    }

    /// Instances that are held and were closed.
    pub(super) fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }

    /// An instance was closed, or one is held that was.
    pub(super) fn count_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// An instance that was closed is held no more.
    pub(super) fn forget_closed(&self) {
        // If the log refused the close, it was never counted.
        let _ =
            self.closed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |closed| closed.checked_sub(1));
    }

    /// The id of a new watcher.
    pub(super) fn next_watcher(&self) -> WatcherId {
        WatcherId(self.watchers.fetch_add(1, Ordering::Relaxed))
    }
}
