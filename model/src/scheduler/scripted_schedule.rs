//! A schedule that is written phase by phase while it is walked, in any order at all: for [`crate::explore`],
//! which tries every warp for every phase.
//!
//! In such an order some warps may wait for ever. That is beyond W1 and W2, and intended: agreement is
//! promised for every order, so it must not rest on a fair scheduler.

use super::cached_schedule::PhaseOrder;
use super::warp_set::WarpSet;
use crate::params::Params;
use crate::types::{Phase, WarpId};

/// The warps of the phases that are scheduled so far.
#[derive(Clone, Debug)]
pub(crate) struct ScriptedSchedule {
    warps: Vec<WarpId>,
    /// The append window of each warp, by the warp's index.
    windows: Box<[Window]>,
    append_rounds: u32,
}

/// The append window of a warp (K1).
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// How many phases the warp has had.
    phases: u32,
    /// Its q-th phase, once that is scheduled.
    last: Option<Phase>,
}

impl ScriptedSchedule {
    /// For an instance with these parameters; no phase is scheduled yet.
    pub(crate) fn new(params: &Params) -> Self {
        let windows = vec![Window::default(); params.warps() as usize].into_boxed_slice();
        Self { warps: Vec::new(), windows, append_rounds: params.append_rounds() }
    }

    /// Schedules this warp for the next phase.
    pub(crate) fn push(&mut self, warp: WarpId) {
        let phase = self.end();
        self.warps.push(warp);
        let window = &mut self.windows[warp.index()];
        window.phases += 1;
        if window.phases == self.append_rounds {
            window.last = Some(phase);
        }
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

    fn is_append_phase(&self, phase: Phase) -> bool {
        let warp = self.warp_at(phase).unwrap_or(WarpId::FIRST);
        self.windows[warp.index()].last.is_none_or(|last| phase <= last)
    }

    fn append_phases_ended_before(&self, phase: Phase) -> bool {
        self.windows.iter().all(|window| window.last.is_some_and(|last| last < phase))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Order, ParamsSpec};
    use crate::scheduler::{CachedSchedule, Schedule};

    #[test]
    fn a_script_of_the_schedule_answers_as_the_schedule() {
        for (order, append_rounds) in Order::ALL.into_iter().flat_map(|order| [(order, 1), (order, 2)]) {
            let spec = ParamsSpec { order, append_rounds, ..ParamsSpec::new(7, 2, 1) };
            let params = Params::try_new(spec).unwrap();
            let mut real = CachedSchedule::new(Schedule::new(&params));
            let mut script = ScriptedSchedule::new(&params);
            let phases: Vec<Phase> = (1..=12).filter_map(Phase::new).collect();
            phases.iter().for_each(|phase| script.push(real.warp_of(*phase)));
            for &phase in &phases[..8] {
                assert_eq!(script.warp_of(phase), real.warp_of(phase));
                let of_window = script.is_append_phase(phase);
                assert_eq!(of_window, real.is_append_phase(phase), "{order:?}, phase {phase}");
                assert_eq!(script.append_phases_ended_before(phase), real.append_phases_ended_before(phase));
                let warp = real.warp_of(phase);
                assert_eq!(script.next_phase_of(warp, phase.next()), real.next_phase_of(warp, phase.next()));
            }
        }
    }

    #[test]
    fn in_any_order_a_window_ends_with_the_last_append_phase() {
        let [one, two] = [1, 2].map(|warp| WarpId::new(warp).unwrap());
        let scripted = |append_rounds, warps: &[WarpId]| {
            let spec = ParamsSpec { append_rounds, ..ParamsSpec::new(4, 2, 1) };
            let mut script = ScriptedSchedule::new(&Params::try_new(spec).unwrap());
            warps.iter().for_each(|warp| script.push(*warp));
            let phases = || (1..=warps.len() as u64).filter_map(Phase::new);
            let ended: Vec<bool> = phases().map(|phase| script.append_phases_ended_before(phase)).collect();
            let window: Vec<bool> = phases().map(|phase| script.is_append_phase(phase)).collect();
            (script, ended, window)
        };
        let (_, ended, window) = scripted(2, &[one, one, one, two, two, two]);
        assert_eq!(ended, [false, false, false, false, false, true]);
        assert_eq!(window, [true, true, false, true, true, false]);
        let (mut script, ended, window) = scripted(1, &[one, one, two, one]);
        assert_eq!(ended, [false, false, false, true]);
        assert_eq!(window, [true, false, true, false]);
        let mut only_two = WarpSet::all(2);
        only_two.remove(one);
        assert_eq!(script.next_phase_among(Phase::FIRST, &only_two), Phase::new(3).unwrap());
        assert_eq!(script.next_phase_of(two, Phase::FIRST), Phase::new(3).unwrap());
    }
}
