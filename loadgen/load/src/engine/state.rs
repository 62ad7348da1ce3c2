//! The state that all instances of a load share: the profile, the connections, and the counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stickycas_client::Client;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::client_pool::ClientPool;
use crate::measure::{Label, Measure, OperationOutcome, record};
use crate::profile::{Open, Pacing, Profile};
use crate::recorder::Starts;
use crate::verdicts::{InstanceVerdict, VerdictTally};

/// See the module.
pub(super) struct Engine {
    pub(super) profile: Profile,
    pub(super) shared: Arc<Shared>,
    /// Of the coordinator.
    pub(super) client: Client,
    pub(super) client_pool: ClientPool,
    /// A permit for each history that may be followed.
    pub(super) watchers: Arc<Semaphore>,
    pub(super) start: Instant,
    pub(super) planned: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) tally: Mutex<VerdictTally>,
    /// Whether everything is to end now.
    pub(super) cut: CancellationToken,
    /// A permit for each instance that may be under way.
    pub(super) room: Arc<Semaphore>,
    pub(super) in_flight: AtomicU64,
}

impl Engine {
    /// Whether what was planned to begin then counts in figures.
    pub(super) fn is_measured(&self, planned: Instant) -> bool {
        planned.saturating_duration_since(self.start) >= self.profile.warm_up
    }

    /// An instance begins, so long after its plan.
    pub(super) fn started(&self, measured: bool, lag: Duration) {
        if !measured {
            return;
        }
        self.planned.fetch_add(1, Ordering::Relaxed);
        if let Pacing::Open(Open { late_after, .. }) = &self.profile.pacing {
            self.late.fetch_add(u64::from(lag > *late_after), Ordering::Relaxed);
            record(
                &mut self.shared.meter.shard(0),
                Label::own(Measure::StartLag, OperationOutcome::Done),
                lag,
            );
        }
    }

    /// An instance was started, and there is nothing to judge.
    pub(super) fn not_created(&self) {
        self.tally.lock().expect("nobody panics while holding it").judged.not_created += 1;
    }

    pub(super) fn judged(&self, judgement: InstanceVerdict) {
        self.tally.lock().expect("nobody panics while holding it").take(judgement);
    }

    /// Returns when everything is to end.
    pub(super) async fn cut_off(&self) {
        // It fails only when the engine is gone.
        self.cut.cancelled().await;
    }

    pub(super) fn starts(&self) -> Starts {
        Starts {
            planned: self.planned.load(Ordering::Relaxed),
            late: self.late.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }
}
