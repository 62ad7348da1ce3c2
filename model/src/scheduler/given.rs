//! A schedule that is given phase by phase while it is walked, in any order at all: for [`crate::explore`], which
//! tries every warp for every phase.
//!
//! Such an order may let some warps wait for ever. That is beyond W1 and W2, and it is meant to be: what is
//! promised whatever the order is (agreement) must not rest on the scheduler being fair.

use super::WarpSet;
use crate::types::{Phase, WarpId};

/// The warps of the phases that were given so far.
#[derive(Clone, Debug)]
pub(super) struct Given {
    warps: Vec<WarpId>,
    /// The first phase of each warp, by the warp's index.
    first: Box<[Option<Phase>]>,
}

impl Given {
    /// For so many warps; no phase is given yet.
    pub(super) fn new(warps: u32) -> Self {
        Self { warps: Vec::new(), first: vec![None; warps as usize].into_boxed_slice() }
    }

    /// Gives the next phase to this warp.
    pub(super) fn push(&mut self, warp: WarpId) {
        let phase = self.end();
        self.warps.push(warp);
        self.first[warp.index()].get_or_insert(phase);
    }

    /// The first phase that is not given yet.
    fn end(&self) -> Phase {
        Phase::new(self.warps.len() as u64 + 1).expect("one more than a number is not zero")
    }

    /// The warp of this phase. Of one that is not given yet nothing is known; it must not be opened.
    pub(super) fn warp_of(&self, phase: Phase) -> WarpId {
        let index = usize::try_from(phase.get() - 1).unwrap_or(usize::MAX);
        self.warps.get(index).copied().unwrap_or(WarpId::FIRST)
    }

    /// The first phase from `from` on whose warp is one of these; the first that is not given if there is none.
    pub(super) fn next_phase_among(&self, from: Phase, warps: &WarpSet) -> Phase {
        self.next_phase(from, |warp| warps.contains(warp))
    }

    /// The first phase of this warp from `from` on; the first that is not given if there is none.
    pub(super) fn next_phase_of(&self, warp: WarpId, from: Phase) -> Phase {
        self.next_phase(from, |other| other == warp)
    }

    fn next_phase(&self, from: Phase, wanted: impl Fn(WarpId) -> bool) -> Phase {
        let mut phases = (from.get()..self.end().get()).filter_map(Phase::new);
        phases.find(|phase| wanted(self.warp_of(*phase))).unwrap_or(self.end())
    }

    /// The first phase of this warp, once it is given.
    pub(super) fn first_phase(&self, warp: WarpId) -> Option<Phase> {
        self.first[warp.index()]
    }

    /// Whether the first phase of every warp is before this one.
    pub(super) fn all_began_before(&self, phase: Phase) -> bool {
        self.first.iter().all(|first| first.is_some_and(|first| first < phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Order, Params, ParamsSpec};
    use crate::scheduler::{CachedSchedule, Schedule};

    #[test]
    fn given_what_the_schedule_says_a_calendar_answers_what_the_schedule_answers() {
        for order in [Order::Ascending, Order::Descending, Order::Shuffled] {
            let spec = ParamsSpec { order, ..ParamsSpec::new(7, 2, 1) };
            let mut real = CachedSchedule::new(Schedule::new(&Params::try_new(spec).unwrap()));
            let mut given = real.clone().into_given();
            let phases: Vec<Phase> = (1..=12).filter_map(Phase::new).collect();
            phases.iter().for_each(|phase| given.give(real.warp_of(*phase)));
            for &phase in &phases[..8] {
                assert_eq!(given.warp_of(phase), real.warp_of(phase));
                assert_eq!(given.is_first(phase), real.is_first(phase), "{order:?}, phase {phase}");
                assert_eq!(given.all_began_before(phase), real.all_began_before(phase));
                let warp = real.warp_of(phase);
                assert_eq!(given.next_phase_of(warp, phase.next()), real.next_phase_of(warp, phase.next()));
            }
        }
    }

    #[test]
    fn in_any_order_a_first_phase_is_the_warps_own_and_all_began_with_the_last_of_them() {
        let [one, two] = [1, 2].map(|warp| WarpId::new(warp).unwrap());
        let mut given = Given::new(2);
        [one, one, two, one].into_iter().for_each(|warp| given.push(warp));
        let began: Vec<bool> =
            (1..=4).filter_map(Phase::new).map(|phase| given.all_began_before(phase)).collect();
        assert_eq!(began, [false, false, false, true]);
        assert_eq!(given.first_phase(two), Phase::new(3));
        let mut only_two = WarpSet::all(2);
        only_two.remove(one);
        assert_eq!(given.next_phase_among(Phase::FIRST, &only_two), Phase::new(3).unwrap());
        assert_eq!(given.next_phase_of(two, Phase::FIRST), Phase::new(3).unwrap());
    }
}
