//! How much memory the records of all instances take together.
//!
//! Each record has a bound of its own in events, but a server has many instances and values differ in size. So the
//! bytes of all of them are counted too. Above the budget a record that grows forgets its own oldest events until it
//! holds no more than its share, the budget divided by the number of records: nobody's history is cut short because
//! of somebody else's, unless it is longer than what everybody may have.
//!
//! Those that do not grow any more keep what they have, which was a share of fewer. So in the worst case they hold, one
//! after the other, the budget, a half of it, a third, ...: k records at most 1 + ln k times the budget, which is 16
//! times for two million of them. To hold more than the budget at all takes somebody who fills it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    held: AtomicUsize,
    records: AtomicUsize,
}

impl Budget {
    /// Nothing is held; at most so many bytes should be.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0), records: AtomicUsize::new(0) }
    }

    /// What each record may hold, if there is not enough for all. `None`: there is.
    fn share(&self) -> Option<usize> {
        let exceeded = self.held.load(Ordering::Relaxed) > self.limit;
        exceeded.then(|| self.limit / self.records.load(Ordering::Relaxed).max(1))
    }

    /// A record that does not grow any more holds so many bytes.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.records.fetch_add(1, Ordering::Relaxed);
    }

    /// Such a record holds so many bytes less.
    pub(super) fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Such a record is gone, and what it held.
    pub(super) fn release(&self, bytes: usize) {
        self.shrink(bytes);
        self.records.fetch_sub(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// What one record holds of a budget.
#[derive(Debug)]
pub(super) struct Holding {
    budget: Arc<Budget>,
    bytes: usize,
    /// How many of them the budget knows of.
    told: usize,
}

impl Holding {
    /// The budget is shared by all tasks and is told no more often than every so many bytes.
    const GRAIN: usize = 4 * 1024;

    pub(super) fn new(budget: Arc<Budget>) -> Self {
        budget.records.fetch_add(1, Ordering::Relaxed);
        Self { budget, bytes: 0, told: 0 }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Holds nothing any more; of which budget.
    pub(super) fn release(&mut self) -> Arc<Budget> {
        self.budget.held.fetch_sub(self.told, Ordering::Relaxed);
        (self.bytes, self.told) = (0, 0);
        self.budget.clone()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Tells the budget, if it is worth it; true if the record holds more than it may.
    pub(super) fn settle(&mut self) -> bool {
        if self.bytes.abs_diff(self.told) >= Self::GRAIN {
            let held = &self.budget.held;
            match self.bytes.checked_sub(self.told) {
                Some(more) => held.fetch_add(more, Ordering::Relaxed),
                None => held.fetch_sub(self.told - self.bytes, Ordering::Relaxed),
            };
            self.told = self.bytes;
        }
        self.is_too_much()
    }

    /// Whether the record holds more than it may.
    pub(super) fn is_too_much(&self) -> bool {
        self.bytes > Self::GRAIN && self.budget.share().is_some_and(|share| self.bytes > share)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.told, Ordering::Relaxed);
        self.budget.records.fetch_sub(1, Ordering::Relaxed);
    }
}
