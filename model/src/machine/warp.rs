//! Tallies of one warp, so that no phase has to search for its members.

use crate::types::ProcessId;

/// What the machine knows of one warp.
#[derive(Clone, Debug, Default)]
pub(super) struct Warp {
    /// Members that are awaited (F3).
    pub(super) awaited: u32,
    /// Members that are awaited and have no access waiting: they hold the warp's phase open.
    pub(super) missing: u32,
    /// Members with an access waiting, in the order in which they became so. A member that left is still
    /// named here until the next step; `ready` does not count it.
    pub(super) queue: Vec<ProcessId>,
    /// How many of `queue` still have an access waiting.
    pub(super) ready: u32,
    /// No member that is awaited has less patience than this, in nanoseconds.
    pub(super) least_patience: u64,
}

impl Warp {
    /// Makes it a warp of `size` members, all awaited, of whom nothing waits.
    pub(super) fn reset(&mut self, size: u32, patience: u64) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.clear();
        *self = Self { awaited: size, missing: size, queue, ready: 0, least_patience: patience };
    }

    /// Whether the warp's phases are executed; if not, they pass unseen (F4).
    pub(super) fn is_live(&self) -> bool {
        self.awaited > 0 || self.ready > 0
    }
}
