//! Proof case (d): appends in its first access a value that correct processes propose too, to make it the mode.
//!
//! It serves an adversary most to back the weakest value of Vc, the one that the fewest correct processes
//! propose. Which one that is has to be told beforehand: who reads first has missed the append window (A2).
//! Whoever wins by this, the decision stays in Vc, which is what the paper says of this case.

use crate::process::{Act, Behaviour, Correct, View};
use crate::types::Value;

/// Appends a value of others in its first access, then reads and leaves like a correct process.
#[derive(Clone, Debug)]
pub struct Mimic(Correct);

impl Mimic {
    /// Backs this value.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Correct::new(value))
    }
}

impl Behaviour for Mimic {
    fn act(&mut self, view: &View) -> Act {
        self.0.act(view)
    }
}
