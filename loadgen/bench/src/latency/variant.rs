//! The measurements, and the times of one.

use std::time::Duration;

/// A measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Message,
    Messages,
    Call,
    Calls,
    Attach { ahead: bool, durable: bool },
    Unary { durable: bool },
    Sync,
    Commit,
}

use Variant::{Attach, Call, Calls, Commit, Message, Messages, Sync, Unary};

/// All candidates, in the order of the results.
pub(super) const VARIANTS: [Variant; 12] = [
    Message,
    Messages,
    Attach { ahead: false, durable: false },
    Attach { ahead: true, durable: false },
    Call,
    Calls,
    Unary { durable: false },
    Sync,
    Commit,
    Attach { ahead: false, durable: true },
    Attach { ahead: true, durable: true },
    Unary { durable: true },
];

/// The times of one instance, or of one round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    /// Of creating the instance; zero without one.
    pub(super) create: Duration,
    /// From the first message to the last decision.
    pub(super) decide: Duration,
}

impl Variant {
    pub(super) fn name(self) -> &'static str {
        match self {
            Message => "message",
            Messages => "messages",
            Call => "call",
            Calls => "calls",
            Attach { ahead: false, durable: false } => "attach",
            Attach { ahead: true, durable: false } => "attach-ahead",
            Attach { ahead: false, durable: true } => "attach-durable",
            Attach { ahead: true, durable: true } => "attach-ahead-durable",
            Unary { durable: false } => "unary",
            Unary { durable: true } => "unary-durable",
            Sync => "sync",
            Commit => "commit",
        }
    }

    /// The candidates that it is compared with.
    pub(super) fn baselines(self) -> &'static [Self] {
        match self {
            Message | Messages | Call | Calls | Sync | Commit => &[],
            Attach { .. } => &[Message, Messages],
            Unary { .. } => &[Call, Calls],
        }
    }

    /// Whether the server keeps its log on a disk.
    pub(super) fn is_durable(self) -> bool {
        matches!(self, Attach { durable: true, .. } | Unary { durable: true })
    }

    /// The same with a server that keeps everything in memory; `None` for those without a log.
    pub(super) fn in_memory(self) -> Option<Self> {
        match self {
            Attach { ahead, durable: true } => Some(Attach { ahead, durable: false }),
            Unary { durable: true } => Some(Unary { durable: false }),
            _ => None,
        }
    }
}
