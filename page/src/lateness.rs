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
            Event::Stepped { phase, .. } => self.pass(params, *phase),
            Event::Sealed { phase, .. } => self.pass(params, *phase),
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
