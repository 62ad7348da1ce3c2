//! The Attach streams that are open, for metrics.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::instances::Outbox;

/// Their outboxes. One that is gone is forgotten when room is needed, or when the others are looked at.
#[derive(Debug, Default)]
pub(super) struct OpenStreams(Mutex<Vec<Weak<Outbox>>>);

impl OpenStreams {
    /// Adds a new stream.
    pub(super) fn add(&self, outbox: &Arc<Outbox>) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() == open.capacity() {
            open.retain(|outbox| outbox.strong_count() > 0);
        }
        open.push(Arc::downgrade(outbox));
    }

    /// Frames that wait on all streams for their clients, and on the stream with the most.
    pub(super) fn unread(&self) -> (usize, usize) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|outbox| outbox.strong_count() > 0);
        let lengths = open.iter().filter_map(|outbox| Some(outbox.upgrade()?.len()));
        lengths.fold((0, 0), |(all, most), length| (all + length, most.max(length)))
    }
}
