//! The phase that is open or next, in the order of a schedule, and what its place says of the append window
//! (SPEC W1, A2).

use crate::params::AppendWindow;
use crate::scheduler::PhaseOrder;
use crate::types::{Phase, Time, WarpId};

use super::member;
use super::warps::Warps;

/// See the module. All phases before it have passed.
#[derive(Clone, Debug)]
pub(super) struct PhaseCursor<S> {
    pub(super) schedule: S,
    window: AppendWindow,
    phase: Phase,
    warp: WarpId,
}

impl<S: PhaseOrder> PhaseCursor<S> {
    /// At the first phase.
    pub(super) fn new(mut schedule: S, window: AppendWindow) -> Self {
        let (phase, warp) = (Phase::FIRST, schedule.warp_of(Phase::FIRST));
        Self { schedule, window, phase, warp }
    }

    /// The phase.
    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The warp of the phase.
    pub(super) fn warp(&self) -> WarpId {
        self.warp
    }

    /// All phases before `phase` have passed.
    pub(super) fn go_to(&mut self, phase: Phase) {
        self.phase = phase;
        self.warp = self.schedule.warp_of(phase);
    }

    /// The first phase from this one on whose warp is live, counting `also` as live.
    pub(super) fn next_live(&mut self, warps: &Warps, also: Option<WarpId>) -> Phase {
        if also == Some(self.warp) || warps[self.warp].is_live() {
            return self.phase;
        }
        let live = self.schedule.next_phase_among(self.phase, warps.live());
        match also {
            Some(warp) if warps.live().is_empty() => self.schedule.next_phase_of(warp, self.phase),
            Some(warp) => live.min(self.schedule.next_phase_of(warp, self.phase)),
            None => live,
        }
    }

    /// Whether this phase, which has come, may append to a list that was full or not when it began (A2, K1).
    pub(super) fn window_is_open(&self, phase: Phase, was_full: bool) -> bool {
        match self.window {
            AppendWindow::FirstAccess => self.schedule.is_append_phase(phase),
            AppendWindow::Open => !was_full,
        }
    }

    /// Whether a list that is full or not is to be sealed by now (A2, K1): once every warp has had its first
    /// q phases, or with the last of n entries.
    pub(super) fn is_seal_due(&self, is_full: bool) -> bool {
        match self.window {
            AppendWindow::FirstAccess => self.schedule.append_phases_ended_before(self.phase),
            AppendWindow::Open => is_full,
        }
    }

    /// Whether a process that has won an append wins no other (K1).
    pub(super) fn wins_once(&self) -> bool {
        self.window == AppendWindow::FirstAccess
    }
}

/// A phase that is open and waits for members of its warp.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenPhase {
    /// From when on the patience of missing members drains: when it opened, or when the time to reconnect
    /// ends (F3).
    pub(super) since: Time,
    /// When to check for patience that is spent. Never later than the first such moment; `None` if all are
    /// endless.
    pub(super) wake: Option<Time>,
}

impl OpenPhase {
    /// A phase whose missing members have at least this patience, in nanoseconds.
    pub(super) fn new(since: Time, patience: u64) -> Self {
        Self { since, wake: (patience != member::ENDLESS).then(|| since.after_nanos(patience)) }
    }

    /// For how long patience has drained; `None` if it does not yet (F3).
    pub(super) fn held(&self, now: Time) -> Option<u64> {
        now.as_nanos().checked_sub(self.since.as_nanos())
    }
}
