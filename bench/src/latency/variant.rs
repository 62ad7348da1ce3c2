//! What is measured, and the times of one measurement.

use std::time::Duration;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    Message,
    Messages,
    Call,
    Calls,
    Attach { ahead: bool },
    Unary,
}

use Variant::{Attach, Call, Calls, Message, Messages, Unary};

/// All candidates, in the order of the results.
pub(super) const VARIANTS: [Variant; 7] =
    [Message, Messages, Attach { ahead: false }, Attach { ahead: true }, Call, Calls, Unary];

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
            Attach { ahead: false } => "attach",
            Attach { ahead: true } => "attach-ahead",
            Unary => "unary",
        }
    }

    /// The candidates that it is compared with.
    pub(super) fn baselines(self) -> &'static [Self] {
        match self {
            Message | Messages | Call | Calls => &[],
            Attach { .. } => &[Message, Messages],
            Unary => &[Call, Calls],
        }
    }
}
