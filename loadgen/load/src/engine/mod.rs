//! Puts a load on a server: begins instances as the profile says, and waits for their ends.
//!
//! | where | what |
//! | --- | --- |
//! | here, `run` | the state that all instances share; the course of a load |
//! | `pacer` | a thread that says when instances begin in an open loop |
//! | `instance` | one instance from its planned start to its verdict |
//! | `instance_state`, `process_task` | its processes: how they ended; one of them |
//! | `client_pool`, `stream`, `unary` | principals and carriers of accesses |
//!
//! Nothing waits for ever: calls and instances without progress are given up after the profile's `stall`,
//! connections and streams that do not open after that or `TIME_TO_OPEN`, and an end of the load cuts off
//! what is left after `drain`.

mod client_pool;
mod instance;
mod instance_state;
mod pacer;
mod process_task;
mod run;
mod stream;
mod unary;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use stickycas_client::{Client, Error};
use stickycas_proto::v1::RefusalReason;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::client_pool::ClientPool;
pub use self::run::{CutShort, LoadOutcome, LoadProgress, run, run_at};
use crate::measure::{Label, Measure, Meter, OperationOutcome, record};
use crate::profile::{Open, Pacing, Profile};
use crate::recorder::Starts;
use crate::verdicts::VerdictTally;

/// The least time that a connection or a stream has to open. A `stall` may be shorter than opening takes.
const TIME_TO_OPEN: Duration = Duration::from_secs(10);

/// The state that all connections of a load share.
struct Shared {
    meter: Meter,
    stall: Duration,
}

impl Shared {
    /// The time that a connection or a stream has to open.
    fn time_to_open(&self) -> Duration {
        self.stall.max(TIME_TO_OPEN)
    }

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

/// The state that all instances of a load share: the profile, the connections, and the counts.
struct Engine {
    profile: Profile,
    shared: Arc<Shared>,
    /// Of the coordinator.
    client: Client,
    client_pool: ClientPool,
    /// A permit for each history that may be followed.
    watchers: Arc<Semaphore>,
    start: Instant,
    starts: Mutex<Starts>,
    tally: Mutex<VerdictTally>,
    /// Whether everything is to end now.
    cut: CancellationToken,
    /// Whether an instance has been created.
    has_created: AtomicBool,
    /// Why none ever will be.
    impossible: OnceLock<RefusalReason>,
    /// Whether there is such a reason.
    is_impossible: CancellationToken,
}

impl Engine {
    /// Whether what was planned to begin then counts in figures.
    fn is_measured(&self, planned: Instant) -> bool {
        planned.saturating_duration_since(self.start) >= self.profile.warm_up
    }

    /// An instance begins, so long after its plan.
    fn started(&self, measured: bool, lag: Duration) {
        if !measured {
            return;
        }
        self.starts().planned += 1;
        if let Pacing::Open(Open { late_after, .. }) = &self.profile.pacing {
            self.starts().late += u64::from(lag > *late_after);
            let label = Label::own(Measure::StartLag, OperationOutcome::Done);
            record(&mut self.shared.meter.shard(0), label, lag);
        }
    }

    /// No instance was created, for this reason. If it is one that will not pass, and none was created
    /// before, the load ends.
    fn not_created(&self, reason: RefusalReason) {
        use RefusalReason::{BadParameters, Malformed, NoIdentity, NotCoordinator};
        let stays = matches!(reason, BadParameters | Malformed | NoIdentity | NotCoordinator);
        if stays && !self.has_created.load(Ordering::Relaxed) {
            self.impossible.get_or_init(|| reason);
            self.is_impossible.cancel();
        }
    }

    /// Returns when everything is to end.
    async fn cut_off(&self) {
        // It fails only when the engine is gone.
        self.cut.cancelled().await;
    }

    /// The starts until now that count in figures.
    fn starts(&self) -> MutexGuard<'_, Starts> {
        self.starts.lock().expect("nobody panics while holding it")
    }

    /// The verdicts until now.
    fn tally(&self) -> MutexGuard<'_, VerdictTally> {
        self.tally.lock().expect("nobody panics while holding it")
    }
}

/// The outcome that stands for an error of the client.
fn fault_of(error: &Error) -> OperationOutcome {
    match error {
        Error::Refused(refused) => OperationOutcome::Refused(refused.reason),
        Error::GaveUp { last, .. } => fault_of(last),
        Error::Unreachable { .. } => OperationOutcome::Unreachable,
        Error::Undecided(_) => OperationOutcome::GaveUp,
        // `UnexpectedPeer`, `Protocol`, `InvalidArgument`, and what a later client may add.
        _ => OperationOutcome::Protocol,
    }
}

/// Sleeps until this moment; for ever if there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
