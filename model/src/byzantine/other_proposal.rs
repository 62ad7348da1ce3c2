//! The strategies that differ from a correct process in the value that they propose, and in nothing else: proof cases (b)
//! to (d).
//!
//! Such a process reads and leaves by the true mode, costs nobody patience and commits no offence: to append a wrong value
//! is none (B2).

use super::conduct::Conduct;
use super::definition::{Definition, own_value};
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::params::Params;
use crate::process::{Behaviour, Correct};
use crate::types::{ProcessId, Value};

/// A strategy that appends another value in its first access and otherwise acts as a correct process.
pub(super) trait OtherProposal: Sized {
    /// See [`Definition::NAME`].
    const NAME: &'static str;
    /// See [`Definition::USAGE`].
    const USAGE: &'static str;

    /// Takes the strategy's argument.
    ///
    /// # Errors
    /// The argument is missing or is no value.
    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError>;

    /// The argument, where it was given.
    fn value(&self) -> Option<&Value>;

    /// The value that process `me` proposes: the argument, or without one [`own_value`].
    fn proposal(&self, me: ProcessId) -> Value {
        self.value().cloned().unwrap_or_else(|| own_value(me))
    }
}

impl<P: OtherProposal> Definition for P {
    const NAME: &'static str = P::NAME;
    const USAGE: &'static str = P::USAGE;

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        P::parse(given)
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        self.value().map(|value| ("value", value_text(value))).into_iter().collect()
    }
}

impl<P: OtherProposal> Conduct for P {
    fn values(&self, me: ProcessId, _: &Params) -> Vec<Value> {
        vec![self.proposal(me)]
    }

    fn behaviour(&self, me: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Correct::new(self.proposal(me)))
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.proposed(&self.proposal(process.me))
    }
}
