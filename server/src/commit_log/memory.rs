//! The log of a server that keeps everything in memory.

use std::sync::Arc;

use super::{CommitLog, LogState, OnCommit, Step, Submission};

/// Commits every step at once, and keeps nothing of it: the instances are the only copy.
#[derive(Debug, Default)]
pub(crate) struct MemoryLog {
    state: Arc<LogState>,
}

impl MemoryLog {
    /// The log of a shard; what the logs of its server share is this.
    #[cfg(test)]
    pub(crate) fn with_state(state: Arc<LogState>) -> Self {
        Self { state }
    }
}

impl CommitLog for MemoryLog {
    fn keeps_inputs(&self) -> bool {
        false
    }

    fn submit(&self, _: Step<'_>) -> Submission {
        Submission::Committed
    }

    fn on_commit(&self, _: OnCommit) {}

    fn state(&self) -> &Arc<LogState> {
        &self.state
    }
}
