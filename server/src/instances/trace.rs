//! The log lines of an instance's events, for operators and developers.

use stickycas_model::history::Event;
use stickycas_proto::names::InstanceId;

/// Logs what operators and developers may want to know.
pub(super) fn trace_event(id: InstanceId, event: &Event) {
    match event {
        Event::Offence(offence) => tracing::warn!(
            instance = %id, process = %offence.process, kind = ?offence.kind, detail = ?offence.detail, "offence"
        ),
        Event::GatheringEnded { joined } => tracing::debug!(instance = %id, joined, "gathering ended"),
        // One join may spend the patience of all others: one line of the step tells of all.
        Event::PatienceSpent { process } => tracing::trace!(instance = %id, %process, "patience spent"),
        Event::Stepped { phase, warp, length } => {
            tracing::trace!(instance = %id, %phase, %warp, length, "phase executed");
        }
        Event::Added { position, process, phase, .. } => {
            tracing::trace!(instance = %id, %position, %process, %phase, "entry added");
        }
        Event::Sealed { phase, length } => tracing::debug!(instance = %id, %phase, length, "list sealed"),
        Event::Finished => tracing::info!(instance = %id, "finished"),
        Event::Closed => tracing::info!(instance = %id, "closed"),
        Event::Restarted { rejoin } => {
            tracing::debug!(instance = %id, ?rejoin, "restarted: processes may reconnect");
        }
        Event::Joined { .. }
        | Event::Session { .. }
        | Event::Accepted { .. }
        | Event::Refused { .. }
        | Event::Answered { .. }
        | Event::Decided { .. }
        | Event::Withdrawn { .. }
        | Event::Rejoined { .. } => {}
    }
}
