//! Follows Algorithm 1, and reports another decision than the true one.
//!
//! Under `first_access` the server compares reports with the mode of the sealed list and files an offence
//! (D3); under `open` nobody can prove the lie. It deceives no process in either case: a correct process
//! decides from the entries that it read, never from the reports of others.

use super::definition::{Definition, own_value};
use super::observations::Conduct;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::params::Params;
use crate::process::{Act, Behaviour, Correct, View};
use crate::types::{ProcessId, Value};

/// Reports a false decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Liar {
    /// The value that it reports; without one, [`own_value`]. Should it be the true decision, another value.
    pub value: Option<Value>,
}

impl Definition for Liar {
    const NAME: &'static str = "liar";
    const USAGE: &'static str = "liar or liar(value=V): follows the algorithm, and reports a false decision";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { value: given.value("value")? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        self.value.iter().map(|value| ("value", value_text(value))).collect()
    }
}

impl Conduct for Liar {
    fn values(&self, me: ProcessId, _: &Params) -> Vec<Value> {
        vec![self.lie(me)]
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Lying { correct: Correct::new(proposal.clone()), lie: self.lie(me) })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.decision().is_some_and(|decision| Some(decision) != process.list_mode())
    }
}

impl Liar {
    fn lie(&self, me: ProcessId) -> Value {
        self.value.clone().unwrap_or_else(|| own_value(me))
    }
}

struct Lying {
    correct: Correct,
    lie: Value,
}

impl Lying {
    fn other_than(&self, truth: &Value) -> Value {
        if self.lie != *truth {
            return self.lie.clone();
        }
        // As short as any value may have to be.
        let other: &[u8] = if truth.as_bytes() == b"0" { b"1" } else { b"0" };
        Value::new(other).expect("it has bytes")
    }
}

impl Behaviour for Lying {
    fn act(&mut self, view: &View) -> Act {
        match self.correct.act(view) {
            Act::Decide(truth) => Act::Decide(self.other_than(&truth)),
            act => act,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{added, decided, fired, joined};

    #[test]
    fn a_lie_shows_by_a_decision_that_is_not_the_mode() {
        assert_eq!(fired("liar", vec![joined(), added("a"), decided("b")]), 1);
        assert_eq!(fired("liar", vec![joined(), added("a"), decided("a")]), 0);
        assert_eq!(fired("liar", vec![joined(), added("a")]), 0);
    }
}
