//! Follows Algorithm 1, then stops: the failure that the paper's appendix calls a crash.

use super::conduct::Conduct;
use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError};
use crate::process::{Act, Behaviour, Correct, View};
use crate::types::{AccessNumber, ProcessId, Value};

/// Follows Algorithm 1 and stops without a message: its warp waits for it until its patience is spent (F3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The number of the access before which it stops. Before the first one, it only joins.
    pub access: AccessNumber,
}

impl Definition for Crash {
    const NAME: &'static str = "crash";
    const USAGE: &'static str =
        "crash(access=K) or crash@K: follows the algorithm, and stops before its K-th access";
    const SHORT_KEY: Option<&'static str> = Some("access");

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { access: given.required("access", Arguments::access)? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![("access", self.access.to_string())]
    }
}

impl Conduct for Crash {
    fn behaviour(&self, _: ProcessId, proposal: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(Crashing { before: self.access, correct: Correct::new(proposal.clone()) })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.stays() && process.next_access() == self.access.get().max(process.from)
    }
}

struct Crashing {
    before: AccessNumber,
    correct: Correct,
}

impl Behaviour for Crashing {
    fn act(&mut self, view: &View) -> Act {
        if view.answered + 1 >= self.before.get() { Act::Crash } else { self.correct.act(view) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, decided, fired, gathered, joined, read};

    #[test]
    fn a_crash_shows_when_just_its_access_does_not_come() {
        let after_gathering =
            |strategy, events| fired(strategy, [vec![joined(), gathered()], events].concat());
        assert_eq!(after_gathering("crash(access=1)", vec![]), 1);
        assert_eq!(after_gathering("crash(access=2)", vec![append(1, "a")]), 1);
        assert_eq!(after_gathering("crash(access=2)", vec![append(1, "a"), read(2)]), 0);
        assert_eq!(after_gathering("crash(access=2)", vec![append(1, "a"), decided("a")]), 0);
    }

    #[test]
    fn no_crash_shows_before_an_access_is_due() {
        assert_eq!(fired("crash(access=1)", vec![joined()]), 0);
        assert_eq!(fired("crash(access=2)", vec![joined(), append(1, "a")]), 0);
    }
}
