//! A process as a task of this process, for runs with many.

use stickycas_client::{Client, Conduct, Played};
use stickycas_model::cast::{Part, Role, seed_of};
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;

use super::processes::Stop;

/// What a process does that plays this part.
pub(super) fn conduct(process: ProcessId, part: &Part, run_seed: u64) -> Conduct {
    match &part.role {
        Role::Correct => Conduct::correct(part.proposal.clone()),
        Role::Byzantine(strategy) => {
            Conduct::byzantine(strategy.clone(), Some(part.proposal.clone()), seed_of(process, run_seed))
        }
    }
}

/// Plays it to its end, or until it is told to stop.
pub(super) async fn play(
    client: Client,
    instance: InstanceId,
    conduct: Conduct,
    stop: Stop,
) -> (Option<Report>, Option<String>) {
    let Played { report, error, .. } = client.play(instance, conduct, stop.wait()).await;
    // With a report the error is in it already.
    let trouble = error.filter(|_| report.is_none()).map(|error| error.to_string());
    (report, trouble)
}
