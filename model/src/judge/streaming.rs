//! A judge for runs whose history is not kept: it takes in the events as they happen and keeps only what a
//! verdict needs. That is what thousands of runs a second leave room for. Its verdicts have no sentences:
//! runs that are too many to be read are only counted.
//!
//! It gives the verdict that [`judge`](super::judge) gives of the whole history, except that it does not
//! check whether the machine kept every rule of SPEC ([`crate::invariants`]): that takes about as long as the
//! run itself. Of many runs, some should be judged in full.

use std::sync::Arc;

use crate::bounds::{self, Property};
use crate::byzantine::Observations;
use crate::counts::RunCounts;
use crate::detection::Detection;
use crate::ground_truth::GroundTruth;
use crate::history::Event;
use crate::params::Params;
use crate::process::Report;
use crate::types::{Phase, Time, Value};

use super::analysis::Analysis;
use super::case::{Case, Expectations};
use super::evidence::Evidence;
use super::verdict::{Observed, Outcome, Verdict};
use super::verdict_builder::{outcome, unknown_reasons};
use super::{properties, rules};

/// Judges one run after another. See the module.
#[derive(Debug)]
pub struct StreamingJudge {
    evidence: Evidence,
    /// How many events there were.
    events: usize,
    /// Of the Byzantine processes; `None` if all are correct.
    observations: Option<Observations>,
}

impl StreamingJudge {
    /// A judge of a run that has not begun.
    #[must_use]
    pub fn new(params: &Arc<Params>, truth: &GroundTruth) -> Self {
        let mut judge = Self { evidence: Evidence::new(params), events: 0, observations: None };
        judge.begin(params, truth);
        judge
    }

    /// Another run begins.
    pub fn begin(&mut self, params: &Arc<Params>, truth: &GroundTruth) {
        self.evidence.begin_again(params);
        self.events = 0;
        let anybody = truth.byzantine().next().is_some();
        self.observations = anybody.then(|| Observations::new(params, truth.byzantine()));
    }

    /// Takes in the next event.
    pub fn observe(&mut self, at: Time, event: &Event) {
        self.evidence.take_in(self.events, event);
        self.events += 1;
        if let Some(observations) = &mut self.observations {
            observations.observe(at, event);
        }
    }

    /// The verdict of a run that is over, from the reports of its processes. `seed` is the seed of the run.
    ///
    /// No process may have had an access executed after the answer from which it decided: that happens only
    /// after a restart, and takes a history to judge.
    #[must_use]
    pub fn summary(
        &mut self,
        params: &Arc<Params>,
        truth: &GroundTruth,
        seed: u64,
        reports: &[Report],
    ) -> VerdictSummary {
        self.evidence.end();
        let counted = RunCounts::default();
        let detect = |observations: &Observations| Detection::new(truth, seed, observations, &counted);
        let detection = self.observations.as_ref().map(detect).unwrap_or_default();
        let expected = Expectations::new(truth, &detection);
        let case = Case {
            params: Arc::clone(params),
            truth,
            expected: &expected,
            history: &[],
            complete: true,
            reports,
            fired: detection.fired,
        };
        VerdictSummary::of(&case, &Analysis::new(&case, &self.evidence))
    }
}

/// The verdict of a run without its sentences. It comes from the same predicates as that of
/// [`judge`](super::judge).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerdictSummary {
    /// The verdict as a whole.
    pub verdict: Outcome,
    /// In the order of [`Property::ALL`].
    found: [Finding; 5],
    /// f: Byzantine processes, processes that the plan made faulty, and late correct ones (V3).
    pub f: u64,
    /// How many of these are late correct ones (F6).
    pub late: u64,
    /// |Vc|: different values proposed by correct processes.
    pub distinct_correct_proposals: u64,
    /// Length of the list.
    pub entries: u64,
    /// How many correct processes decided.
    pub decided: u64,
    /// The decision of all correct processes that decided; `None` where they differ or none decided.
    pub decision: Option<Value>,
    /// The phase of the last decision of a correct process.
    pub last_decision_phase: Option<Phase>,
    /// W*(q+c+m) for the largest m of a correct process (D2, K2).
    pub phase_bound: Phase,
    /// Processes with an offence on record.
    pub blamed: u64,
    /// Correct ones among them; must be 0 (B3).
    pub accused_correct: u64,
    /// Processes observed to commit an offence.
    pub culprits: u64,
    /// Those of them with each of these offences on record.
    pub named: u64,
}

/// The finding on a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it held.
    pub observed: Observed,
    /// Whether it was promised.
    pub promised: bool,
}

impl VerdictSummary {
    /// The finding on a property.
    #[must_use]
    pub fn finding(&self, property: Property) -> Finding {
        self.found[property as usize]
    }

    pub(super) fn of(case: &Case<'_>, run: &Analysis<'_>) -> Self {
        let found = properties::observe(case, run)
            .map(|(_, observed, missing)| Finding { observed, promised: missing.is_none() });
        let broke = |promised| {
            found.iter().any(|found| found.observed == Observed::Violated && found.promised == promised)
        };
        let decided = &run.decided;
        let culprits = case.expected.offences.keys();
        let named = culprits.filter(|process| run.unnamed(case, **process).is_empty());
        Self {
            verdict: outcome(
                &rules::find(case, run),
                broke(true),
                broke(false),
                !unknown_reasons(case, run).is_empty(),
            ),
            found,
            f: run.f,
            late: run.late.len() as u64,
            distinct_correct_proposals: run.proposals.len() as u64,
            entries: run.evidence.list.len() as u64,
            decided: run.decisions.values().count() as u64,
            decision: decided.iter().next().filter(|_| decided.len() == 1).map(|&value| value.clone()),
            last_decision_phase: run.decisions.values().filter_map(|decision| decision.phase).max(),
            phase_bound: bounds::phase_bound(&case.params, run.most_missed()),
            blamed: run.evidence.blame.len() as u64,
            accused_correct: run.accused().count() as u64,
            culprits: case.expected.offences.len() as u64,
            named: named.count() as u64,
        }
    }
}

impl From<&Verdict> for VerdictSummary {
    fn from(verdict: &Verdict) -> Self {
        let found = |property| {
            let (observed, missing) = verdict.finding(property);
            Finding { observed, promised: missing.is_none() }
        };
        Self {
            verdict: verdict.verdict,
            found: Property::ALL.map(found),
            f: verdict.f,
            late: verdict.late.len() as u64,
            distinct_correct_proposals: verdict.distinct_correct_proposals,
            entries: verdict.list.len() as u64,
            decided: verdict.decisions.len() as u64,
            decision: verdict.decision.clone(),
            last_decision_phase: verdict.last_decision_phase,
            phase_bound: verdict.phase_bound,
            blamed: verdict.blame.len() as u64,
            accused_correct: verdict.accused_correct.len() as u64,
            culprits: verdict.culprits.len() as u64,
            named: verdict.named.len() as u64,
        }
    }
}
