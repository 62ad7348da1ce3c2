//! The list of one instance, which readers may hold on to while the machine goes on.

use std::ops::Deref;
use std::sync::Arc;

use super::Entry;
use crate::sticky_cas::StickyCas;

/// A StickyCAS object that is shared with readers, and with nobody who appends.
#[derive(Debug)]
pub(super) struct List(Arc<StickyCas<Entry>>);

impl List {
    /// An empty list that takes this many entries.
    pub(super) fn with_limit(limit: u32) -> Self {
        Self(Arc::new(StickyCas::with_limit(limit)))
    }

    /// The list for a reader.
    pub(super) fn share(&self) -> &Arc<StickyCas<Entry>> {
        &self.0
    }
}

impl Deref for List {
    type Target = StickyCas<Entry>;

    fn deref(&self) -> &StickyCas<Entry> {
        &self.0
    }
}

/// A list of its own: a cloned machine goes its own way.
impl Clone for List {
    fn clone(&self) -> Self {
        Self(Arc::new(StickyCas::clone(&self.0)))
    }
}
