//! What all instances of a server share, of whichever shard: the timers, the limits, and the memory that they may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::timers::Timers;
use crate::commit_log::LogState;
use crate::event_log::Budget;
use crate::limits::Limits;
use crate::metrics::StepCounters;

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) limits: Limits,
    pub(super) timers: Timers,
    /// What the steps of all instances bring about, for operators.
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
