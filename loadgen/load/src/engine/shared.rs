//! The state that all connections of a load share.

use std::time::Duration;

use stickycas_client::Error;

use crate::measure::{Fault, Meter, OperationOutcome};

/// See the module.
pub(super) struct Shared {
    pub(super) meter: Meter,
    pub(super) stall: Duration,
}

impl Shared {
    /// The outcome that stands for an error; of each kind, the first message is kept.
    pub(super) fn ended_by(&self, error: &Error) -> OperationOutcome {
        let ended = fault_of(error);
        // A refusal is its kind already.
        let said = match error {
            Error::Refused(refused) => refused.message.clone(),
            _ => error.to_string(),
        };
        self.meter.said(ended, &said);
        ended
    }
}

/// The outcome that stands for an error of the client.
fn fault_of(error: &Error) -> OperationOutcome {
    match error {
        Error::Refused(refused) => OperationOutcome::Refused(refused.reason),
        Error::GaveUp { last, .. } => fault_of(last),
        Error::Unreachable { .. } => OperationOutcome::Failed(Fault::Unreachable),
        Error::Undecided(_) => OperationOutcome::Failed(Fault::GaveUp),
        // `UnexpectedPeer`, `Protocol`, `InvalidArgument`, and what a later client may add.
        _ => OperationOutcome::Failed(Fault::Protocol),
    }
}
