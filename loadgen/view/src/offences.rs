//! The offences that were seen last, at the instances that somebody looks at.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use stickycas_model::describe;
use stickycas_model::history::Event;
use stickycas_model::types::ProcessId;

use crate::instances::InstanceFacts;

/// The number of offences that are kept. A viewer that looks each second misses some if more happen in one.
const KEPT: usize = 32;

/// An offence at one instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RecentOffence {
    instance: String,
    /// The name of the instance; may be empty.
    name: String,
    process: ProcessId,
    /// The offence in words.
    says: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct RecentOffences(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    /// How many there were in all.
    count: u64,
    last: VecDeque<RecentOffence>,
}

impl RecentOffences {
    /// Adds this event, if it is an offence.
    pub(crate) fn add(&self, facts: &InstanceFacts, event: &Event) {
        let Event::Offence(offence) = event else { return };
        let offence = RecentOffence {
            instance: facts.id.to_string(),
            name: facts.name.clone(),
            process: offence.process,
            says: describe::event(event),
        };
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.count += 1;
        if recent.last.len() == KEPT {
            recent.last.pop_front();
        }
        recent.last.push_back(offence);
    }

    /// How many there were in all, and those that are kept of the ones behind the first so many.
    pub(crate) fn since(&self, seen: u64) -> (u64, Vec<RecentOffence>) {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = usize::try_from(recent.count.saturating_sub(seen)).unwrap_or(usize::MAX);
        let skip = recent.last.len().saturating_sub(new);
        (recent.count, recent.last.iter().skip(skip).cloned().collect())
    }
}
