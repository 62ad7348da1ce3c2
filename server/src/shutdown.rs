//! The order in which a server that was told to stop lets go of its clients.
//!
//! First health says NOT_SERVING, so that load balancers look elsewhere. Then nothing new is accepted, and open
//! streams and waiting calls end with UNAVAILABLE; their accesses stay (SPEC F8a). Connections that are open when the
//! drain deadline passes are aborted by [`run`](crate::run).

use tokio_util::sync::CancellationToken;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use crate::instances::Instances;

/// Begins to drain.
pub(crate) async fn begin(health: &mut HealthReporter, drain: &CancellationToken, instances: &Instances) {
    health.set_service_status("", ServingStatus::NotServing).await;
    // Cleared for a moment, so that streams that watch it get the change and end.
    health.clear_service_status("").await;
    health.set_service_status("", ServingStatus::NotServing).await;
    drain.cancel();
    instances.cancel_waiters();
}
