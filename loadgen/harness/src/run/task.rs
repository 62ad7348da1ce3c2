//! A process as a task of this process, for runs with many.

use stickycas_attacks::Targets;
use stickycas_client::{Client, Played, ProcessSpec};
use stickycas_model::ground_truth::{Assignment, Role, seed_of};
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use tokio_util::sync::CancellationToken;

/// A process to be played.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) client: Client,
    /// A client of the server's listener for tokens, for attackers.
    pub(super) token_server: Option<Client>,
    pub(super) instance: InstanceId,
    pub(super) process: ProcessId,
    pub(super) assignment: Assignment,
    pub(super) run_seed: u64,
}

impl Task {
    /// Plays it to its end, or until it is told to stop.
    pub(super) async fn play(self, stop: CancellationToken) -> (Option<Report>, Option<String>) {
        let Self {
            client,
            token_server,
            instance,
            process,
            assignment: Assignment { role, proposal },
            run_seed,
        } = self;
        let seed = seed_of(process, run_seed);
        let spec = match role {
            Role::Correct => ProcessSpec::correct(proposal),
            Role::Byzantine(strategy) => ProcessSpec::byzantine(strategy, Some(proposal), seed),
            Role::Attacker(attack) => {
                let targets = Targets { judge: None, token_server: token_server.as_ref() };
                let playing =
                    stickycas_attacks::play(&client, instance, attack, seed, targets, stop.cancelled_owned());
                return said(playing.await.played);
            }
        };
        said(client.play(instance, spec, stop.cancelled_owned()).await)
    }
}

/// The report of a process, or its trouble.
fn said(played: Played) -> (Option<Report>, Option<String>) {
    let Played { report, error, .. } = played;
    // With a report the error is in it already.
    let trouble = error.filter(|_| report.is_none()).map(|error| error.to_string());
    (report, trouble)
}
