//! Follows Algorithm 1, then stops: the failure that the paper's appendix calls a crash.

use crate::process::{Act, Behaviour, Correct, View};
use crate::types::{AccessNumber, Value};

/// Stops before this access, without a word: its warp waits for it until its patience is spent (F3).
#[derive(Clone, Debug)]
pub struct Crash {
    before: AccessNumber,
    correct: Correct,
}

impl Crash {
    /// Proposes this value, and stops before this access. Before the first one, it joins and that is all.
    #[must_use]
    pub fn new(before: AccessNumber, proposal: Value) -> Self {
        Self { before, correct: Correct::new(proposal) }
    }
}

impl Behaviour for Crash {
    fn act(&mut self, view: &View) -> Act {
        if view.answered + 1 >= self.before.get() { Act::Crash } else { self.correct.act(view) }
    }
}
