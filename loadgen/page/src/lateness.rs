//! Which processes are late: those without an access in the first phase of their warp (SPEC F6, V4).

use stickycas_model::history::Event;
use stickycas_model::params::Params;
use stickycas_model::predicates::is_first_of_warp;
use stickycas_model::scheduler::Schedule;
use stickycas_model::types::{Phase, ProcessId, Round, WarpId};

/// Finds late processes, event by event, from the first event on.
#[derive(Clone, Debug)]
pub struct Lateness {
    /// The warps in the order of their first phases.
    first_round: Vec<WarpId>,
    /// Processes with an access in their first phase.
    punctual: Vec<bool>,
    /// So many phases of the first round have been looked at.
    passed: usize,
}

impl Lateness {
    /// Of an instance with these parameters, before its first event.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let order = Schedule::new(params).order_of(Round::FIRST);
        Self {
            first_round: (0..params.warps()).map(|slot| order.warp_at(slot)).collect(),
            punctual: vec![false; params.processes() as usize],
            passed: 0,
        }
    }

    /// The processes that this event shows to be late.
    pub fn observe(&mut self, params: &Params, event: &Event) -> Vec<ProcessId> {
        match event {
            // Its answers are still to come, so only the phases before it are over.
            Event::Stepped { phase, .. } | Event::Sealed { phase, .. } => self.pass(params, *phase),
            Event::Answered { process, phase, .. } if is_first_of_warp(params, *phase) => {
                if let Some(punctual) = self.punctual.get_mut(process.index()) {
                    *punctual = true;
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// All phases before this one are over.
    fn pass(&mut self, params: &Params, next: Phase) -> Vec<ProcessId> {
        let over = usize::try_from(next.get() - 1).unwrap_or(usize::MAX).min(self.first_round.len());
        let warps = self.first_round.get(self.passed..over).unwrap_or_default();
        self.passed = self.passed.max(over);
        let members = warps.iter().flat_map(|warp| params.members(*warp));
        members.filter(|process| !self.punctual[process.index()]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stickycas_model::access::{Answer, AppendAnswer};
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
}
