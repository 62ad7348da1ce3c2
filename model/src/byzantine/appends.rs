//! Strategies that append when Algorithm 1 reads: `late-append`, `repeat-append` and `reader`.

use crate::params::Params;
use crate::process::{Act, Behaviour, View, mode, next_read};
use crate::types::{AccessNumber, ProcessId, Value};

use super::definition::{Definition, read_and_leave};
use super::observations::Conduct;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};

/// Reads in its first accesses, so that it is punctual and yet withholds its append, and appends in its k-th
/// access.
///
/// This breaks Algorithm 1 as printed (SPEC section 9). With q append rounds it may win with an append up to
/// its q-th access, as nobody can forbid (K1, B2); a later one is an offence. After its append it reads on
/// and leaves by the mode of its entries, so that nobody waits for it and it commits no other offence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateAppend {
    /// The number of the access that appends; 2 or more. All others read.
    pub access: AccessNumber,
    /// The value that it appends.
    pub value: Value,
}

impl Definition for LateAppend {
    const NAME: &'static str = "late-append";
    const USAGE: &'static str =
        "late-append(access=K, value=V): reads, and appends V only in its K-th access";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self {
            access: given.required("access", Arguments::later_access)?,
            value: given.required("value", Arguments::value)?,
        })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![("access", self.access.to_string()), ("value", value_text(&self.value))]
    }
}

impl Conduct for LateAppend {
    fn values(&self, _: ProcessId, _: &Params) -> Vec<Value> {
        vec![self.value.clone()]
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(self.clone())
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        let access = self.access.get();
        // Within the append rounds a correct process repeats its first append (K2).
        let is_own = process.is_within_rounds(access) && process.append(1) == Some(&self.value);
        access >= process.from && !is_own && process.executed_append(access) == Some(&self.value)
    }
}

impl Behaviour for LateAppend {
    fn act(&mut self, view: &View) -> Act {
        let next = view.answered + 1;
        if next < self.access.get() {
            // With nothing left to read it still takes its phases, from the end of its entries.
            return Act::read(next_read(view).unwrap_or(view.end()));
        }
        if next == self.access.get() {
            return Act::append(&self.value);
        }
        read_and_leave(view, &self.value)
    }
}

/// Appends again and again.
///
/// Algorithm 1 as printed leaves room for more than one append of a process (the list takes up to n entries,
/// and there are W first accesses). Under `first_access` no process wins twice, and each append after the
/// q-th access is answered LIMIT_REACHED and is an offence; so is another value before (A2, K1, B2). It stops
/// when a correct process would have read all that it needs, reads the list and leaves by its mode, so that
/// it costs nobody patience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatAppend {
    /// The value that it appends every time; without one, its proposal and then values that nobody else has.
    pub value: Option<Value>,
}

impl Definition for RepeatAppend {
    const NAME: &'static str = "repeat-append";
    const USAGE: &'static str =
        "repeat-append or repeat-append(value=V): appends in every access, V or ever new values";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.value("value")? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        self.value.iter().map(|value| ("value", value_text(value))).collect()
    }
}

impl Conduct for RepeatAppend {
    fn values(&self, me: ProcessId, params: &Params) -> Vec<Value> {
        vec![self.value.clone().unwrap_or_else(|| new_value(me, accesses(params)))]
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Appending { me, value: self.value.clone(), proposal: proposal.clone() })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        // Within the append rounds a correct process repeats its append too (K2).
        let mut numbers = process.from..process.next_access();
        numbers.any(|number| !process.is_within_rounds(number) && process.append(number).is_some())
    }
}

/// A value that no other access has.
fn new_value(me: ProcessId, number: u64) -> Value {
    Value::new(format!("byzantine-{me}-{number}").as_bytes()).expect("the text is not empty")
}

/// The accesses that a correct process needs: its appends and its reads.
fn accesses(params: &Params) -> u64 {
    u64::from(params.append_rounds()) + u64::from(params.reads())
}

struct Appending {
    me: ProcessId,
    value: Option<Value>,
    proposal: Value,
}

impl Appending {
    /// The value that the access of this number appends.
    fn value(&self, number: u64) -> Value {
        match &self.value {
            Some(value) => value.clone(),
            None if number == 1 => self.proposal.clone(),
            None => new_value(self.me, number),
        }
    }
}

impl Behaviour for Appending {
    fn act(&mut self, view: &View) -> Act {
        if view.answered < accesses(&view.params) {
            return Act::append(&self.value(view.answered + 1));
        }
        read_and_leave(view, &self.proposal)
    }
}

/// Reads first to see the others' values, then appends the value that could still turn the decision: the most
/// frequent one besides the mode.
///
/// Under `first_access` with one append round it comes too late for that, and its append is an offence (A2,
/// B2); with more, and under `open`, it is in time. Then it reads on and leaves by the mode, so that its
/// append is its only offence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reader;

impl Definition for Reader {
    const NAME: &'static str = "reader";
    const USAGE: &'static str = "reader: reads first, then appends the runner-up of what it has seen";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
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

/// The progress of the behaviour. It counts for itself, since the process may have been correct before.
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
    use super::super::test_events::{answered, append, fired, joined, read};

    #[test]
    fn a_late_append_shows_by_its_number_and_its_value() {
        let appended = |value| vec![joined(), read(1), append(2, value), answered(1, 1), answered(2, 3)];
        assert_eq!(fired("late-append(access=2, value=b)", appended("b")), 1);
        assert_eq!(fired("late-append(access=3, value=b)", appended("b")), 0);
        assert_eq!(fired("late-append(access=2, value=b)", appended("a")), 0);
        let waiting = vec![joined(), read(1), append(2, "b"), answered(1, 1)];
        assert_eq!(fired("late-append(access=2, value=b)", waiting), 0, "it was not executed");
    }

    #[test]
    fn repetition_shows_by_an_append_after_the_append_rounds() {
        assert_eq!(fired("repeat-append", vec![joined(), append(1, "a"), append(2, "a")]), 1);
        assert_eq!(fired("repeat-append", vec![joined(), append(1, "a"), read(2)]), 0);
    }

    #[test]
    fn a_reader_shows_by_a_read_and_an_append_right_after_it() {
        assert_eq!(fired("reader", vec![joined(), read(1), append(2, "b")]), 1);
        assert_eq!(fired("reader", vec![joined(), append(1, "a"), append(2, "b")]), 0);
        assert_eq!(fired("reader", vec![joined(), append(1, "a")]), 0);
    }
}
