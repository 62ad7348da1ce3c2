//! The events of a run, in order and with their virtual time: every message of the network that arrived, and
//! every disturbance.

use std::fmt::{Display, Write as _};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::os;

/// The trace of a run. Clones are the same trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Arc<Mutex<Written>>);

#[derive(Debug, Default)]
struct Written {
    text: String,
    connections: u64,
    messages: u64,
    disturbances: u64,
}

impl Trace {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a new connection.
    pub(crate) fn number_connection(&self) -> u64 {
        let mut written = self.written();
        written.connections += 1;
        written.connections
    }

    /// These bytes arrived on this connection; `to` reads them.
    pub(crate) fn message(&self, connection: u64, to: &str, bytes: &[u8]) {
        let mut written = self.written();
        written.messages += 1;
        let (time, length, digest) = (os::elapsed_micros(), bytes.len(), digest(bytes));
        // Writing to a string does not fail.
        let _ = writeln!(written.text, "{time} {connection} to {to}: {length} bytes {digest:016x}");
    }

    /// A disturbance of the network or of the server.
    pub(crate) fn disturbance(&self, what: impl Display) {
        self.written().disturbances += 1;
        self.note(what);
    }

    /// An effect of a disturbance.
    pub(crate) fn note(&self, what: impl Display) {
        let time = os::elapsed_micros();
        // Writing to a string does not fail.
        let _ = writeln!(self.written().text, "{time} {what}");
    }

    /// Messages and disturbances so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let written = self.written();
        (written.messages, written.disturbances)
    }

    /// Everything, a line each.
    pub(crate) fn text(&self) -> String {
        self.written().text.clone()
    }
}

/// A digest that is the same in every run of this program.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
