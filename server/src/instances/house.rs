//! What all instances share: clock, timers, limits, and the memory that they may take together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::timers::Timers;
use crate::limits::Limits;
use crate::store::budget::Budget;

/// See the module.
#[derive(Debug)]
pub(crate) struct House {
    pub(super) limits: Limits,
    pub(super) timers: Timers,
    /// Of the memory that all records take.
    pub(super) budget: Arc<Budget>,
    born: Instant,
    /// Bytes that those who have not ended may come to take beyond what they may take then.
    reserved: AtomicUsize,
    watchers: AtomicU64,
}

/// One Watch stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WatcherId(u64);

impl House {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let budget = Arc::new(Budget::new(limits.record_bytes));
        Arc::new(Self {
            limits,
            timers: Timers::default(),
            budget,
            born: Instant::now(),
            reserved: AtomicUsize::new(0),
            watchers: AtomicU64::new(0),
        })
    }

    /// Nanoseconds of this moment since the server started.
    pub(super) fn nanos(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment so many nanoseconds after the server started.
    pub(super) fn moment(&self, nanos: u64) -> Option<Instant> {
        self.born.checked_add(Duration::from_nanos(nanos))
    }

    /// What is reserved now.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Reserves so many bytes.
    pub(super) fn reserve(self: &Arc<Self>, bytes: usize) -> Reserved {
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        Reserved { house: self.clone(), bytes }
    }

    /// The id of a new watcher.
    pub(super) fn watcher(&self) -> WatcherId {
        WatcherId(self.watchers.fetch_add(1, Ordering::Relaxed))
    }
}

/// Bytes that an instance may come to take as long as it has not ended; given back when dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    house: Arc<House>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.house.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
