//! Proof case (d): appends in its first access a value that correct processes propose too, to make it the mode.
//!
//! The best value for an adversary is the weakest of Vc, which the fewest correct processes propose. It has to be
//! given beforehand: a process that reads first has missed the append window (A2). Whichever value wins, the decision
//! stays in Vc, as the paper says of this case.

use super::other_proposal::OtherProposal;
use super::parse::{Arguments, StrategyError};
use crate::types::Value;

/// Proposes a value of correct processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mimic {
    /// The value that it backs.
    pub value: Value,
}

impl OtherProposal for Mimic {
    const NAME: &'static str = "mimic";
    const USAGE: &'static str =
        "mimic(value=V): appends V, the value that the fewest correct ones propose (case d)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.required("value", Arguments::value)? })
    }

    fn value(&self) -> Option<&Value> {
        Some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, joined, read};

    #[test]
    fn mimicry_shows_in_the_value_of_the_first_access() {
        assert_eq!(fired("mimic(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired("mimic(value=b)", vec![joined(), read(1), append(2, "b")]), 0);
    }
}
