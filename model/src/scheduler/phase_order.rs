//! What a machine needs to know of the order of phases.

use super::warp_set::WarpSet;
use crate::types::{Phase, WarpId};

/// An order of phases, as [`Machine`](crate::machine::Machine) goes through it. Instances have a [`CachedSchedule`],
/// which is the default everywhere; only the exhaustive search of [`crate::explore`] has another.
///
/// [`CachedSchedule`]: super::CachedSchedule
pub trait PhaseOrder {
    /// The warp that this phase belongs to.
    fn warp_of(&mut self, phase: Phase) -> WarpId;

    /// The first phase of this warp that is `from` or later.
    fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase;

    /// The first phase from `from` on whose warp is one of these; `from` itself if there are none.
    fn next_phase_among(&mut self, from: Phase, warps: &WarpSet) -> Phase;

    /// Whether this phase is the first of its warp, which is the warp's append window under `first_access` (A2).
    fn is_first(&self, phase: Phase) -> bool;

    /// Whether every warp has had its first phase before this one: under `first_access` the list is sealed (A2).
    fn all_began_before(&self, phase: Phase) -> bool;
}
