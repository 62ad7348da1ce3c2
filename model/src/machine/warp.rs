//! Tallies of one warp, so that no phase has to search for its members.

/// What the machine knows of one warp: half a cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
pub(super) struct WarpTally {
    /// No member that is awaited has less patience than this, in nanoseconds.
    pub(super) least_patience: u64,
    /// Members that are awaited (F3).
    pub(super) awaited: u32,
    /// Members that are awaited and have no access waiting: they hold the warp's phase open.
    pub(super) missing: u32,
    /// Members with an access waiting.
    pub(super) ready: u32,
    /// Members in the warp's ready queue. A member that left stays there until the next step; `ready` does not count
    /// it.
    pub(super) queued: u32,
    /// Whether the first access of some member in the ready queue may be an append.
    pub(super) appends: bool,
}

impl WarpTally {
    /// A warp of so many members, all awaited, without a waiting access.
    pub(super) fn new(size: u32, patience: u64) -> Self {
        Self { least_patience: patience, awaited: size, missing: size, ..Self::default() }
    }

    /// Whether the warp's phases are executed; if not, they pass unseen (F4).
    pub(super) fn is_live(&self) -> bool {
        self.awaited > 0 || self.ready > 0
    }
}
