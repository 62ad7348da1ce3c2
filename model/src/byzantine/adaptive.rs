//! Correct until a phase, then another strategy: the adversary that corrupts processes in the course of the
//! computation (paper, section 2, failure model).
//!
//! A process cannot see the phase that is open, but the schedule is public (W4): it knows the next phase of
//! its warp, and each access is for that phase; a report is for the phase after its last answer, which is
//! open or comes next. From the chosen phase on the other strategy decides what is sent. The accesses before
//! it stand: a process that has appended does not append again because its new strategy would have begun with
//! an append.

use super::definition::Definition;
use super::observations::Conduct;
use super::observations::ObservedProcess;
use super::parse::{Arguments, Nested, StrategyError};
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Act, Behaviour, Correct, View};
use crate::scheduler::Schedule;
use crate::types::{Phase, ProcessId, Value};

/// Follows Algorithm 1 until a phase, then another strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adaptive<S> {
    /// The first phase in which it is not correct any more.
    pub phase: Phase,
    /// The strategy from then on.
    pub then: Box<S>,
}

impl<S: Nested> Definition for Adaptive<S> {
    const NAME: &'static str = "adaptive";
    const USAGE: &'static str = "adaptive(phase=K, then=S): correct until phase K, from then on S";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        let (phase, then) = (given.phase("phase")?, given.strategy("then")?);
        Ok(Self { phase: given.present("phase", phase)?, then: given.present("then", then)? })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![("phase", self.phase.to_string()), ("then", self.then.to_string())]
    }
}

impl<S: Nested> Conduct for Adaptive<S> {
    fn offences(&self, process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        self.then.conduct().offences(&self.corrupted(process))
    }

    fn ends(&self) -> bool {
        self.then.conduct().ends()
    }

    fn values(&self, me: ProcessId, params: &Params) -> Vec<Value> {
        self.then.conduct().values(me, params)
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        Box::new(Adapting {
            from: self.phase,
            correct: Correct::new(proposal.clone()),
            then: self.then.conduct().behaviour(me, proposal, seed),
        })
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.reached(self.phase) && self.then.conduct().is_shown_by(&self.corrupted(process))
    }
}

impl<S> Adaptive<S> {
    /// The process from the first access on that was not executed before the phase.
    fn corrupted<'a>(&self, process: &ObservedProcess<'a>) -> ObservedProcess<'a> {
        process.shown_from(process.executed_before(self.phase) + 1)
    }
}

struct Adapting {
    from: Phase,
    correct: Correct,
    then: Box<dyn Behaviour>,
}

impl Behaviour for Adapting {
    fn act(&mut self, view: &View) -> Act {
        let after = view.phase.map_or(Phase::FIRST, Phase::next);
        let next = Schedule::new(&view.params).next_phase_of(view.params.warp_of(view.me), after);
        let correct = self.correct.act(view);
        // An access is for its next phase, and a report takes effect at once.
        let when = if matches!(correct, Act::Decide(_)) { after } else { next };
        if when >= self.from { self.then.act(view) } else { correct }
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_events::{answered, append, fired, gathered, joined, read, stepped};
    use crate::history::Event;

    /// Of a process that was correct in phase 1.
    fn corrupted(then: &str, more: Vec<Event>) -> u64 {
        let before = vec![joined(), gathered(), append(1, "a"), stepped(1), answered(1, 1)];
        fired(&format!("adaptive(phase=2, then={then})"), [before, more].concat())
    }

    #[test]
    fn corruption_shows_by_the_accesses_from_its_phase_on() {
        assert_eq!(corrupted("silent", vec![stepped(2)]), 1);
        assert_eq!(corrupted("silent", vec![]), 0, "phase 2 has not come");
        assert_eq!(corrupted("silent", vec![read(2), stepped(2)]), 0);
        assert_eq!(corrupted("crash(access=3)", vec![read(2), stepped(2)]), 1);
        assert_eq!(corrupted("reader", vec![read(2), stepped(2), append(3, "b")]), 1);
        assert_eq!(corrupted("repeat-append", vec![append(2, "b"), stepped(2)]), 1);
    }

    #[test]
    fn an_access_of_its_correct_part_does_not_show_corruption() {
        assert_eq!(corrupted("collude(value=a)", vec![stepped(2)]), 0, "it appended as a correct process");
        let at_once = "adaptive(phase=1, then=collude(value=a))";
        assert_eq!(fired(at_once, vec![joined(), append(1, "a"), stepped(1)]), 1);
    }
}
