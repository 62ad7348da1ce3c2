//! The cases (a) to (e) of the paper's proof: strategies that differ from a correct process in what they
//! append in their first access, and in nothing else: `empty`, `distinct`, `collude`, `mimic` and `mixed`.
//!
//! Such a process reads and leaves by the true mode and costs nobody patience. To append a wrong value is no
//! offence (B2).

use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Act, Behaviour, Correct, RawOp, SendTime, View, read_and_decide};
use crate::random::SplitMix64;
use crate::types::{ProcessId, Value};

use super::definition::{Definition, own_value};
use super::observations::Conduct;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};

/// Proof case (a): appends NULL, that is, bytes that are no value.
///
/// The border refuses them (P3) and files an offence, and no process loses its chance to win. Having nothing
/// else to append, the process then reads and leaves by the true mode, so that nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty;

impl Definition for Empty {
    const NAME: &'static str = "empty";
    const USAGE: &'static str = "empty: appends bytes that are no value (case a)";

    fn parse(_: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self)
    }
}

impl Conduct for Empty {
    fn offences(&self, process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        if self.is_shown_by(process) { &[OffenceKind::Malformed] } else { &[] }
    }

    fn behaviour(&self, _: ProcessId, _: &Value, _: u64) -> Box<dyn Behaviour> {
        Box::new(*self)
    }

    /// Its append is refused, so the first access that is accepted is the read that follows. A process whose
    /// append is accepted, or is still due, has no such first access.
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        process.from == 1 && process.next_access() > 1 && process.append(1).is_none()
    }
}

impl Behaviour for Empty {
    fn act(&mut self, view: &View) -> Act {
        if view.answered == 0 && view.refused == 0 {
            return Act::Access { op: RawOp::Append(Vec::new().into()), when: SendTime::Ready };
        }
        read_and_decide(view)
    }
}

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

/// Proof case (b): appends in its first access a value of its own, different from the values of all other
/// processes.
///
/// Otherwise it is a correct process: it reads and leaves by the true mode, costs nobody patience and commits
/// no offence (B2).
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

/// Proof case (c): appends in its first access the value that all colluding processes append.
///
/// Otherwise it is a correct process, so that it costs nobody patience and commits no offence: to append a
/// wrong value is none (B2).
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

/// Proof case (d): appends in its first access a value that correct processes propose too, to make it the
/// mode.
///
/// The best value for an adversary is the weakest of Vc, which the fewest correct processes propose. It has
/// to be given beforehand: a process that reads first has missed the append window (A2). Whichever value
/// wins, the decision stays in Vc, as the paper says of this case.
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

/// Proof case (e): a mix of the cases (a) to (d). Each process draws the case that it plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixed {
    /// The common value of the processes that draw case (c).
    pub collude: Value,
    /// The value that the processes back that draw case (d).
    pub mimic: Value,
}

impl Mixed {
    /// The case that a process with this seed plays, from 0 for case (a).
    fn drawn(seed: u64) -> u64 {
        SplitMix64::new(seed).below(4)
    }

    fn strategy(&self, seed: u64) -> Box<dyn Conduct> {
        match Self::drawn(seed) {
            0 => Box::new(Empty),
            1 => Box::new(Distinct { value: None }),
            2 => Box::new(Collude { value: self.collude.clone() }),
            _ => Box::new(Mimic { value: self.mimic.clone() }),
        }
    }
}

impl Definition for Mixed {
    const NAME: &'static str = "mixed";
    const USAGE: &'static str =
        "mixed(collude=V, mimic=U): plays one of the cases a to d, drawn from its seed (case e)";

    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError> {
        Ok(Self {
            collude: given.required("collude", Arguments::value)?,
            mimic: given.required("mimic", Arguments::value)?,
        })
    }

    fn arguments(&self) -> Vec<(&'static str, String)> {
        vec![("collude", value_text(&self.collude)), ("mimic", value_text(&self.mimic))]
    }
}

impl Conduct for Mixed {
    fn offences(&self, process: &ObservedProcess<'_>) -> &'static [OffenceKind] {
        self.strategy(process.seed).offences(process)
    }

    fn values(&self, me: ProcessId, _: &Params) -> Vec<Value> {
        vec![self.collude.clone(), self.mimic.clone(), own_value(me)]
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        self.strategy(seed).behaviour(me, proposal, seed)
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        self.strategy(process.seed).is_shown_by(process)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::ground_truth::seed_of;

    use super::super::test_events::{append, fired, fired_in_run, joined, malformed, read};
    use super::*;

    #[test]
    fn an_empty_append_shows_by_the_read_that_follows_it() {
        assert_eq!(fired("empty", vec![joined(), malformed(), read(1)]), 1);
        assert_eq!(fired("empty", vec![joined(), read(1)]), 1);
        assert_eq!(fired("empty", vec![joined(), malformed()]), 0);
        assert_eq!(fired("empty", vec![joined(), malformed(), append(1, "a"), read(2)]), 0);
    }

    #[test]
    fn a_distinct_value_shows_in_the_first_access() {
        assert_eq!(fired("distinct", vec![joined(), append(1, "byzantine-1")]), 1);
        assert_eq!(fired("distinct", vec![joined(), append(1, "a")]), 0);
        assert_eq!(fired("distinct(value=a)", vec![joined(), append(1, "a")]), 1);
    }

    #[test]
    fn collusion_shows_in_the_value_of_the_first_access() {
        assert_eq!(fired("collude(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired("collude(value=b)", vec![joined(), append(1, "a")]), 0);
    }

    #[test]
    fn mimicry_shows_in_the_value_of_the_first_access() {
        assert_eq!(fired("mimic(value=b)", vec![joined(), append(1, "b")]), 1);
        assert_eq!(fired("mimic(value=b)", vec![joined(), read(1), append(2, "b")]), 0);
    }

    #[test]
    fn a_mix_shows_by_the_case_that_was_drawn_and_by_no_other() {
        let shows = [read(1), append(1, "byzantine-1"), append(1, "0"), append(1, "b")];
        let mut drawn_cases = BTreeSet::new();
        for run_seed in 0..40 {
            let drawn = Mixed::drawn(seed_of(ProcessId::FIRST, run_seed));
            let fires =
                |event| fired_in_run("mixed(collude=0, mimic=b)", run_seed, vec![joined(), event]) == 1;
            for (case, event) in (0..).zip(&shows) {
                assert_eq!(fires(event.clone()), case == drawn, "case {case}, seed {run_seed}");
            }
            assert!(!fires(append(1, "a")));
            drawn_cases.insert(drawn);
        }
        assert_eq!(drawn_cases.len(), shows.len(), "{drawn_cases:?}");
    }
}
