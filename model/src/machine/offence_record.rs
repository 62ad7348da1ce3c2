//! How often processes were refused and accused, and how much of that becomes events (SPEC B2).
//!
//! Offences and refusals are free to provoke, so each process has a bounded share of the history. Above the bound
//! they are counted and no longer recorded one by one.

use std::collections::BTreeMap;

use crate::history::{Event, Offence, OffenceKind};
use crate::types::ProcessId;

/// The most offences of one kind that are recorded one by one for each process.
pub const OFFENCES_RECORDED: u64 = 16;
/// The most refusals that are recorded one by one for each process.
pub const REFUSALS_RECORDED: u64 = 16;

/// How often a process committed one kind of offence, and the first time that it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffenceCount {
    /// The first offence of this process and kind.
    pub first: Offence,
    /// How many there were.
    pub count: u64,
}

/// The counts of one instance. At most n times the number of kinds of offences, and n of refusals.
#[derive(Clone, Debug, Default)]
pub(super) struct OffenceRecord {
    pub(super) counts: BTreeMap<(ProcessId, OffenceKind), OffenceCount>,
    pub(super) refusals: BTreeMap<ProcessId, u64>,
}

impl OffenceRecord {
    /// Counts an offence, and records it while the bound allows.
    pub(super) fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let key = (offence.process, offence.kind);
        let entry =
            self.counts.entry(key).or_insert_with(|| OffenceCount { first: offence.clone(), count: 0 });
        entry.count += 1;
        if entry.count <= OFFENCES_RECORDED {
            events.push(Event::Offence(offence));
        }
    }

    /// Counts a refusal; true if it is to be recorded.
    pub(super) fn count_refusal(&mut self, process: ProcessId) -> bool {
        let count = self.refusals.entry(process).or_default();
        *count += 1;
        *count <= REFUSALS_RECORDED
    }

    /// The offences, by process and kind.
    pub(super) fn counts(&self) -> impl Iterator<Item = &OffenceCount> {
        self.counts.values()
    }
}
