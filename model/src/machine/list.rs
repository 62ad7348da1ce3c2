//! The list of one instance, which readers may hold on to while the machine goes on.

use std::ops::Deref;
use std::sync::Arc;

use crate::sticky_cas::StickyCas;
use crate::types::{Phase, ProcessId, Value};

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

/// A StickyCAS object that is shared with readers; only the machine appends to it.
#[derive(Debug)]
pub(super) struct SharedList(Arc<StickyCas<Entry>>);

impl SharedList {
    /// An empty list that takes this many entries.
    pub(super) fn with_limit(limit: u32) -> Self {
        Self(Arc::new(StickyCas::with_limit(limit)))
    }

    /// The list for a reader.
    pub(super) fn share(&self) -> &Arc<StickyCas<Entry>> {
        &self.0
    }
}

impl Deref for SharedList {
    type Target = StickyCas<Entry>;

    fn deref(&self) -> &StickyCas<Entry> {
        &self.0
    }
}

/// A copy of the list: what a cloned machine appends is not added to the original's list.
impl Clone for SharedList {
    fn clone(&self) -> Self {
        Self(Arc::new(StickyCas::clone(&self.0)))
    }
}
