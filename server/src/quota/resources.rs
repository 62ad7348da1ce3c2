//! The resources that clients share, with a limit for each principal: permits ([`Quota`]) and bytes
//! ([`Buffer`]).

use stickycas_proto::v1::RefusalReason;

use super::admission::Bound;
use crate::limits::Limits;

named_values! {
    /// The resources of which each principal has a limited number.
    Quota {
        Connections = "connections",
        Calls = "calls",
        AttachStreams = "attach_streams",
        WatchStreams = "watch_streams",
    }
}

pub(super) const QUOTAS: usize = Quota::ALL.len();

impl Quota {
    pub(crate) fn limit(self, limits: &Limits) -> u32 {
        match self {
            Self::Connections => limits.connections_per_principal,
            Self::Calls => limits.calls_per_principal,
            Self::AttachStreams => limits.attach_streams_per_principal,
            Self::WatchStreams => limits.watch_streams_per_principal,
        }
    }

    /// Those of all principals together.
    pub(super) fn total(self, limits: &Limits) -> usize {
        match self {
            // The others belong to nobody yet.
            Self::Connections => limits.connections.saturating_sub(limits.unclaimed_connections).max(1),
            Self::Calls => limits.calls,
            Self::AttachStreams => limits.attach_streams,
            Self::WatchStreams => limits.watch_streams,
        }
    }

    pub(super) const fn bound(self) -> Bound {
        match self {
            Self::Connections => Bound::Connections,
            Self::Calls => Bound::Calls,
            Self::AttachStreams => Bound::AttachStreams,
            Self::WatchStreams => Bound::WatchStreams,
        }
    }

    pub(super) fn refusal(self) -> (RefusalReason, &'static str) {
        match self {
            Self::Connections => (RefusalReason::TooManyConnections, "connections"),
            Self::Calls => (RefusalReason::TooManyStreams, "unanswered calls"),
            Self::AttachStreams => (RefusalReason::TooManyStreams, "Attach streams"),
            Self::WatchStreams => (RefusalReason::TooManyStreams, "Watch streams"),
        }
    }
}

/// The bytes that are held for clients, by what they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    /// Messages of which not all has come.
    Requests,
    /// Long chunks of responses that have not left the server, and what is kept to make the next ones of.
    Answers,
    /// Windows of connections, above the smallest.
    Windows,
}

impl Buffer {
    pub(crate) const ALL: [Self; BUFFERS] = [Self::Requests, Self::Answers, Self::Windows];

    pub(super) fn total(self, limits: &Limits) -> usize {
        match self {
            Self::Requests => limits.incomplete_request_bytes,
            Self::Answers => limits.unread_answer_bytes,
            Self::Windows => limits.window_bytes,
        }
    }

    pub(super) const fn bound(self) -> Bound {
        match self {
            Self::Requests => Bound::IncompleteRequestBytes,
            Self::Answers => Bound::UnreadAnswerBytes,
            Self::Windows => Bound::WindowBytes,
        }
    }
}

pub(super) const BUFFERS: usize = Buffer::Windows as usize + 1;
