//! The watchdog of Attach streams: it closes the connection of a client that keeps the connection alive and leaves
//! its answers unread.
//!
//! The transport stops polling a stream whose client reads nothing, so the stream itself would never notice. The
//! watchdog checks all streams from outside, a few times in the longest time that answers may lie unread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use crate::instances::Outbox;
use crate::quota::{Account, Counter};
use crate::transport::Connection;

/// All open Attach streams. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Watchdog(Arc<Mutex<Slab<Entry>>>);

/// One stream.
#[derive(Debug)]
struct Entry {
    outbox: Weak<Outbox>,
    connection: Connection,
    account: Arc<Account>,
    /// How many batches the stream had taken out at the last check that saw progress, and when that was.
    batches: u64,
    since: Instant,
}

/// Keeps a stream registered until it is dropped.
#[derive(Debug)]
pub(super) struct Registration {
    watchdog: Watchdog,
    key: usize,
}

impl Watchdog {
    /// Registers a new stream.
    pub(super) fn register(
        &self,
        outbox: &Arc<Outbox>,
        connection: Connection,
        account: Arc<Account>,
    ) -> Registration {
        let outbox = Arc::downgrade(outbox);
        let entry = Entry { outbox, connection, account, batches: 0, since: Instant::now() };
        Registration { watchdog: self.clone(), key: self.entries().insert(entry) }
    }

    /// Aborts, for ever, connections whose clients leave answers unread for this long or a little longer.
    pub(super) async fn run(&self, unread_for: Duration) {
        let mut checks = tokio::time::interval((unread_for / 4).max(Duration::from_millis(1)));
        loop {
            checks.tick().await;
            for (_, entry) in self.entries().iter_mut() {
                entry.check(unread_for);
            }
        }
    }

    /// Frames that wait on all streams for their clients, and on the stream with the most.
    pub(super) fn unread(&self) -> (usize, usize) {
        let entries = self.entries();
        let lengths = entries.iter().filter_map(|(_, entry)| Some(entry.outbox.upgrade()?.len()));
        lengths.fold((0, 0), |(all, most), length| (all + length, most.max(length)))
    }

    fn entries(&self) -> MutexGuard<'_, Slab<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn check(&mut self, unread_for: Duration) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        let batches = outbox.batches();
        if outbox.len() == 0 || batches != self.batches {
            (self.batches, self.since) = (batches, Instant::now());
        } else if self.since.elapsed() >= unread_for {
            if self.connection.give_up() {
                let principal = self.account.name();
                tracing::warn!(?principal, "connection aborted: its client does not read");
                self.account.count(Counter::ConnectionUnread);
            }
            self.since = Instant::now();
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.watchdog.entries().try_remove(self.key);
    }
}
