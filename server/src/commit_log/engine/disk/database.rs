//! The database of a log.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use redb::Database;

/// Bytes at the start of a database that [`NOT_CLOSED`] is in.
pub(super) const HEADER: usize = FLAGS + 1;
/// The place of the flags in a database.
const FLAGS: usize = 9;
/// The flag that a database has as long as it is open.
const NOT_CLOSED: u8 = 2;

/// A database that is not closed in order once it is given up: closing writes to its file.
pub(super) struct LogDatabase {
    /// `None`: it is dropped.
    database: Option<Database>,
    is_given_up: AtomicBool,
}

impl LogDatabase {
    /// Something of the log could not be written: nothing more is.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// It could be written.
    pub(super) fn keep(&self) {
        self.is_given_up.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

impl From<Database> for LogDatabase {
    fn from(database: Database) -> Self {
        Self { database: Some(database), is_given_up: AtomicBool::new(false) }
    }
}

impl Deref for LogDatabase {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.database.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for LogDatabase {
    fn deref_mut(&mut self) -> &mut Database {
        self.database.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for LogDatabase {
    fn drop(&mut self) {
        let database = self.database.take();
        if self.is_given_up() {
            mem::forget(database);
        }
    }
}

/// `header`: the first bytes of the database as they were before it was opened.
pub(super) fn warn_if_cut_off(header: &[u8]) {
    if was_cut_off(header) {
        tracing::warn!(
            "the server before this one did not end in order: what it had written and not committed is cut off"
        );
    }
}

/// Whether the last commit to a database that begins with these bytes may be cut off when it is opened.
pub(super) fn was_cut_off(header: &[u8]) -> bool {
    header.get(FLAGS).is_some_and(|flags| flags & NOT_CLOSED != 0)
}
