//! The members with an access waiting, by warp.

use crate::params::Params;
use crate::types::{ProcessId, WarpId};

use super::warp::WarpTally;

/// For each warp the members with an access waiting, in the order in which they became ready; the queues of all warps
/// lie side by side. A member is in the queue of its warp at most once, so each queue has room for its members and no
/// more.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadyQueues(Vec<ProcessId>);

impl ReadyQueues {
    /// For so many processes.
    pub(super) fn reset(&mut self, processes: u32) {
        self.0.clear();
        self.0.resize(processes as usize, ProcessId::FIRST);
    }

    /// Puts a member at the end of its warp's queue.
    pub(super) fn push(&mut self, params: &Params, warp: WarpId, tally: &mut WarpTally, process: ProcessId) {
        self.0[Self::start(params, warp) + tally.queued as usize] = process;
        tally.queued += 1;
    }

    /// Where a warp's queue begins.
    pub(super) fn start(params: &Params, warp: WarpId) -> usize {
        warp.index() * params.warp_size() as usize
    }

    /// Where the queue of the warp with this index begins.
    pub(super) fn start_of(params: &Params, warp: u32) -> usize {
        warp as usize * params.warp_size() as usize
    }

    pub(super) fn get(&self, place: usize) -> ProcessId {
        self.0[place]
    }

    pub(super) fn set(&mut self, place: usize, process: ProcessId) {
        self.0[place] = process;
    }
}
