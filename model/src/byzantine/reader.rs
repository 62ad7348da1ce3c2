//! Reads first to see the others' values, then appends what it makes of them.
//!
//! The strongest thing that it can append is what could still turn the decision: the strongest value besides
//! the mode. Under `first_access` it comes too late for that, and its append is an offence (A2, B2); under
//! `open` it does not. Then it reads on and leaves by the mode, so that its append is its only offence.

use super::read_and_leave;
use crate::process::{Act, Behaviour, View, mode, next_read};
use crate::types::Value;

/// Reads once, appends the runner-up of what it has seen, and reads on.
#[derive(Clone, Debug)]
pub struct Reader {
    proposal: Value,
    progress: Progress,
}

/// What it has done. It counts for itself, since an earlier part of its life may have been correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Nothing,
    Read,
    Appended,
}

impl Reader {
    /// Appends this value if it has seen fewer than two to choose from.
    #[must_use]
    pub fn new(proposal: Value) -> Self {
        Self { proposal, progress: Progress::Nothing }
    }

    /// The most frequent of the values that it has seen, save the mode.
    fn runner_up(&self, view: &View) -> Value {
        let first = mode(view.counted());
        let others = view.counted().iter().filter(|value| Some(*value) != first);
        mode(others).unwrap_or(&self.proposal).clone()
    }
}

impl Behaviour for Reader {
    fn act(&mut self, view: &View) -> Act {
        match self.progress {
            Progress::Nothing => {
                self.progress = Progress::Read;
                Act::read(next_read(view).unwrap_or(view.end()))
            }
            Progress::Read => {
                self.progress = Progress::Appended;
                Act::append(&self.runner_up(view))
            }
            Progress::Appended => read_and_leave(view, &self.proposal),
        }
    }
}
