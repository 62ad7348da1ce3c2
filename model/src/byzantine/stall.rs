//! Acts like another strategy, or like a correct process, and sends each access as late as its patience allows.
//!
//! Patience is a total (F3), so the first access takes nearly all of it and the later ones hardly any: a process that
//! stalls costs the others no more than a silent one, and is always in time.

use super::conduct::Conduct;
use super::definition::Definition;
use super::observations::ObservedProcess;
use super::parse::{Arguments, Nested, StrategyError};
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Act, Behaviour, Correct, SendTime, View};
use crate::types::{ProcessId, Value};

/// Sends each access at the last moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall<S> {
    /// What it does, apart from the moment; without one, what a correct process does.
    pub conduct: Option<Box<S>>,
}

impl<S: Nested> Definition for Stall<S> {
    const NAME: &'static str = "stall";
    const USAGE: &'static str =
        "stall or stall(conduct=S): does what S does, or a correct one, at the last moment";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self { conduct: given.strategy("conduct")? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        self.conduct.iter().map(|conduct| ("conduct", conduct.to_string())).collect()
    }
}

impl<S: Nested> Conduct for Stall<S> {
    fn offences(&self, process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        self.conduct.as_ref().map_or(&[], |conduct| conduct.conduct().offences(process))
    }

    fn ends(&self) -> bool {
        self.conduct.as_ref().is_none_or(|conduct| conduct.conduct().ends())
    }

    fn values(&self, me: ProcessId, params: &Params) -> Vec<Value> {
        self.conduct.as_ref().map_or_else(Vec::new, |conduct| conduct.conduct().values(me, params))
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        Box::new(Stalling(match &self.conduct {
            Some(conduct) => conduct.conduct().behaviour(me, proposal, seed),
            None => Box::new(Correct::new(proposal.clone())),
        }))
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.last_stalled() >= process.from
            && self.conduct.as_ref().is_none_or(|conduct| conduct.conduct().is_shown_by(process))
    }
}

/// Holds back the accesses of this behaviour.
struct Stalling(Box<dyn Behaviour>);

impl Behaviour for Stalling {
    fn act(&mut self, view: &View) -> Act {
        match self.0.act(view) {
            Act::Access { op, .. } => Act::Access { op, when: SendTime::LastMoment },
            act => act,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{append, fired, gathered, joined, patience_spent};

    #[test]
    fn stalling_shows_when_a_phase_waits_long_for_the_process() {
        assert_eq!(fired("stall", vec![joined(), gathered(), append(1, "a")]), 1);
        assert_eq!(fired("stall", vec![joined(), append(1, "a"), gathered(), patience_spent()]), 1);
        assert_eq!(fired("stall", vec![patience_spent(), joined(), append(1, "a"), gathered()]), 0);
        assert_eq!(fired("stall", vec![joined(), append(1, "a"), gathered()]), 0, "it came in time");
    }

    #[test]
    fn stalling_with_a_conduct_shows_only_with_that_conduct() {
        let colludes = "stall(conduct=collude(value=b))";
        assert_eq!(fired(colludes, vec![joined(), gathered(), append(1, "b")]), 1);
        assert_eq!(fired(colludes, vec![joined(), gathered(), append(1, "a")]), 0);
    }
}
