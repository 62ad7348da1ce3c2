//! Puts a load on a server: begins instances as the profile says, and waits for their ends.
//!
//! | where | what |
//! | --- | --- |
//! | `run`, `state` | the course of a load; the state that its instances share |
//! | `pacer` | a thread that says when instances begin in an open loop |
//! | `instance` | one instance from its planned start to its verdict |
//! | `instance_state`, `process_task` | its processes: how they ended; one of them |
//! | `client_pool`, `stream`, `unary` | principals and carriers of accesses |
//!
//! Nothing waits for ever: connections, calls and instances without progress are given up after the profile's
//! `stall`, and an end of the load cuts off what is left after `drain`.

mod client_pool;
mod instance;
mod instance_state;
mod pacer;
mod process_task;
mod run;
mod state;
mod stream;
mod unary;

use std::time::Duration;

use stickycas_client::Error;
use tokio::time::{Instant, sleep_until};

pub use self::run::{CutShort, LoadOutcome, LoadProgress, run};
use crate::measure::{Fault, Meter, OperationOutcome};

/// The state that all connections of a load share.
struct Shared {
    meter: Meter,
    stall: Duration,
}

impl Shared {
    /// The outcome that stands for an error; of each kind, the first message is kept.
    fn ended_by(&self, error: &Error) -> OperationOutcome {
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

/// Sleeps until this moment; for ever if there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
