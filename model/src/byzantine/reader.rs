//! Reads first to see the others' values, then appends the value that could still turn the decision: the most
//! frequent one besides the mode.
//!
//! Under `first_access` it comes too late for that, and its append is an offence (A2, B2); under `open` it is in time.
//! Then it reads on and leaves by the mode, so that its append is its only offence.

use super::conduct::Conduct;
use super::definition::{Definition, read_and_leave};
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError};
use crate::process::{Act, Behaviour, View, mode, next_read};
use crate::types::{ProcessId, Value};

/// Reads once, appends the runner-up of the entries that it read, and reads on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader;

impl Definition for Reader {
    const NAME: &'static str = "reader";
    const USAGE: &'static str = "reader: reads first, then appends the runner-up of what it has seen";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

impl Conduct for Reader {
    fn behaviour(&self, _: ProcessId, proposal: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Reading { proposal: proposal.clone(), progress: Progress::Nothing })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        let first = process.from;
        first < process.next_access()
            && process.append(first).is_none()
            && process.append(first + 1).is_some()
    }
}

struct Reading {
    /// Appended where there are fewer than two values to choose from.
    proposal: Value,
    progress: Progress,
}

/// What the behaviour has done. It counts for itself, since the process may have been correct before.
#[derive(Clone, Copy)]
enum Progress {
    Nothing,
    Read,
    Appended,
}

impl Reading {
    /// The most frequent of the values that it has read, except the mode.
    fn runner_up(&self, view: &View) -> Value {
        let counted = view.counted();
        let first = mode(&counted);
        let others = counted.iter().filter(|value| Some(*value) != first);
        mode(others).unwrap_or(&self.proposal).clone()
    }
}

impl Behaviour for Reading {
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

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined, read};

    #[test]
    fn a_reader_shows_by_a_read_and_an_append_right_after_it() {
        assert_eq!(fired("reader", vec![joined(), read(1), append(2, "b")]), 1);
        assert_eq!(fired("reader", vec![joined(), append(1, "a"), append(2, "b")]), 0);
        assert_eq!(fired("reader", vec![joined(), append(1, "a")]), 0);
    }
}
