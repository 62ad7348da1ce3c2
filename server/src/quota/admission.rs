//! Whether rates and shares are enforced, and how often each bound refused a client or would have.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::config::Admission;

/// What may be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    RequestRate,
    Connections,
    Calls,
    AttachStreams,
    WatchStreams,
    Principals,
    IncompleteRequestBytes,
    UnreadAnswerBytes,
    WindowBytes,
    LogShare,
}

impl Bound {
    pub(crate) const ALL: [Self; BOUNDS] = [
        Self::RequestRate,
        Self::Connections,
        Self::Calls,
        Self::AttachStreams,
        Self::WatchStreams,
        Self::Principals,
        Self::IncompleteRequestBytes,
        Self::UnreadAnswerBytes,
        Self::WindowBytes,
        Self::LogShare,
    ];

    /// The name, as metrics have it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RequestRate => "requests_per_second",
            Self::Connections => "connections",
            Self::Calls => "calls",
            Self::AttachStreams => "attach_streams",
            Self::WatchStreams => "watch_streams",
            Self::Principals => "principals",
            Self::IncompleteRequestBytes => "incomplete_request_bytes",
            Self::UnreadAnswerBytes => "unread_answer_bytes",
            Self::WindowBytes => "window_bytes",
            Self::LogShare => "log_share_bytes",
        }
    }
}

const BOUNDS: usize = Bound::LogShare as usize + 1;

/// How often each bound was exceeded, and what became of it.
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

    /// How many requests were refused because of a bound.
    pub(crate) fn refused(&self, bound: Bound) -> u64 {
        self.refused[bound as usize].load(Relaxed)
    }

    /// How many would have been.
    pub(crate) fn would_refuse(&self, bound: Bound) -> u64 {
        self.would_refuse[bound as usize].load(Relaxed)
    }
}
