//! A judge for runs whose history is not kept: it takes in the events as they happen and keeps only what a verdict
//! needs. That is what thousands of runs a second leave room for.
//!
//! It gives the verdict that [`judge`](super::judge) gives of the whole history, except that it does not check whether the
//! machine kept every rule of SPEC ([`crate::invariants`]): that takes about as long as the run itself. Of many runs,
//! some should be judged in full.

use std::sync::Arc;

use super::analysis::Analysis;
use super::case::{Case, Expectations};
use super::evidence::Evidence;
use super::summary::VerdictSummary;
use crate::byzantine::Observations;
use crate::cast::Cast;
use crate::counts::RunCounts;
use crate::detection::Detection;
use crate::history::Event;
use crate::params::Params;
use crate::process::Report;
use crate::types::Time;

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
    pub fn new(params: &Arc<Params>, cast: &Cast) -> Self {
        let mut judge = Self { evidence: Evidence::new(params), events: 0, observations: None };
        judge.begin(params, cast);
        judge
    }

    /// Another run begins.
    pub fn begin(&mut self, params: &Arc<Params>, cast: &Cast) {
        self.evidence.begin_again(params);
        self.events = 0;
        let anybody = cast.byzantine().next().is_some();
        self.observations = anybody.then(|| Observations::new(params, cast.byzantine()));
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
    /// No process may have had an access executed after the answer from which it decided: that happens only after a
    /// restart, and takes a history to judge.
    #[must_use]
    pub fn summary(
        &mut self,
        params: &Arc<Params>,
        cast: &Cast,
        seed: u64,
        reports: &[Report],
    ) -> VerdictSummary {
        self.evidence.end();
        let counted = RunCounts::default();
        let detect = |observations: &Observations| Detection::new(cast, seed, observations, &counted);
        let detection = self.observations.as_ref().map(detect).unwrap_or_default();
        let expected = Expectations::new(cast, &detection);
        let case = Case {
            params: Arc::clone(params),
            cast,
            expected: &expected,
            history: &[],
            complete: true,
            reports,
            fired: detection.fired,
        };
        VerdictSummary::of(&case, &Analysis::new(&case, &self.evidence))
    }
}
