//! Proof case (c): appends in its first access the value that all colluding processes append.
//!
//! Otherwise it is a correct process, so that it costs nobody patience and commits no offence: to append a wrong
//! value is none (B2).

use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::process::{Behaviour, Correct};
use crate::types::{ProcessId, Value};

/// Proposes the common value of the colluding processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collude {
    /// The common value.
    pub value: Value,
}

impl Definition for Collude {
    const NAME: &'static str = "collude";
    const USAGE: &'static str =
        "collude(value=V): appends V in its first access, as all who collude do (case c)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.required("value", Arguments::value)? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![("value", value_text(&self.value))]
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Correct::new(self.value.clone()))
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.proposed(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined};

    #[test]
    fn collusion_shows_in_the_value_of_the_first_access() {
        assert_eq!(fired("collude(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired("collude(value=b)", vec![joined(), append(1, "a")]), 0);
    }
}
