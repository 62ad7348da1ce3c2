//! Follows Algorithm 1, and reports another decision than it came to.
//!
//! Under `first_access` the server compares reports with the mode of the sealed list and files an offence
//! (D3); under `open` nobody can prove the lie. Nobody believes it either way: a correct process decides
//! from what it read, never from what others report.

use crate::process::{Act, Behaviour, Correct, View};
use crate::types::Value;

/// Reports a false decision.
#[derive(Clone, Debug)]
pub struct Liar {
    correct: Correct,
    lie: Value,
}

impl Liar {
    /// Proposes a value, and reports this lie; should it be the truth, another one.
    #[must_use]
    pub fn new(proposal: Value, lie: Value) -> Self {
        Self { correct: Correct::new(proposal), lie }
    }

    fn other_than(&self, truth: &Value) -> Value {
        if self.lie != *truth {
            return self.lie.clone();
        }
        let other: &[u8] = if truth.as_bytes() == b"lie" { b"another lie" } else { b"lie" };
        Value::new(other).expect("it has bytes")
    }
}

impl Behaviour for Liar {
    fn act(&mut self, view: &View) -> Act {
        match self.correct.act(view) {
            Act::Decide(truth) => Act::Decide(self.other_than(&truth)),
            act => act,
        }
    }
}
