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
use crate::byzantine::fired;
use crate::cast::{Cast, Role};
use crate::history::{Event, Recorded};
use crate::params::Params;
use crate::process::Report;
use crate::types::{ProcessId, Time};

/// Looks on at one run after another. See the module.
#[derive(Debug)]
pub struct Onlooker {
    evidence: Evidence,
    /// How many events there were.
    events: usize,
    /// By process; empty if all are correct.
    byzantine: Vec<bool>,
    /// The events that show what Byzantine processes did.
    of_byzantine: Vec<Recorded>,
}

impl Onlooker {
    /// Of a run that has not begun.
    #[must_use]
    pub fn new(params: &Arc<Params>, cast: &Cast) -> Self {
        let mut onlooker = Self {
            evidence: Evidence::new(params),
            events: 0,
            byzantine: Vec::new(),
            of_byzantine: Vec::new(),
        };
        onlooker.begin(params, cast);
        onlooker
    }

    /// Another run begins.
    pub fn begin(&mut self, params: &Arc<Params>, cast: &Cast) {
        self.evidence.begin_again(params);
        self.events = 0;
        self.of_byzantine.clear();
        self.byzantine.clear();
        if cast.byzantine().next().is_some() {
            self.byzantine.extend(cast.parts().map(|(_, part)| part.role != Role::Correct));
        }
    }

    /// Takes in the next event.
    pub fn observe(&mut self, at: Time, event: Event) {
        self.evidence.take_in(self.events, &event);
        self.events += 1;
        if self.byzantine.is_empty() {
            return;
        }
        let of_byzantine = |process: ProcessId| self.byzantine.get(process.index()).copied().unwrap_or(false);
        if event.process().is_none_or(of_byzantine) {
            self.of_byzantine.push(Recorded { at, event });
        }
    }

    /// The run is over, and this is what its processes report: the verdict.
    ///
    /// No process may have had an access executed after the answer from which it decided: that takes a restart,
    /// and a history.
    #[must_use]
    pub fn facts(&mut self, params: &Arc<Params>, cast: &Cast, plan: &Plan, reports: &[Report]) -> Facts {
        self.evidence.end();
        let fired = if self.byzantine.is_empty() { BTreeMap::new() } else { fired(cast, &self.of_byzantine) };
        let params = Arc::clone(params);
        let case = Case { params, cast, plan, history: &[], complete: true, reports, fired };
        Facts::of(&case, &Run::new(&case, &self.evidence))
    }
}
