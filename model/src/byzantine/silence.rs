//! Strategies of processes that send nothing, or as late as they may: `absent`, `silent`, `crash` and
//! `stall`.

use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Act, Behaviour, Correct, SendTime, View};
use crate::types::{AccessNumber, ProcessId, Value};

use super::definition::Definition;
use super::observations::Conduct;
use super::observations::ObservedProcess;
use super::parse::{Arguments, Nested, StrategyError};

/// Never joins: gathering ends without the process (F5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent;

impl Definition for Absent {
    const NAME: &'static str = "absent";
    const USAGE: &'static str = "absent: never joins";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }
}

impl Conduct for Absent {
    fn joins(&self) -> bool {
        false
    }

    fn ends(&self) -> bool {
        false
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.gathering_ended() && !process.joined()
    }
}

impl Behaviour for Absent {
    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}

/// Joins, then says nothing: its warp waits for it until its patience is spent (F3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent;

impl Definition for Silent {
    const NAME: &'static str = "silent";
    const USAGE: &'static str = "silent: joins, then says nothing";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }
}

impl Conduct for Silent {
    fn ends(&self) -> bool {
        false
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.stays() && process.next_access() <= process.from
    }
}

impl Behaviour for Silent {
    fn act(&mut self, _: &View) -> Act {
        Act::Silent
    }
}

/// Follows Algorithm 1, then stops: the failure that the paper's appendix calls a crash.
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

/// Acts like another strategy, or like a correct process, and sends each access as late as its patience
/// allows.
///
/// Patience is a total (F3), so the first access takes nearly all of it and the later ones hardly any: a
/// process that stalls costs the others no more than a silent one, and is always in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall<S> {
    /// Its acts, apart from their moment; without one, those of a correct process.
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
    use super::super::test_events::{append, decided, fired, gathered, joined, patience_spent, read};

    #[test]
    fn absence_shows_when_gathering_ends_without_the_process() {
        assert_eq!(fired("absent", vec![gathered()]), 1);
        assert_eq!(fired("absent", vec![joined(), gathered()]), 0);
        assert_eq!(fired("absent", vec![]), 0, "nothing is due yet");
    }

    #[test]
    fn silence_shows_when_an_access_is_due_and_none_came() {
        assert_eq!(fired("silent", vec![joined(), gathered()]), 1);
        assert_eq!(fired("silent", vec![joined(), gathered(), append(1, "b")]), 0);
        assert_eq!(fired("silent", vec![gathered()]), 0, "it has not joined");
        assert_eq!(fired("silent", vec![joined()]), 0, "nothing is due yet");
    }

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
