//! The order of phases as a machine asks for it, and the schedule that nearly all have: it keeps the shuffled
//! order of two rounds, for a walk through the phases.

use crate::params::Order;
use crate::types::{Phase, Round, WarpId};

use super::schedule::{Arrangement, RoundOrder, Schedule};
use super::warp_set::WarpSet;

/// An order of phases, as [`Machine`](crate::machine::Machine) goes through it. Instances have a
/// [`CachedSchedule`], which is the default everywhere; only the exhaustive search of [`crate::explore`] has
/// another.
///
/// [`CachedSchedule`]: super::CachedSchedule
pub trait PhaseOrder {
    /// The warp that this phase belongs to.
    fn warp_of(&mut self, phase: Phase) -> WarpId;

    /// The first phase of this warp that is `from` or later.
    fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase;

    /// The first phase from `from` on whose warp is one of these; `from` itself if there are none.
    fn next_phase_among(&mut self, from: Phase, warps: &WarpSet) -> Phase;

    /// Whether this phase is one of the first q of its warp, which are the warp's append window under
    /// `first_access` (A2, K1).
    fn is_append_phase(&self, phase: Phase) -> bool;

    /// Whether every warp has had its first q phases before this one: under `first_access` the list is sealed
    /// (A2, K1).
    fn append_phases_ended_before(&self, phase: Phase) -> bool;
}

/// A [`Schedule`] that remembers the order of two rounds, one odd and one even, so that walking phases one by
/// one and looking into the following round cost O(1) each, and O(W) once per round if the order is shuffled.
///
/// It returns exactly what the schedule returns, in any order of calls. It keeps no memory for the other
/// orders, and none before the first call.
#[derive(Clone, Debug)]
pub struct CachedSchedule {
    schedule: Schedule,
    rounds: [Option<RoundOrder>; 2],
}

impl CachedSchedule {
    /// A cache of this schedule.
    #[must_use]
    pub const fn new(schedule: Schedule) -> Self {
        Self { schedule, rounds: [None, None] }
    }

    /// The schedule.
    #[must_use]
    pub const fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// See [`Schedule::phase_of`].
    pub fn phase_of(&mut self, warp: WarpId, round: Round) -> Phase {
        let slot = self.round(round).slot_of(warp);
        self.schedule.phase_at(round, slot)
    }

    /// See [`Schedule::first_phase`].
    pub fn first_phase(&mut self, warp: WarpId) -> Phase {
        self.phase_of(warp, Round::FIRST)
    }

    /// The order of a round. Consecutive rounds never displace each other.
    fn round(&mut self, round: Round) -> &RoundOrder {
        let place = &mut self.rounds[(round.get() % 2) as usize];
        if place.as_ref().is_some_and(|order| order.round() != round) {
            *place = None;
        }
        place.get_or_insert_with(|| self.schedule.order_of(round))
    }
}

/// See the methods of [`Schedule`].
impl PhaseOrder for CachedSchedule {
    #[inline]
    fn warp_of(&mut self, phase: Phase) -> WarpId {
        let slot = self.schedule.slot_of(phase);
        match self.schedule.order {
            // Every round is the same.
            Order::Ascending => Arrangement::Ascending.warp_at(slot),
            Order::Descending => Arrangement::Descending { warps: self.schedule.warps() }.warp_at(slot),
            Order::Shuffled => self.round(self.schedule.round_of(phase)).warp_at(slot),
        }
    }

    fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase {
        let round = self.schedule.round_of(from);
        let phase = self.phase_of(warp, round);
        if phase >= from { phase } else { self.phase_of(warp, round.next()) }
    }

    /// Costs a few operations, or O(W) if the order is shuffled.
    fn next_phase_among(&mut self, from: Phase, warps: &WarpSet) -> Phase {
        let here = self.warp_of(from);
        if warps.contains(here) {
            return from;
        }
        let next = match self.schedule.order {
            Order::Ascending => warps.next_up(here).or_else(|| warps.first()),
            Order::Descending => warps.next_down(here).or_else(|| warps.last()),
            Order::Shuffled => {
                let round = u64::from(self.schedule.warps());
                // Every warp comes within this round and the next.
                let phases = (from.get()..).take(2 * round as usize).filter_map(Phase::new);
                phases.map(|phase| self.warp_of(phase)).find(|&warp| warps.contains(warp))
            }
        };
        next.map_or(from, |warp| self.next_phase_of(warp, from))
    }

    #[inline]
    fn is_append_phase(&self, phase: Phase) -> bool {
        phase.get() <= self.schedule.end_of_append_rounds()
    }

    #[inline]
    fn append_phases_ended_before(&self, phase: Phase) -> bool {
        phase.get() > self.schedule.end_of_append_rounds()
    }
}
