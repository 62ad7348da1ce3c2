//! Tallies of one warp, so that no phase has to search for its members.

use crate::params::Params;
use crate::types::{ProcessId, WarpId};

/// What the machine knows of one warp: half a cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(32))]
pub(super) struct Warp {
    /// No member that is awaited has less patience than this, in nanoseconds.
    pub(super) least_patience: u64,
    /// Members that are awaited (F3).
    pub(super) awaited: u32,
    /// Members that are awaited and have no access waiting: they hold the warp's phase open.
    pub(super) missing: u32,
    /// Members with an access waiting.
    pub(super) ready: u32,
    /// How many are in its line. One that left stays there until the next step; `ready` does not count it.
    pub(super) lined_up: u32,
    /// Whether the first access of somebody in the line may be an append.
    pub(super) appends: bool,
}

impl Warp {
    /// A warp of so many members, all awaited, of whom nothing waits.
    pub(super) fn new(size: u32, patience: u64) -> Self {
        Self { least_patience: patience, awaited: size, missing: size, ..Self::default() }
    }

    /// Whether the warp's phases are executed; if not, they pass unseen (F4).
    pub(super) fn is_live(&self) -> bool {
        self.awaited > 0 || self.ready > 0
    }
}

/// Who has an access waiting: of each warp in the order in which they became so, the warps side by side. A member is in
/// the line of its warp at most once, so each has room for its members and no more.
#[derive(Clone, Debug, Default)]
pub(super) struct Lines(Vec<ProcessId>);

impl Lines {
    /// For so many processes.
    pub(super) fn reset(&mut self, processes: u32) {
        self.0.clear();
        self.0.resize(processes as usize, ProcessId::FIRST);
    }

    /// Puts a member at the end of its warp's line.
    pub(super) fn push(&mut self, params: &Params, warp: WarpId, tally: &mut Warp, process: ProcessId) {
        self.0[Self::start(params, warp) + tally.lined_up as usize] = process;
        tally.lined_up += 1;
    }

    /// Where a warp's line begins.
    pub(super) fn start(params: &Params, warp: WarpId) -> usize {
        warp.index() * params.warp_size() as usize
    }

    pub(super) fn get(&self, place: usize) -> ProcessId {
        self.0[place]
    }

    pub(super) fn set(&mut self, place: usize, process: ProcessId) {
        self.0[place] = process;
    }
}
