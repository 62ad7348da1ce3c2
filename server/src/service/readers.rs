//! Who does not read: a client that lets answers lie on its Attach stream while it keeps its connection alive.
//!
//! The transport stops polling a stream whose client takes nothing, so the stream itself would never notice. Somebody
//! else looks at all of them now and then; whose answers have lain too long loses its connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use slab::Slab;
use tokio::time::Instant;

use crate::instances::Outbox;
use crate::quota::{Account, Counter};
use crate::transport::Connection;

/// All open Attach streams. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers(Arc<Mutex<Slab<Reader>>>);

#[derive(Debug)]
struct Reader {
    outbox: Weak<Outbox>,
    connection: Connection,
    account: Arc<Account>,
    /// What it had taken when it was last seen to take something, and when that was.
    taken: u64,
    since: Instant,
}

/// A stream among the readers, until this is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    readers: Readers,
    key: usize,
}

impl Readers {
    /// A new stream.
    pub(super) fn join(
        &self,
        outbox: &Arc<Outbox>,
        connection: Connection,
        account: Arc<Account>,
    ) -> Reading {
        let outbox = Arc::downgrade(outbox);
        let reader = Reader { outbox, connection, account, taken: 0, since: Instant::now() };
        Reading { readers: self.clone(), key: self.all().insert(reader) }
    }

    /// Cuts off whoever leaves answers unread for this long, or a little longer, for ever.
    pub(super) async fn run(&self, unread_for: Duration) {
        let mut turns = tokio::time::interval((unread_for / 4).max(Duration::from_millis(1)));
        loop {
            turns.tick().await;
            for (_, reader) in self.all().iter_mut() {
                reader.look(unread_for);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, Slab<Reader>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    fn look(&mut self, unread_for: Duration) {
        let Some(outbox) = self.outbox.upgrade() else { return };
        let taken = outbox.taken();
        if outbox.len() == 0 || taken != self.taken {
            (self.taken, self.since) = (taken, Instant::now());
        } else if self.since.elapsed() >= unread_for {
            tracing::warn!(principal = ?self.account.principal().as_str(), "connection cut: its client does not read");
            self.account.count(Counter::ConnectionUnread);
            self.connection.abort();
            self.since = Instant::now();
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.readers.all().try_remove(self.key);
    }
}
