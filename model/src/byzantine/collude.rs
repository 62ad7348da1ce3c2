//! Proof case (c): appends in its first access what all who collude append.
//!
//! Then it reads and leaves by the true mode, as a correct process does, so that it costs nobody patience and
//! commits no offence: to append a wrong value is none (B2).

use crate::process::{Act, Behaviour, Correct, View};
use crate::types::Value;

/// Appends the common value in its first access, then reads and leaves like a correct process.
#[derive(Clone, Debug)]
pub struct Collude(Correct);

impl Collude {
    /// Colludes for this value.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Correct::new(value))
    }
}

impl Behaviour for Collude {
    fn act(&mut self, view: &View) -> Act {
        self.0.act(view)
    }
}
