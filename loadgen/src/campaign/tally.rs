//! The runs of a cell in the simulator, counted.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_model::judge::{Observed, Outcome, Verdict};
use stickycas_model::types::Phase;

use super::cell::Counts;
use crate::scenario::{Scenario, ScenarioError};
use crate::simulate::simulate;

/// Runs the scenario of a cell once with each seed. `None` if it was told to stop before the last.
///
/// # Errors
/// If the text is no scenario with some seed.
pub(super) fn tally(
    text: &str,
    seeds: Range<u64>,
    stop: &AtomicBool,
) -> Result<Option<Counts>, ScenarioError> {
    let mut counts = Counts::default();
    for seed in seeds {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        counts.count(seed, &simulate(&Scenario::parse("cell", text, Some(seed))?).verdict);
    }
    Ok(Some(counts))
}

impl Counts {
    /// Counts one more run, which had this seed.
    fn count(&mut self, seed: u64, verdict: &Verdict) {
        self.runs += 1;
        match verdict.verdict {
            Outcome::Valid => self.valid += 1,
            Outcome::Outside => self.outside += 1,
            Outcome::Unknown => self.unknown += 1,
            Outcome::Violation => self.violation += 1,
        }
        let broken = |observed| u64::from(observed == Observed::Violated);
        self.agreement_broken += broken(verdict.agreement);
        self.termination_broken += broken(verdict.termination);
        self.weak_broken += broken(verdict.weak_validity);
        self.common_broken += broken(verdict.common_validity);
        self.strong_broken += broken(verdict.strong_validity);
        self.common_promised += u64::from(verdict.common_validity_promised);
        self.strong_promised += u64::from(verdict.strong_validity_promised);
        let phase = verdict.last_decision_phase.map(Phase::get);
        self.first_phase = least(self.first_phase, phase);
        self.last_phase = self.last_phase.max(phase);
        self.blamed += verdict.blame.len() as u64;
        self.accused += verdict.accused_correct.len() as u64;
        if verdict.strong_validity == Observed::Violated {
            self.example = least(self.example, Some(seed));
        }
    }

    /// Both counts as one, in whichever order they came.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            valid: self.valid + other.valid,
            outside: self.outside + other.outside,
            unknown: self.unknown + other.unknown,
            violation: self.violation + other.violation,
            agreement_broken: self.agreement_broken + other.agreement_broken,
            termination_broken: self.termination_broken + other.termination_broken,
            weak_broken: self.weak_broken + other.weak_broken,
            common_broken: self.common_broken + other.common_broken,
            strong_broken: self.strong_broken + other.strong_broken,
            common_promised: self.common_promised + other.common_promised,
            strong_promised: self.strong_promised + other.strong_promised,
            first_phase: least(self.first_phase, other.first_phase),
            last_phase: self.last_phase.max(other.last_phase),
            culprits: self.culprits + other.culprits,
            named: self.named + other.named,
            blamed: self.blamed + other.blamed,
            accused: self.accused + other.accused,
            example: least(self.example, other.example),
        }
    }
}

/// The lesser of those that there are.
fn least(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
