//! Proof case (b): appends in its first access a value of its own, different from the values of all other processes.
//!
//! Otherwise it is a correct process: it reads and leaves by the true mode, costs nobody patience and commits no
//! offence (B2).

use super::definition::{Definition, own_value};
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::process::{Behaviour, Correct};
use crate::types::{ProcessId, Value};

/// Proposes a value of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinct {
    /// The value; without one, [`own_value`].
    pub value: Option<Value>,
}

impl Distinct {
    fn value(&self, me: ProcessId) -> Value {
        self.value.clone().unwrap_or_else(|| own_value(me))
    }
}

impl Definition for Distinct {
    const NAME: &'static str = "distinct";
    const USAGE: &'static str =
        "distinct or distinct(value=V): appends a value that nobody else has (case b)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.value("value")? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        self.value.iter().map(|value| ("value", value_text(value))).collect()
    }

    fn behaviour(&self, me: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Correct::new(self.value(me)))
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.proposed(&self.value(process.me))
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined};

    #[test]
    fn a_distinct_value_shows_in_the_first_access() {
        assert_eq!(fired("distinct", vec![joined(), append(1, "byzantine-1")]), 1);
        assert_eq!(fired("distinct", vec![joined(), append(1, "a")]), 0);
        assert_eq!(fired("distinct(value=a)", vec![joined(), append(1, "a")]), 1);
    }
}
