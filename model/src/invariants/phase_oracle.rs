//! Which phase may come next (SPEC W1, F3, F4): the members of each warp that are awaited or have an access
//! waiting, and the phase that is reached.

use crate::params::Params;
use crate::scheduler::{PhaseOrder, WarpSet};
use crate::types::{Phase, ProcessId, WarpId};

/// The state of all warps.
#[derive(Clone, Debug)]
pub(super) struct PhaseOracle<S> {
    schedule: S,
    warps: Vec<WarpState>,
    /// Warps whose phases must not pass without a step: a member is awaited, or an access waits (F4).
    live: WarpSet,
    /// Processes with an access waiting.
    ready: u32,
    reached: Phase,
}

#[derive(Clone, Debug, Default)]
struct WarpState {
    /// Members that are awaited.
    awaited: u32,
    /// Members that are awaited and have no access waiting.
    missing: u32,
    /// Members with an access waiting.
    ready: u32,
    /// These members, in the order of acceptance; some may have left meanwhile.
    queue: Vec<ProcessId>,
}

impl<S: PhaseOrder> PhaseOracle<S> {
    /// Every process is awaited and no access waits.
    pub(super) fn new(params: &Params, schedule: S) -> Self {
        let warps = || (0..params.warps() as usize).filter_map(WarpId::from_index);
        let state = |warp| {
            let size = u32::try_from(params.members(warp).count()).unwrap_or(u32::MAX);
            WarpState { awaited: size, missing: size, ..WarpState::default() }
        };
        Self {
            schedule,
            warps: warps().map(state).collect(),
            live: WarpSet::all(params.warps()),
            ready: 0,
            reached: Phase::FIRST,
        }
    }

    pub(super) fn schedule(&self) -> &S {
        &self.schedule
    }

    pub(super) fn schedule_mut(&mut self) -> &mut S {
        &mut self.schedule
    }

    /// The farthest phase that can be open. Phases before it that were not executed have passed, or had the
    /// right to; under a pace (F9) they may pass later than that, so one of them may still be executed.
    pub(super) fn reached(&self) -> Phase {
        self.reached
    }

    /// Lets phases pass over warps in which no member is awaited and no access waits, as long as an access
    /// waits somewhere (F4).
    pub(super) fn advance(&mut self) {
        if self.ready > 0 {
            self.reached = self.schedule.next_phase_among(self.reached, &self.live);
        }
    }

    /// A phase was executed: the next is reached.
    pub(super) fn executed(&mut self, phase: Phase) {
        self.reached = phase.next();
    }

    pub(super) fn warp_of(&mut self, phase: Phase) -> WarpId {
        self.schedule.warp_of(phase)
    }

    /// Processes with an access waiting.
    pub(super) fn ready(&self) -> u32 {
        self.ready
    }

    pub(super) fn ready_in(&self, warp: WarpId) -> u32 {
        self.warps[warp.index()].ready
    }

    /// How many members of a warp are awaited and have no access waiting (F3).
    pub(super) fn missing_in(&self, warp: WarpId) -> u32 {
        self.warps[warp.index()].missing
    }

    /// Takes the members of a warp that may have an access waiting; the caller puts back those that still
    /// have one.
    pub(super) fn take_queue(&mut self, warp: WarpId) -> Vec<ProcessId> {
        std::mem::take(&mut self.warps[warp.index()].queue)
    }

    pub(super) fn enqueue(&mut self, warp: WarpId, process: ProcessId) {
        self.warps[warp.index()].queue.push(process);
    }

    /// A member has an access waiting and had none before.
    pub(super) fn now_ready(&mut self, warp: WarpId, awaited: bool) {
        self.ready += 1;
        self.change(warp, |state| {
            state.ready += 1;
            state.missing -= u32::from(awaited);
        });
    }

    /// A member has no access waiting any more.
    pub(super) fn not_ready(&mut self, warp: WarpId, awaited: bool) {
        self.ready -= 1;
        self.change(warp, |state| {
            state.ready -= 1;
            state.missing += u32::from(awaited);
        });
    }

    /// A member that was awaited is so no more.
    pub(super) fn await_no_more(&mut self, warp: WarpId, missing: bool) {
        self.change(warp, |state| {
            state.awaited -= 1;
            state.missing -= u32::from(missing);
        });
    }

    fn change(&mut self, warp: WarpId, change: impl FnOnce(&mut WarpState)) {
        let state = &mut self.warps[warp.index()];
        change(state);
        if state.awaited > 0 || state.ready > 0 {
            self.live.insert(warp);
        } else {
            self.live.remove(warp);
        }
    }
}
