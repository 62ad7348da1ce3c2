//! The schedule as the machine walks it: phase by phase, with the shuffled order of two rounds at hand.

use super::given::Given;
use super::{Arrangement, RoundOrder, Schedule, WarpSet};
use crate::params::Order;
use crate::types::{Phase, Round, WarpId};

/// A [`Schedule`] that remembers the order of two rounds, one odd and one even, so that walking phases one by
/// one and looking into the following round cost O(1) each, and O(W) once per round if the order is shuffled.
///
/// Answers exactly what the schedule answers, in whatever order it is asked. It keeps no memory for the other
/// orders, and none before it is first asked.
#[derive(Clone, Debug)]
pub struct CachedSchedule {
    schedule: Schedule,
    rounds: [Option<RoundOrder>; 2],
    /// Takes the schedule's place in an exhaustive search.
    given: Option<Box<Given>>,
}

impl CachedSchedule {
    /// A calendar of this schedule.
    #[must_use]
    pub const fn new(schedule: Schedule) -> Self {
        Self { schedule, rounds: [None, None], given: None }
    }

    /// Like this calendar, but phases are given one by one by [`CachedSchedule::give`], and not by the schedule.
    pub(crate) fn into_given(self) -> Self {
        Self { given: Some(Box::new(Given::new(self.schedule.warps))), ..self }
    }

    /// Gives the next phase to this warp. Only for a calendar made by [`CachedSchedule::into_given`].
    pub(crate) fn give(&mut self, warp: WarpId) {
        self.given.as_mut().expect("only the search gives phases, and to its own calendars").push(warp);
    }

    /// The schedule.
    #[must_use]
    pub const fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// See [`Schedule::warp_of`].
    pub fn warp_of(&mut self, phase: Phase) -> WarpId {
        if let Some(given) = &self.given {
            return given.warp_of(phase);
        }
        let slot = self.schedule.slot_of(phase);
        match self.schedule.order {
            // Every round is the same.
            Order::Ascending => Arrangement::Ascending.warp_at(slot),
            Order::Descending => Arrangement::Descending { warps: self.schedule.warps }.warp_at(slot),
            Order::Shuffled => self.round(self.schedule.round_of(phase)).warp_at(slot),
        }
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

    /// See [`Schedule::next_phase_of`].
    pub fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase {
        if let Some(given) = &self.given {
            return given.next_phase_of(warp, from);
        }
        let round = self.schedule.round_of(from);
        let phase = self.phase_of(warp, round);
        if phase >= from { phase } else { self.phase_of(warp, round.next()) }
    }

    /// The first phase from `from` on whose warp is one of these; `from` itself if there are none. Costs
    /// a few operations, or O(W) if the order is shuffled.
    pub fn next_phase_among(&mut self, from: Phase, warps: &WarpSet) -> Phase {
        if let Some(given) = &self.given {
            return given.next_phase_among(from, warps);
        }
        let here = self.warp_of(from);
        if warps.contains(here) {
            return from;
        }
        let next = match self.schedule.order {
            Order::Ascending => warps.next_up(here).or_else(|| warps.first()),
            Order::Descending => warps.next_down(here).or_else(|| warps.last()),
            Order::Shuffled => {
                let round = u64::from(self.schedule.warps);
                // Every warp comes within this round and the next.
                let phases = (from.get()..).take(2 * round as usize).filter_map(Phase::new);
                phases.map(|phase| self.warp_of(phase)).find(|&warp| warps.contains(warp))
            }
        };
        next.map_or(from, |warp| self.next_phase_of(warp, from))
    }

    /// Whether this phase is the first of its warp, which is the warp's append window under `first_access` (A2).
    #[must_use]
    pub fn is_first(&self, phase: Phase) -> bool {
        match &self.given {
            // Round 1 is the first W phases, and every warp has exactly one of them.
            None => phase.get() <= u64::from(self.schedule.warps),
            Some(given) => given.first_phase(given.warp_of(phase)) == Some(phase),
        }
    }

    /// Whether every warp has had its first phase before this one: under `first_access` the list is sealed (A2).
    #[must_use]
    pub fn all_began_before(&self, phase: Phase) -> bool {
        match &self.given {
            None => phase.get() > u64::from(self.schedule.warps),
            Some(given) => given.all_began_before(phase),
        }
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
