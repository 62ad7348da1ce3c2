//! The time that a client has to read an answer: it closes the connections of clients that leave one unread for longer.
//!
//! The transport does not poll the body of a response while its client opens no window, so no body notices the time
//! itself; and HTTP/2 has no way to tell the client a status behind bytes that it does not take. So each piece of an
//! answer that waits in the transport counts on its connection, under the period in which it was handed over. A few times
//! in the allowed time a new period begins, and what is left of an old one was not read. No clock is read for an
//! answer, and no lock taken.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use slab::Slab;

/// Periods in the time that answers may lie unread. What was handed over in one is checked when this many whole ones
/// have passed since.
const PERIODS: u64 = 4;
/// More than periods that are told apart.
const SLOTS: usize = 8;

/// The answers that all connections have not taken. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadAnswers(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    period: AtomicU64,
    connections: Mutex<Slab<Weak<Unread>>>,
}

/// Whose client leaves answers unread: a connection.
pub(super) trait Unreading: fmt::Debug + Send + Sync {
    /// The client has left an answer unread for too long.
    fn give_up(&self);
}

/// Those of one connection.
#[derive(Debug)]
pub(crate) struct Unread {
    answers: UnreadAnswers,
    key: OnceLock<usize>,
    connection: Weak<dyn Unreading>,
    /// By period, modulo their number: pieces that have not left.
    pieces: [AtomicUsize; SLOTS],
}

/// A piece of an answer that has not left; it has when this is dropped.
#[derive(Debug)]
pub(crate) struct UnreadPiece {
    unread: Arc<Unread>,
    slot: usize,
}

impl UnreadAnswers {
    /// Those of a new connection.
    pub(super) fn of(&self, connection: Weak<dyn Unreading>) -> Arc<Unread> {
        let (answers, key, pieces) = (self.clone(), OnceLock::new(), Default::default());
        let unread = Arc::new(Unread { answers, key, connection, pieces });
        let _ = unread.key.set(self.connections().insert(Arc::downgrade(&unread)));
        unread
    }

    /// Closes, for ever, connections whose clients leave an answer unread for this long or a little longer.
    pub(crate) async fn run(&self, unread_for: Duration) {
        let period = unread_for / u32::try_from(PERIODS).unwrap_or(1);
        let mut periods = tokio::time::interval(period.max(Duration::from_millis(1)));
        loop {
            periods.tick().await;
            self.begin_period();
        }
    }

    fn begin_period(&self) {
        let period = self.0.period.fetch_add(1, Relaxed) + 1;
        // Its last piece was handed over just before the period after it began.
        let Some(old) = period.checked_sub(PERIODS + 1) else { return };
        let slot = usize::try_from(old % SLOTS as u64).unwrap_or(0);
        let connections: Vec<_> = self.connections().iter().filter_map(|(_, it)| it.upgrade()).collect();
        for unread in connections {
            if unread.pieces[slot].load(Relaxed) > 0
                && let Some(connection) = unread.connection.upgrade()
            {
                connection.give_up();
            }
        }
    }

    fn connections(&self) -> MutexGuard<'_, Slab<Weak<Unread>>> {
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unread {
    /// A piece of an answer is handed to the transport.
    pub(crate) fn piece(self: &Arc<Self>) -> UnreadPiece {
        let slot = usize::try_from(self.answers.0.period.load(Relaxed) % SLOTS as u64).unwrap_or(0);
        self.pieces[slot].fetch_add(1, Relaxed);
        UnreadPiece { unread: self.clone(), slot }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            self.answers.connections().try_remove(*key);
        }
    }
}

impl Drop for UnreadPiece {
    fn drop(&mut self) {
        self.unread.pieces[self.slot].fetch_sub(1, Relaxed);
    }
}
