//! The memory that the event logs of all instances take together.
//!
//! Each log has a bound of its own in events, but a server has many instances, and values differ in size. So
//! the bytes of all logs are counted too. Above the budget a log that grows drops its own oldest events until
//! it holds no more than its share, the budget divided by the number of logs. So no instance loses events
//! because of another's, unless it holds more than every instance may.
//!
//! A log that does not grow any more keeps what it has, which was a share of fewer logs. So logs that grow
//! one after the other could hold the budget, a half of it, a third, and so on without end. Above twice the
//! budget a log that grows therefore keeps next to nothing ([`Holding::GRAIN`], which its instance counts as
//! its own). Only a client that fills logs on purpose comes so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    held: AtomicUsize,
    logs: AtomicUsize,
}

impl Budget {
    /// An empty budget of so many bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0), logs: AtomicUsize::new(0) }
    }

    /// The bytes that each log may hold while the budget is exceeded; `None`: it is not.
    pub(super) fn share(&self) -> Option<usize> {
        let held = self.held.load(Ordering::Relaxed);
        if held > self.limit.saturating_mul(2) {
            return Some(0);
        }
        (held > self.limit).then(|| self.limit / self.logs.load(Ordering::Relaxed).max(1))
    }

    /// Counts a log that does not grow any more and holds so many bytes.
    pub(super) fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.logs.fetch_add(1, Ordering::Relaxed);
    }

    /// A log that does not grow any more holds so many bytes less.
    pub(super) fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// A log that does not grow any more is dropped, with the bytes that it held.
    pub(super) fn release(&self, bytes: usize) {
        self.shrink(bytes);
        self.logs.fetch_sub(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn logs(&self) -> usize {
        self.logs.load(Ordering::Relaxed)
    }

    /// Bytes that all logs hold.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// The bytes that one log holds of a budget.
#[derive(Debug)]
pub(super) struct Holding {
    budget: Arc<Budget>,
    bytes: usize,
    /// The bytes that the budget has been told of.
    reported: usize,
}

impl Holding {
    /// All tasks share the budget, so a log reports to it only when so many bytes have changed.
    const GRAIN: usize = 4 * 1024;

    pub(super) fn new(budget: Arc<Budget>) -> Self {
        budget.logs.fetch_add(1, Ordering::Relaxed);
        Self { budget, bytes: 0, reported: 0 }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Holds nothing any more. Returns the budget.
    pub(super) fn release(&mut self) -> Arc<Budget> {
        self.budget.held.fetch_sub(self.reported, Ordering::Relaxed);
        (self.bytes, self.reported) = (0, 0);
        self.budget.clone()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reports to the budget if the difference is large enough; true if the log holds more than it may.
    pub(super) fn resolve(&mut self) -> bool {
        if self.bytes.abs_diff(self.reported) >= Self::GRAIN {
            let held = &self.budget.held;
            match self.bytes.checked_sub(self.reported) {
                Some(more) => held.fetch_add(more, Ordering::Relaxed),
                None => held.fetch_sub(self.reported - self.bytes, Ordering::Relaxed),
            };
            self.reported = self.bytes;
        }
        self.is_too_much()
    }

    /// Whether the log holds more than it may.
    pub(super) fn is_too_much(&self) -> bool {
        self.bytes > Self::GRAIN && self.budget.share().is_some_and(|share| self.bytes > share)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.reported, Ordering::Relaxed);
        self.budget.logs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_that_grow_one_after_the_other_hold_no_more_than_twice_the_budget() {
        const LIMIT: usize = 10_000_000;
        const LOGS: usize = 1_000;
        const EVENT: usize = 1_000;
        let budget = Arc::new(Budget::new(LIMIT));
        let mut logs: Vec<Holding> = Vec::new();
        for _ in 0..LOGS {
            let mut log = Holding::new(budget.clone());
            // Until it grows no more.
            for _ in 0..LIMIT / EVENT {
                log.add(EVENT);
                if log.resolve() {
                    while log.is_too_much() {
                        log.remove(EVENT);
                    }
                    log.resolve();
                    break;
                }
            }
            logs.push(log);
        }
        let held: usize = logs.iter().map(Holding::bytes).sum();
        assert!(held > LIMIT && held <= 2 * LIMIT + LOGS * Holding::GRAIN, "{held}");
    }
}
