//! Proof case (e): a mix of the cases (a) to (d). Each process draws the case that it plays.

use super::collude::Collude;
use super::conduct::Conduct;
use super::definition::{Definition, own_value};
use super::distinct::Distinct;
use super::empty::Empty;
use super::mimic::Mimic;
use super::observations::ObservedProcess;
use super::parse::{Arguments, StrategyError, value_text};
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::Behaviour;
use crate::random::SplitMix64;
use crate::types::{ProcessId, Value};

/// Plays one of the cases (a) to (d), drawn from the seed of the process.
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

    use super::super::test_events::{append, fired_in_run, joined, read};
    use super::*;
    use crate::cast::seed_of;

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
