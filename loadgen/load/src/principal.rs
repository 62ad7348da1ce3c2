//! Which of the principals that put on a load.

use stickycas_model::types::ProcessId;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Principal {
    /// Its group, from 0.
    pub(super) group: usize,
    /// The process that it plays in every instance of that group.
    pub(super) process: ProcessId,
}

impl Principal {
    /// The shard that this principal writes to: always the same one.
    pub(super) fn shard(self) -> usize {
        self.process.index()
    }
}
