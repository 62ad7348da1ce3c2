//! Proof case (b): appends in its first access a value of its own, different from the values of all other processes.
//!
//! Otherwise it is a correct process: it reads and leaves by the true mode, costs nobody patience and commits no
//! offence (B2).

use super::other_proposal::OtherProposal;
use super::parse::{Arguments, StrategyError};
use crate::types::Value;

/// Proposes a value of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distinct {
    /// The value; without one, [`own_value`](super::own_value).
    pub value: Option<Value>,
}

impl OtherProposal for Distinct {
    const NAME: &'static str = "distinct";
    const USAGE: &'static str =
        "distinct or distinct(value=V): appends a value that nobody else has (case b)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.value("value")? })
    }

    fn value(&self) -> Option<&Value> {
        self.value.as_ref()
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
