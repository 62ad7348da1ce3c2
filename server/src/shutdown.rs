//! The order in which a server that was told to stop lets go of its clients.
//!
//! First health says NOT_SERVING, so that load balancers look elsewhere. Then time of all instances stands still, since
//! nobody is served from here on (F3). Then nothing new is accepted, and open streams and waiting calls end with
//! UNAVAILABLE; their accesses stay (SPEC F8a). Connections that are open when the
//! drain deadline passes are aborted by [`run`](crate::run).

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic_health::server::HealthReporter;

use crate::instances::Instances;
use crate::readiness::{Readiness, State, set_health};

/// Begins to drain. `timers`: the task that runs the timers of the instances.
pub(crate) async fn begin(
    readiness: &Readiness,
    health: &mut HealthReporter,
    services: &[&str],
    timers: AbortOnDropHandle<()>,
    drain: &CancellationToken,
    instances: &Instances,
) {
    readiness.set(State::Draining);
    // Not left to the task that reports changes: clients are told before their streams end.
    set_health(health, services, State::Draining).await;
    timers.abort();
    // What it was doing is done; a task that was aborted has no other result.
    let _ = timers.await;
    drain.cancel();
    instances.cancel_waiters();
}
