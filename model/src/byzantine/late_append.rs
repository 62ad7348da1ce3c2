//! Reads in its first accesses, so that it is punctual and yet withholds its append, and appends in its k-th access.
//!
//! This breaks Algorithm 1 as printed (SPEC section 9). After its append it reads on and leaves by the mode of its
//! entries, so that nobody waits for it and its append is its only offence.

use super::conduct::Conduct;
use super::definition::{Definition, read_and_leave};
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::params::Params;
use crate::process::{Act, Behaviour, View, next_read};
use crate::types::{AccessNumber, ProcessId, Value};

/// Withholds its append until one of its later accesses.
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
        access >= process.from && process.append(access) == Some(&self.value)
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

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined, read};

    #[test]
    fn a_late_append_shows_by_its_number_and_its_value() {
        assert_eq!(fired("late-append(access=2, value=b)", vec![joined(), read(1), append(2, "b")]), 1);
        assert_eq!(fired("late-append(access=3, value=b)", vec![joined(), read(1), append(2, "b")]), 0);
        assert_eq!(fired("late-append(access=2, value=b)", vec![joined(), read(1), append(2, "a")]), 0);
    }
}
