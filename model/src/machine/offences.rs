//! How often processes were refused and accused, and how much of that becomes events (SPEC B2).
//!
//! Offences and refusals are free to provoke, so each process has a bounded share of the history. Above the
//! bound they are counted and no longer recorded one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::access::Op;
use crate::history::{Event, Offence, OffenceKind};
use crate::types::{ProcessId, Value};

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

/// Some counters of an instance, as they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MisbehaviourCounts {
    /// How many offences of this kind the process has committed, in the order of processes and kinds.
    pub offences: Vec<(ProcessId, OffenceKind, u64)>,
    /// How many inputs of the process were refused, in the order of processes.
    pub refusals: Vec<(ProcessId, u64)>,
}

/// The counts of one instance. At most n times the number of kinds of offences, and n of refusals.
#[derive(Clone, Debug, Default)]
pub(super) struct OffenceRecord {
    pub(super) counts: BTreeMap<(ProcessId, OffenceKind), OffenceCount>,
    pub(super) refusals: BTreeMap<ProcessId, u64>,
    /// The counts of offences that rose without an event.
    silent_offences: BTreeSet<(ProcessId, OffenceKind)>,
    /// The counts of refusals that rose without an event.
    silent_refusals: BTreeSet<ProcessId>,
}

impl OffenceRecord {
    /// Counts an offence, and records it while the bound allows.
    pub(super) fn file(&mut self, offence: Offence, events: &mut Vec<Event>) {
        let key = (offence.process, offence.kind);
        let entry =
            self.counts.entry(key).or_insert_with(|| OffenceCount { first: offence.clone(), count: 0 });
        // A log may be damaged and say any number.
        entry.count = entry.count.saturating_add(1);
        if entry.count <= OFFENCES_RECORDED {
            events.push(Event::Offence(offence));
        } else {
            self.silent_offences.insert(key);
        }
    }

    /// Counts a refusal; true if it is to be recorded.
    pub(super) fn count_refusal(&mut self, process: ProcessId) -> bool {
        let count = self.refusals.entry(process).or_default();
        *count = count.saturating_add(1);
        let recorded = *count <= REFUSALS_RECORDED;
        if !recorded {
            self.silent_refusals.insert(process);
        }
        recorded
    }

    /// The counts that rose without an event since the last call.
    pub(super) fn take_silent(&mut self) -> Option<MisbehaviourCounts> {
        if self.silent_offences.is_empty() && self.silent_refusals.is_empty() {
            return None;
        }
        let offences = std::mem::take(&mut self.silent_offences).into_iter();
        let offences = offences.filter_map(|key| Some((key.0, key.1, self.counts.get(&key)?.count)));
        let refusals = std::mem::take(&mut self.silent_refusals).into_iter();
        let refusals = refusals.filter_map(|process| Some((process, *self.refusals.get(&process)?)));
        Some(MisbehaviourCounts { offences: offences.collect(), refusals: refusals.collect() })
    }

    /// Raises the counts that there are to these.
    pub(super) fn raise(&mut self, counts: &MisbehaviourCounts) {
        for &(process, kind, count) in &counts.offences {
            if let Some(known) = self.counts.get_mut(&(process, kind)) {
                known.count = known.count.max(count);
            }
        }
        for &(process, count) in &counts.refusals {
            if let Some(known) = self.refusals.get_mut(&process) {
                *known = (*known).max(count);
            }
        }
    }

    /// The offences, by process and kind.
    pub(super) fn counts(&self) -> impl Iterator<Item = &OffenceCount> {
        self.counts.values()
    }
}

pub(super) fn describe(op: &Op) -> String {
    match op {
        Op::Append(value) => format!("append {}", brief_value(value)),
        Op::Read { start } => format!("read from {start}"),
    }
}

/// A value as an offence quotes it, cut short: the record of misbehaviour must not grow with the values that
/// are sent.
pub(crate) fn brief_value(value: &Value) -> String {
    const LONGEST: usize = 64;
    let text = value.to_string();
    match text.char_indices().nth(LONGEST) {
        None => text,
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], value.as_bytes().len()),
    }
}
