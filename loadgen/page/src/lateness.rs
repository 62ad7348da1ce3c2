//! Which processes are late: those without an access in one of the append rounds of their warp, and without
//! an entry (SPEC F6, K3, V4).

use stickycas_model::access::{Answer, AppendAnswer};
use stickycas_model::history::Event;
use stickycas_model::params::Params;
use stickycas_model::predicates::{is_append_phase, is_late};
use stickycas_model::scheduler::Schedule;
use stickycas_model::types::{Phase, ProcessId, Round, WarpId};

/// Finds late processes, event by event, from the first event on.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// The warps in the order of their last append phases.
    last_round: Vec<WarpId>,
    /// Of each process in how many append phases it had an access, and whether it won.
    used: Vec<(u64, bool)>,
    /// So many phases of the last append round have been looked at.
    passed: usize,
}

impl Lateness {
    /// Of an instance with these parameters, before its first event.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let last = Round::new(params.append_rounds().into()).unwrap_or(Round::FIRST);
        let order = Schedule::new(params).order_of(last);
        Self {
            last_round: (0..params.warps()).map(|slot| order.warp_at(slot)).collect(),
            used: vec![(0, false); params.processes() as usize],
            passed: 0,
        }
    }

    /// The processes that this event shows to be late.
    pub fn observe(&mut self, params: &Params, event: &Event) -> Vec<ProcessId> {
        match event {
            // Its answers are still to come, so only the phases before it are over.
            Event::Stepped { phase, .. } | Event::Sealed { phase, .. } => self.pass(params, *phase),
            Event::Answered { process, phase, answer, .. } if is_append_phase(params, *phase) => {
                if let Some((used, won)) = self.used.get_mut(process.index()) {
                    *used += 1;
                    *won |= matches!(answer, Answer::Append(AppendAnswer::Success(_)));
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// All phases before this one are over.
    fn pass(&mut self, params: &Params, next: Phase) -> Vec<ProcessId> {
        let rounds = u64::from(params.append_rounds());
        let over = (next.get() - 1).saturating_sub(u64::from(params.warps()) * (rounds - 1));
        let over = usize::try_from(over).unwrap_or(usize::MAX).min(self.last_round.len());
        let warps = self.last_round.get(self.passed..over).unwrap_or_default();
        self.passed = self.passed.max(over);
        let members = warps.iter().flat_map(|warp| params.members(*warp));
        let late = |process: &ProcessId| {
            let (used, won) = self.used[process.index()];
            is_late(params, won, rounds, used)
        };
        members.filter(late).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::params::ParamsSpec;
    use stickycas_model::types::AccessNumber;

    #[test]
    fn who_has_no_access_in_the_first_phase_of_its_warp_is_late() {
        let params = Params::try_new(ParamsSpec::new(6, 2, 2)).unwrap();
        let process = |number| ProcessId::new(number).unwrap();
        let phase = |number| Phase::new(number).unwrap();
        let stepped = |number| Event::Stepped { phase: phase(number), warp: WarpId::FIRST, length: 0 };
        let answered = |of, number| Event::Answered {
            process: process(of),
            number: AccessNumber::FIRST,
            phase: phase(number),
            answer: Answer::Append(AppendAnswer::Failed),
        };
        let mut lateness = Lateness::new(&params);
        let mut observe = |event| lateness.observe(&params, &event);
        assert_eq!(observe(stepped(1)), []);
        assert_eq!(observe(answered(1, 1)), []);
        // Phase 2 passed without a step.
        assert_eq!(observe(stepped(3)), [2, 3, 4].map(process));
        assert_eq!(observe(answered(5, 3)), []);
        assert_eq!(observe(answered(4, 5)), [], "too late");
        assert_eq!(observe(Event::Sealed { phase: phase(4), length: 1 }), [process(6)]);
        assert_eq!(observe(stepped(9)), [], "each is told once");
    }

    #[test]
    fn who_missed_an_append_round_is_late_unless_it_won() {
        let spec = ParamsSpec { append_rounds: 2, ..ParamsSpec::new(4, 2, 2) };
        let params = Params::try_new(spec).unwrap();
        let process = |number| ProcessId::new(number).unwrap();
        let phase = |number| Phase::new(number).unwrap();
        let answered = |of, number, answer| Event::Answered {
            process: process(of),
            number: AccessNumber::FIRST,
            phase: phase(number),
            answer: Answer::Append(answer),
        };
        let stepped = |number| Event::Stepped { phase: phase(number), warp: WarpId::FIRST, length: 0 };
        let won = AppendAnswer::Success(stickycas_model::types::Position::new(0));
        let mut lateness = Lateness::new(&params);
        let mut observe = |event| lateness.observe(&params, &event);
        assert_eq!(observe(answered(1, 1, won)), []);
        assert_eq!(observe(answered(3, 2, AppendAnswer::Failed)), []);
        assert_eq!(observe(stepped(3)), [], "there is another append round");
        assert_eq!(observe(answered(2, 3, AppendAnswer::Failed)), []);
        assert_eq!(observe(stepped(4)), [process(2)], "it missed phase 1");
        assert_eq!(observe(answered(3, 4, AppendAnswer::Failed)), []);
        assert_eq!(observe(answered(4, 4, won)), [], "it missed phase 2, and won");
        assert_eq!(observe(stepped(5)), []);
    }
}
