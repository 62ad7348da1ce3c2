//! The processes of a run: which is started when, as a child process or as a task of this process.

use stickycas_attacks::Targets;
use stickycas_client::{Client, Played, ProcessSpec};
use stickycas_model::ground_truth::{Assignment, Latecomers, Role, seed_of};
use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::RunOptions;
use super::collect::InstanceProgress;
use super::completion::{CompletionSource, ProcessEnding};
use super::server_handle::ServerHandle;
use super::supervisor::Child;
use crate::scenario::Scenario;

/// Starts processes: all at first, save those that come late. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    scenario: &'a Scenario,
    options: &'a RunOptions,
    handle: &'a ServerHandle,
    instance: InstanceId,
    /// The processes that have not been started.
    late: Latecomers,
    playing: JoinSet<ProcessEnding>,
    stop: CancellationToken,
}

impl<'a> Launcher<'a> {
    /// Starts all that are not late.
    pub(super) fn start(
        handle: &'a ServerHandle,
        scenario: &'a Scenario,
        instance: InstanceId,
        options: &'a RunOptions,
    ) -> anyhow::Result<Self> {
        let late = scenario.truth.latecomers(&scenario.params);
        let (playing, stop) = (JoinSet::new(), CancellationToken::new());
        let mut launcher = Self { scenario, options, handle, instance, late, playing, stop };
        for (process, assignment) in scenario.truth.assignments() {
            if !launcher.late.contains(process) {
                launcher.start_one(process, assignment)?;
            }
        }
        Ok(launcher)
    }

    /// Stops those that are left.
    pub(super) async fn stop(mut self) -> Vec<ProcessEnding> {
        self.stop.cancel();
        let mut endings = Vec::new();
        while let Some(ending) = self.next_ending().await {
            endings.push(ending);
        }
        endings
    }

    fn start_one(&mut self, process: ProcessId, assignment: &Assignment) -> anyhow::Result<()> {
        let (handle, instance, stop) = (self.handle, self.instance, self.stop.clone());
        let seed = seed_of(process, self.scenario.seed);
        if let Some(program) = &self.options.program {
            let child = Child { program, handle, instance, process, assignment, seed };
            self.play(process, child.start(stop)?);
            return Ok(());
        }
        let (client, token_server) = match assignment.role {
            Role::Attacker(_) => (handle.client_apart(process)?, handle.token_client(process)?),
            Role::Correct | Role::Byzantine(_) | Role::External => (handle.client_of(process)?, None),
        };
        self.play(process, play(client, token_server, instance, assignment.clone(), seed, stop));
        Ok(())
    }

    /// `playing` tells at its end what the process says and what went wrong.
    fn play(
        &mut self,
        process: ProcessId,
        playing: impl Future<Output = (Option<Report>, Option<String>)> + Send + 'static,
    ) {
        self.playing.spawn(async move {
            let (report, trouble) = playing.await;
            ProcessEnding { process, report, trouble }
        });
    }

    /// The next one that ends; `None` if none is left.
    async fn next_ending(&mut self) -> Option<ProcessEnding> {
        match self.playing.join_next().await? {
            Ok(ending) => Some(ending),
            // No task is cancelled alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }
}

impl CompletionSource for Launcher<'_> {
    async fn next(&mut self) -> Option<ProcessEnding> {
        if self.playing.is_empty() && !self.late.is_empty() {
            return std::future::pending().await;
        }
        self.next_ending().await
    }

    /// Starts those that come late and are due.
    fn happened(&mut self, happened: &InstanceProgress) -> anyhow::Result<()> {
        let Some(phase) = happened.reached.filter(|_| !self.late.is_empty()) else { return Ok(()) };
        for process in self.late.come(phase) {
            if let Some(assignment) = self.scenario.truth.assignment(process) {
                self.start_one(process, assignment)?;
            }
        }
        Ok(())
    }
}

/// Plays a process as a task to its end, or until it is told to stop: its report, or its trouble.
/// `token_server`: a client of the server's listener for tokens, for attackers.
async fn play(
    client: Client,
    token_server: Option<Client>,
    instance: InstanceId,
    Assignment { role, proposal }: Assignment,
    seed: u64,
    stop: CancellationToken,
) -> (Option<Report>, Option<String>) {
    let stop = stop.cancelled_owned();
    let Played { report, error, .. } = match role {
        // An external one is never started: see Scenario::check_runnable.
        Role::Correct | Role::External => client.play(instance, ProcessSpec::correct(proposal), stop).await,
        Role::Byzantine(strategy) => {
            client.play(instance, ProcessSpec::byzantine(strategy, Some(proposal), seed), stop).await
        }
        Role::Attacker(attack) => {
            let targets = Targets { judge: None, token_server: token_server.as_ref() };
            stickycas_attacks::play(&client, instance, attack, seed, targets, stop).await.played
        }
    };
    // With a report the error is in it already.
    let trouble = error.filter(|_| report.is_none()).map(|error| error.to_string());
    (report, trouble)
}
