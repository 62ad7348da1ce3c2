//! Correct until a phase, then another strategy: the adversary that corrupts processes in the course of the
//! computation (paper, section 2, failure model).
//!
//! A process cannot see the phase that is open, but the schedule is public (W4): it knows the next phase of its
//! warp, and what it says next it says for that one. From the chosen phase on the other strategy has the say.
//! What has been done by then stands; a process that has appended does not do so a second time because its
//! new strategy would have begun with that.

use crate::process::{Act, Behaviour, Correct, View};
use crate::scheduler::Schedule;
use crate::types::{Phase, Value};

/// Follows Algorithm 1 until the adversary takes it over.
pub struct Adaptive {
    from: Phase,
    correct: Correct,
    then: Box<dyn Behaviour>,
}

impl Adaptive {
    /// Proposes this value, and is taken over by another behaviour from this phase on.
    #[must_use]
    pub fn new(from: Phase, proposal: Value, then: Box<dyn Behaviour>) -> Self {
        Self { from, correct: Correct::new(proposal), then }
    }
}

impl Behaviour for Adaptive {
    fn act(&mut self, view: &View) -> Act {
        let after = view.phase.map_or(Phase::FIRST, Phase::next);
        let next = Schedule::new(&view.params).next_phase_of(view.params.warp_of(view.me), after);
        if next >= self.from { self.then.act(view) } else { self.correct.act(view) }
    }
}
