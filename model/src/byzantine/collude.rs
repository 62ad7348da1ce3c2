//! Proof case (c): appends in its first access the value that all colluding processes append.
//!
//! Otherwise it is a correct process, so that it costs nobody patience and commits no offence: to append a wrong
//! value is none (B2).

use super::other_proposal::OtherProposal;
use super::parse::{Arguments, StrategyError};
use crate::types::Value;

/// Proposes the common value of the colluding processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collude {
    /// The common value.
    pub value: Value,
}

impl OtherProposal for Collude {
    const NAME: &'static str = "collude";
    const USAGE: &'static str =
        "collude(value=V): appends V in its first access, as all who collude do (case c)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.required("value", Arguments::value)? })
    }

    fn value(&self) -> Option<&Value> {
        Some(&self.value)
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
