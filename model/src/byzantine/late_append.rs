//! Reads in its first accesses, so as to be punctual and yet withhold, and appends in its k-th.
//!
//! This is what breaks Algorithm 1 as printed (SPEC section 9). After its append it reads on and leaves by
//! the mode of what it read, so that nobody waits for it and its append is its only offence.

use super::read_and_leave;
use crate::process::{Act, Behaviour, View, next_read};
use crate::types::{AccessNumber, Value};

/// Withholds its append until this access.
#[derive(Clone, Debug)]
pub struct LateAppend {
    access: AccessNumber,
    value: Value,
}

impl LateAppend {
    /// Appends this value in this access, and reads in all others.
    #[must_use]
    pub fn new(access: AccessNumber, value: Value) -> Self {
        Self { access, value }
    }
}

impl Behaviour for LateAppend {
    fn act(&mut self, view: &View) -> Act {
        let next = view.answered + 1;
        if next < self.access.get() {
            // With nothing left to read it still takes its phases, from the end of what it holds.
            return Act::read(next_read(view).unwrap_or(view.end()));
        }
        if next == self.access.get() {
            return Act::append(&self.value);
        }
        read_and_leave(view, &self.value)
    }
}
