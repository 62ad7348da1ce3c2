//! Whether rates and shares are enforced, and how often each bound refused a client or would have.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::Admission;

named_values! {
    /// The bounds that a request may exceed.
    Bound {
        RequestRate = "requests_per_second",
        Connections = "connections",
        Calls = "calls",
        AttachStreams = "attach_streams",
        WatchStreams = "watch_streams",
        Principals = "principals",
        IncompleteRequestBytes = "incomplete_request_bytes",
        UnreadAnswerBytes = "unread_answer_bytes",
        WindowBytes = "window_bytes",
        LogShare = "log_share_bytes",
    }
}

const BOUNDS: usize = Bound::ALL.len();

/// The requests above each bound: the refused ones, and those that would have been.
#[derive(Debug)]
pub(crate) struct AdmissionCounts {
    mode: Admission,
    refused: [AtomicU64; BOUNDS],
    would_refuse: [AtomicU64; BOUNDS],
}

impl AdmissionCounts {
    pub(super) fn new(mode: Admission) -> Self {
        Self { mode, refused: Default::default(), would_refuse: Default::default() }
    }

    pub(super) fn mode(&self) -> Admission {
        self.mode
    }

    /// A rate or a share of a principal is exceeded. Whether the request is to be refused.
    pub(super) fn refuses(&self, bound: Bound, principal: &str) -> bool {
        match self.mode {
            Admission::Off => {}
            Admission::Observe => {
                self.would_refuse[bound as usize].fetch_add(1, Relaxed);
                tracing::warn!(bound = bound.name(), ?principal, "would be refused: admission = observe");
            }
            Admission::Enforce => self.count_refused(bound),
        }
        self.mode == Admission::Enforce
    }

    /// A request is refused because of a bound of the whole server.
    pub(super) fn count_refused(&self, bound: Bound) {
        self.refused[bound as usize].fetch_add(1, Relaxed);
    }

    /// The number of requests that were refused because of a bound.
    pub(crate) fn refused(&self, bound: Bound) -> u64 {
        self.refused[bound as usize].load(Relaxed)
    }

    /// The number of those that would have been.
    pub(crate) fn would_refuse(&self, bound: Bound) -> u64 {
        self.would_refuse[bound as usize].load(Relaxed)
    }
}
