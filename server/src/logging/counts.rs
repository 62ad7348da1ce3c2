//! What has become of the lines of the program's log.

use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened to log lines since the program started.
#[derive(Debug, Default)]
pub(crate) struct LogCounts {
    written: AtomicU64,
    dropped: AtomicU64,
    limited: AtomicU64,
}

static COUNTS: LogCounts =
    LogCounts { written: AtomicU64::new(0), dropped: AtomicU64::new(0), limited: AtomicU64::new(0) };

/// The counts of the program's log.
pub(crate) fn counts() -> &'static LogCounts {
    &COUNTS
}

impl LogCounts {
    /// Lines that were written.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Lines that were dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Lines that were left out because there were too many of their kind.
    pub(crate) fn limited(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }

    pub(super) fn add_written(&self, lines: u64) {
        self.written.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    pub(super) fn add_limited(&self, lines: u64) {
        self.limited.fetch_add(lines, Ordering::Relaxed);
    }
}
