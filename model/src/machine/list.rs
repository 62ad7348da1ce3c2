//! The list of an instance: its entries, when it was sealed (A2), and what reads of a phase see of it (R1).

use std::ops::Deref;
use std::sync::Arc;

use crate::process::mode;
use crate::sticky_cas::StickyCas;
use crate::types::{Phase, Position, ProcessId, Value};

/// One entry of the list, with the process whose append won it and the phase of that append.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The process whose append won.
    pub process: ProcessId,
    /// The phase that it won.
    pub phase: Phase,
}

/// The StickyCAS object, which is shared with readers, and its seal. Only the machine appends to it.
#[derive(Debug)]
pub(super) struct List {
    entries: Arc<StickyCas<Entry>>,
    /// The phase that was open or next when the list was sealed, once it is: no later phase adds an entry.
    sealed: Option<Phase>,
    /// The mode of the sealed list, once a report was compared with it.
    mode: Option<Option<Value>>,
}

impl List {
    /// An empty list that takes this many entries.
    pub(super) fn with_limit(limit: u32) -> Self {
        Self { entries: Arc::new(StickyCas::with_limit(limit)), sealed: None, mode: None }
    }

    /// The list for a reader.
    pub(super) fn share(&self) -> &Arc<StickyCas<Entry>> {
        &self.entries
    }

    /// Whether it has as many entries as it may.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.limit()
    }

    /// The phase that was open or next when the list was sealed.
    pub(super) fn sealed(&self) -> Option<Phase> {
        self.sealed
    }

    /// Seals the list (A2).
    pub(super) fn seal(&mut self, phase: Phase) {
        self.sealed = Some(phase);
    }

    /// Whether the list was sealed when this phase began.
    pub(super) fn is_sealed_at(&self, phase: Phase) -> bool {
        self.sealed.is_some_and(|since| since <= phase)
    }

    /// The mode of the sealed list (D1).
    pub(super) fn mode(&mut self) -> Option<&Value> {
        let entries = &self.entries;
        self.mode.get_or_insert_with(|| mode(entries.iter().map(|entry| &entry.value)).cloned()).as_ref()
    }

    /// The length of the list when this phase began: each entry knows the phase that added it, and they are
    /// in order.
    pub(super) fn length_at(&self, phase: Phase) -> u32 {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(Position::new(middle)) {
                Some(entry) if entry.phase < phase => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

impl Deref for List {
    type Target = StickyCas<Entry>;

    fn deref(&self) -> &StickyCas<Entry> {
        &self.entries
    }
}

/// A copy of the list: the appends of a cloned machine are not added to the original's list.
impl Clone for List {
    fn clone(&self) -> Self {
        let Self { entries, sealed, mode } = self;
        Self { entries: Arc::new(StickyCas::clone(entries)), sealed: *sealed, mode: mode.clone() }
    }
}
