//! Which process is started when.

use stickycas_model::ground_truth::{Assignment, Latecomers, Role};
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;

use super::RunOptions;
use super::collect::InstanceProgress;
use super::completion::{CompletionSource, ProcessEnding};
use super::processes::Processes;
use super::server_handle::{ServerHandle, principal};
use super::{supervisor, task};
use crate::scenario::Scenario;

/// Starts processes: all at first, save those that come late.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    scenario: &'a Scenario,
    options: &'a RunOptions,
    handle: &'a ServerHandle,
    instance: InstanceId,
    /// The processes that have not been started.
    late: Latecomers,
    processes: Processes,
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
        let mut launcher = Self { scenario, options, handle, instance, late, processes: Processes::new() };
        for (process, assignment) in scenario.truth.assignments() {
            if !launcher.late.contains(process) {
                launcher.start_one(process, assignment)?;
            }
        }
        Ok(launcher)
    }

    /// Stops those that are left.
    pub(super) async fn stop(self) -> Vec<ProcessEnding> {
        self.processes.stop().await
    }

    fn start_one(&mut self, process: ProcessId, assignment: &Assignment) -> anyhow::Result<()> {
        let processes = &mut self.processes;
        let (handle, instance, run_seed) = (self.handle, self.instance, self.scenario.seed);
        match &self.options.program {
            Some(program) => {
                let server = handle.url();
                let credentials = handle.identities().folder(&principal(process));
                let child = supervisor::Child {
                    program,
                    server,
                    token_server: handle.token_url(),
                    credentials,
                    instance,
                    process,
                    assignment,
                    run_seed,
                };
                processes.start(process, |stop| child.start(stop))
            }
            None => {
                let (client, token_server) = match assignment.role {
                    Role::Attacker(_) => (handle.client_apart(process)?, handle.token_client(process)?),
                    Role::Correct | Role::Byzantine(_) => (handle.client_of(process)?, None),
                };
                let task = task::Task {
                    client,
                    token_server,
                    instance,
                    process,
                    assignment: assignment.clone(),
                    run_seed,
                };
                processes.start(process, |stop| Ok(task.play(stop)))
            }
        }
    }
}

impl CompletionSource for Launcher<'_> {
    async fn next(&mut self) -> Option<ProcessEnding> {
        if self.processes.is_empty() && !self.late.is_empty() {
            return std::future::pending().await;
        }
        self.processes.next().await
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
