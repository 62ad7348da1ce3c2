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
    /// For whoever writes to one of several places: the same principal writes to the same.
    pub(super) fn near(self) -> usize {
        self.process.index()
    }
}
