//! A schedule that is written phase by phase while it is walked, in any order at all: for [`crate::explore`],
//! which tries every warp for every phase.
//!
//! In such an order some warps may wait for ever. That is beyond W1 and W2, and intended: agreement is
//! promised for every order, so it must not rest on a fair scheduler.

use super::cached_schedule::PhaseOrder;
use super::warp_set::WarpSet;
use crate::types::{Phase, WarpId};

/// The warps of the phases that are scheduled so far.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedSchedule {
    warps: Vec<WarpId>,
    /// The first phase of each warp, by the warp's index.
    first: Box<[Option<Phase>]>,
}

impl ScriptedSchedule {
    /// For so many warps; no phase is scheduled yet.
    pub(crate) fn new(warps: u32) -> Self {
        Self { warps: Vec::new(), first: vec![None; warps as usize].into_boxed_slice() }
    }

    /// Schedules this warp for the next phase.
    pub(crate) fn push(&mut self, warp: WarpId) {
        let phase = self.end();
        self.warps.push(warp);
        self.first[warp.index()].get_or_insert(phase);
    }

    /// The first phase that is not scheduled yet.
    fn end(&self) -> Phase {
        Phase::new(self.warps.len() as u64 + 1).expect("one more than a number is not zero")
    }

    /// The warp of this phase, if it is scheduled.
    fn warp_at(&self, phase: Phase) -> Option<WarpId> {
        let index = usize::try_from(phase.get() - 1).unwrap_or(usize::MAX);
        self.warps.get(index).copied()
    }

    fn next_phase(&self, from: Phase, wanted: impl Fn(WarpId) -> bool) -> Phase {
        let mut phases = (from.get()..self.end().get()).filter_map(Phase::new);
        phases.find(|phase| self.warp_at(*phase).is_some_and(&wanted)).unwrap_or(self.end())
    }
}

/// Where a warp has no further phase, the first phase that is not scheduled yet stands for it.
impl PhaseOrder for ScriptedSchedule {
    /// A phase that is not scheduled yet must not open; warp 1 stands for its warp.
    fn warp_of(&mut self, phase: Phase) -> WarpId {
        self.warp_at(phase).unwrap_or(WarpId::FIRST)
    }

    fn next_phase_of(&mut self, warp: WarpId, from: Phase) -> Phase {
        self.next_phase(from, |other| other == warp)
    }

    fn next_phase_among(&mut self, from: Phase, warps: &WarpSet) -> Phase {
        self.next_phase(from, |warp| warps.contains(warp))
    }

    fn is_first(&self, phase: Phase) -> bool {
        let warp = self.warp_at(phase).unwrap_or(WarpId::FIRST);
        self.first[warp.index()] == Some(phase)
    }

    fn all_began_before(&self, phase: Phase) -> bool {
        self.first.iter().all(|first| first.is_some_and(|first| first < phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Order, Params, ParamsSpec};
    use crate::scheduler::{CachedSchedule, Schedule};

    #[test]
    fn a_script_of_the_schedule_answers_as_the_schedule() {
        for order in [Order::Ascending, Order::Descending, Order::Shuffled] {
            let params = Params::try_new(ParamsSpec { order, ..ParamsSpec::new(7, 2, 1) }).unwrap();
            let mut real = CachedSchedule::new(Schedule::new(&params));
            let mut script = ScriptedSchedule::new(params.warps());
            let phases: Vec<Phase> = (1..=12).filter_map(Phase::new).collect();
            phases.iter().for_each(|phase| script.push(real.warp_of(*phase)));
            for &phase in &phases[..8] {
                assert_eq!(script.warp_of(phase), real.warp_of(phase));
                assert_eq!(script.is_first(phase), real.is_first(phase), "{order:?}, phase {phase}");
                assert_eq!(script.all_began_before(phase), real.all_began_before(phase));
                let warp = real.warp_of(phase);
                assert_eq!(script.next_phase_of(warp, phase.next()), real.next_phase_of(warp, phase.next()));
            }
        }
    }

    #[test]
    fn in_any_order_all_warps_began_with_the_last_first_phase() {
        let [one, two] = [1, 2].map(|warp| WarpId::new(warp).unwrap());
        let mut script = ScriptedSchedule::new(2);
        [one, one, two, one].into_iter().for_each(|warp| script.push(warp));
        let phases = || (1..=4).filter_map(Phase::new);
        let began: Vec<bool> = phases().map(|phase| script.all_began_before(phase)).collect();
        assert_eq!(began, [false, false, false, true]);
        let first: Vec<bool> = phases().map(|phase| script.is_first(phase)).collect();
        assert_eq!(first, [true, false, true, false]);
        let mut only_two = WarpSet::all(2);
        only_two.remove(one);
        assert_eq!(script.next_phase_among(Phase::FIRST, &only_two), Phase::new(3).unwrap());
        assert_eq!(script.next_phase_of(two, Phase::FIRST), Phase::new(3).unwrap());
    }
}
