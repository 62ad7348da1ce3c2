//! The judge of a run that nobody records: it looks on while events happen and keeps of them what a verdict
//! takes, which for thousands of runs a second is all that there is room for.
//!
//! It comes to the verdict that [`judge`](super::judge) comes to from the whole history, with one thing left out:
//! whether the machine kept every rule of SPEC ([`crate::invariants`]). That takes about as long as the run
//! itself, so whoever makes many runs has some of them judged in full.

use std::sync::Arc;

use super::evidence::Evidence;
use super::{Case, Expectations, Run, VerdictSummary};
use crate::byzantine::{Detection, Observations};
use crate::cast::Cast;
use crate::counts::RunCounts;
use crate::history::Event;
use crate::params::Params;
use crate::process::Report;
use crate::types::Time;

/// Looks on at one run after another. See the module.
#[derive(Debug)]
pub struct StreamingJudge {
    evidence: Evidence,
    /// How many events there were.
    events: usize,
    /// What Byzantine processes do; `None` if all are correct.
    observations: Option<Observations>,
}

impl StreamingJudge {
    /// Of a run that has not begun.
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

    /// The run is over, and this is what its processes report: the verdict. `meant` is what was meant to happen
    /// beyond the cast, which played with this seed; its strategies and their offences are added to it.
    ///
    /// No process may have had an access executed after the answer from which it decided: that takes a restart,
    /// and a history.
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
        let expected = Expectations::new(params, cast, seed, &detection);
        let case = Case {
            params: Arc::clone(params),
            cast,
            expected: &expected,
            history: &[],
            complete: true,
            reports,
            fired: detection.fired,
        };
        VerdictSummary::of(&case, &Run::new(&case, &self.evidence))
    }
}
