//! The judge of a run that nobody records: it looks on while events happen and keeps of them what a verdict
//! takes, which for thousands of runs a second is all that there is room for.
//!
//! It comes to the verdict that [`judge`](super::judge) comes to from the whole history, with one thing left out:
//! whether the machine kept every rule of SPEC ([`crate::invariants`]). That takes about as long as the run
//! itself, so whoever makes many runs has some of them judged in full.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::evidence::Evidence;
use super::{Case, Facts, Plan, Run};
use crate::byzantine::Sightings;
use crate::cast::Cast;
use crate::history::Event;
use crate::params::Params;
use crate::process::Report;
use crate::types::Time;

/// Looks on at one run after another. See the module.
#[derive(Debug)]
pub struct Onlooker {
    evidence: Evidence,
    /// How many events there were.
    events: usize,
    /// What Byzantine processes do; `None` if all are correct.
    sightings: Option<Sightings>,
}

impl Onlooker {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new(params: &Arc<Params>, cast: &Cast) -> Self {
        let mut onlooker = Self { evidence: Evidence::new(params), events: 0, sightings: None };
        onlooker.begin(params, cast);
        onlooker
    }

    /// Another run begins.
    pub fn begin(&mut self, params: &Arc<Params>, cast: &Cast) {
        self.evidence.begin_again(params);
        self.events = 0;
        let anybody = cast.byzantine().next().is_some();
        self.sightings = anybody.then(|| Sightings::new(params, cast));
    }

    /// Takes in the next event.
    pub fn observe(&mut self, at: Time, event: &Event) {
        self.evidence.take_in(self.events, event);
        self.events += 1;
        if let Some(sightings) = &mut self.sightings {
            sightings.take_in(at, event);
        }
    }

    /// The run is over, and this is what its processes report: the verdict. `meant` is what was meant to happen
    /// beyond the cast, which played with this seed; its strategies and their offences are added to it.
    ///
    /// No process may have had an access executed after the answer from which it decided: that takes a restart,
    /// and a history.
    #[must_use]
    pub fn facts(
        &mut self,
        params: &Arc<Params>,
        cast: &Cast,
        seed: u64,
        meant: &Plan,
        reports: &[Report],
    ) -> Facts {
        self.evidence.end();
        let (mut plan, mut fired) = (meant.clone(), BTreeMap::new());
        plan.late.extend(cast.late());
        plan.faulty.extend(cast.faulty());
        if let Some(sightings) = &self.sightings {
            fired = sightings.fired(cast, seed);
            plan.attacks.extend(fired.keys().cloned());
            plan.offences.extend(cast.offences(params, seed, &sightings.at_work(cast, seed)));
        }
        let (plan, params) = (&plan, Arc::clone(params));
        let case = Case { params, cast, plan, history: &[], complete: true, reports, fired };
        Facts::of(&case, &Run::new(&case, &self.evidence))
    }
}
