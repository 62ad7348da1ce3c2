//! Proof case (e): a mix of the cases (a) to (d). Each process draws the case that it plays.

use super::collude::Collude;
use super::definition::Definition;
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

/// The case that a process has drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Case {
    A(Empty),
    B(Distinct),
    C(Collude),
    D(Mimic),
}

impl Mixed {
    fn draw(&self, seed: u64) -> Case {
        match SplitMix64::new(seed).below(4) {
            0 => Case::A(Empty),
            1 => Case::B(Distinct { value: None }),
            2 => Case::C(Collude { value: self.collude.clone() }),
            _ => Case::D(Mimic { value: self.mimic.clone() }),
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

    fn offences(&self, seed: u64, params: &Params) -> &'static [OffenceKind] {
        match self.draw(seed) {
            Case::A(case) => case.offences(seed, params),
            Case::B(case) => case.offences(seed, params),
            Case::C(case) => case.offences(seed, params),
            Case::D(case) => case.offences(seed, params),
        }
    }

    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        match self.draw(seed) {
            Case::A(case) => case.behaviour(me, proposal, seed),
            Case::B(case) => case.behaviour(me, proposal, seed),
            Case::C(case) => case.behaviour(me, proposal, seed),
            Case::D(case) => case.behaviour(me, proposal, seed),
        }
    }

    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool {
        match self.draw(process.seed) {
            Case::A(case) => case.is_shown_by(process),
            Case::B(case) => case.is_shown_by(process),
            Case::C(case) => case.is_shown_by(process),
            Case::D(case) => case.is_shown_by(process),
        }
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
        let mixed = Mixed { collude: Value::parse("0").unwrap(), mimic: Value::parse("b").unwrap() };
        let shows = [read(1), append(1, "byzantine-1"), append(1, "0"), append(1, "b")];
        let mut drawn_cases = BTreeSet::new();
        for run_seed in 0..40 {
            let drawn = match mixed.draw(seed_of(ProcessId::FIRST, run_seed)) {
                Case::A(_) => 0,
                Case::B(_) => 1,
                Case::C(_) => 2,
                Case::D(_) => 3,
            };
            let fires =
                |event| fired_in_run("mixed(collude=0, mimic=b)", run_seed, vec![joined(), event]) == 1;
            for (case, event) in shows.iter().enumerate() {
                assert_eq!(fires(event.clone()), case == drawn, "case {case}, seed {run_seed}");
            }
            assert!(!fires(append(1, "a")));
            drawn_cases.insert(drawn);
        }
        assert_eq!(drawn_cases.len(), shows.len(), "{drawn_cases:?}");
    }
}
