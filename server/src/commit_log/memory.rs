//! The log of a server that keeps everything in memory.

use std::sync::Arc;

use super::{Append, CommitLog, ServedClock, Settle, Step};

/// Commits every step at once, and keeps nothing of it: the instances are the only copy.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    clock: Arc<ServedClock>,
}

impl CommitLog for MemoryLog {
    fn keeps_inputs(&self) -> bool {
        false
    }

    fn append(&self, _: Step<'_>) -> Append {
        Append::Committed
    }

    fn on_settled(&self, _: Settle) {}

    fn clock(&self) -> Arc<ServedClock> {
        self.clock.clone()
    }
}
