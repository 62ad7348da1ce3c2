//! A process as a task of this process, for runs with many.

use stickycas_client::{Client, Played, ProcessSpec};
use stickycas_model::cast::{Part, Role, seed_of};
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;

use super::processes::Stop;

/// Plays the process that has this part to its end, or until it is told to stop.
pub(super) async fn play(
    client: Client,
    instance: InstanceId,
    process: ProcessId,
    part: Part,
    run_seed: u64,
    stop: Stop,
) -> (Option<Report>, Option<String>) {
    let seed = seed_of(process, run_seed);
    let Part { role, proposal } = part;
    let spec = match role {
        Role::Correct => ProcessSpec::correct(proposal),
        Role::Byzantine(strategy) => ProcessSpec::byzantine(strategy, Some(proposal), seed),
        Role::Attacker(attack) => {
            let attacked = stickycas_attacks::play(&client, instance, attack, seed, None, stop.wait()).await;
            return said(attacked.played);
        }
    };
    said(client.play(instance, spec, stop.wait()).await)
}

/// What it says, and what went wrong.
fn said(played: Played) -> (Option<Report>, Option<String>) {
    let Played { report, error, .. } = played;
    // With a report the error is in it already.
    let trouble = error.filter(|_| report.is_none()).map(|error| error.to_string());
    (report, trouble)
}
