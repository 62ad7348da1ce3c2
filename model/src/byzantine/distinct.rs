//! Proof case (b): appends in its first access a value of its own, different from every other process's.
//!
//! Then it reads and leaves by the true mode, for the same reasons as [`super::Collude`].

use super::own_value;
use crate::process::{Act, Behaviour, Correct, View};
use crate::types::{ProcessId, Value};

/// Appends a value of its own in its first access, then reads and leaves like a correct process.
#[derive(Clone, Debug)]
pub struct Distinct(Correct);

impl Distinct {
    /// Appends this value, or without one [`own_value`].
    #[must_use]
    pub fn new(me: ProcessId, value: Option<Value>) -> Self {
        Self(Correct::new(value.unwrap_or_else(|| own_value(me))))
    }
}

impl Behaviour for Distinct {
    fn act(&mut self, view: &View) -> Act {
        self.0.act(view)
    }
}
