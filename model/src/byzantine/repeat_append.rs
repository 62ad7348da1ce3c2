//! Appends again and again.
//!
//! Algorithm 1 as printed leaves room for more than one append of a process (the list takes up to n entries, and
//! there are W first accesses); under `first_access` each append after the first is answered LIMIT_REACHED and is an
//! offence (A2, B2). It stops when a correct process would have read all that it needs, reads the list and leaves by
//! its mode, so that it costs nobody patience.

use super::conduct::Conduct;
use super::definition::{Definition, read_and_leave};
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::params::Params;
use crate::process::{Act, Behaviour, View};
use crate::types::{ProcessId, Value};

/// Appends in every access that a correct process would make: 1 + c of them.
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
        vec![self.value.clone().unwrap_or_else(|| new_value(me, u64::from(params.reads()) + 1))]
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Appending { me, value: self.value.clone(), proposal: proposal.clone() })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        (process.from.max(2)..process.next_access()).any(|number| process.append(number).is_some())
    }
}

/// A value that no other access has.
fn new_value(me: ProcessId, number: u64) -> Value {
    Value::new(format!("byzantine-{me}-{number}").as_bytes()).expect("the text is not empty")
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
        if view.answered <= u64::from(view.params.reads()) {
            return Act::append(&self.value(view.answered + 1));
        }
        read_and_leave(view, &self.proposal)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined, read};

    #[test]
    fn repetition_shows_by_an_append_after_the_first_access() {
        assert_eq!(fired("repeat-append", vec![joined(), append(1, "a"), append(2, "a")]), 1);
        assert_eq!(fired("repeat-append", vec![joined(), append(1, "a"), read(2)]), 0);
    }
}
