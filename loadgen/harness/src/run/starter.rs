//! Who is started when.

use stickycas_model::cast::{Latecomers, Part, Role};
use stickycas_model::types::ProcessId;
use stickycas_proto::names::InstanceId;

use super::collect::Happened;
use super::ends::{Ending, Ends};
use super::options::Options;
use super::processes::Processes;
use super::site::Site;
use super::{supervisor, task};
use crate::scenario::Scenario;

/// Starts processes: all at first, save those that come late.
#[derive(Debug)]
pub(super) struct Starter<'a> {
    scenario: &'a Scenario,
    options: &'a Options,
    site: &'a Site,
    instance: InstanceId,
    /// Who has not been started.
    late: Latecomers,
    processes: Processes,
}

impl<'a> Starter<'a> {
    /// Starts all that are not late.
    pub(super) fn start(
        site: &'a Site,
        scenario: &'a Scenario,
        instance: InstanceId,
        options: &'a Options,
    ) -> anyhow::Result<Self> {
        let late = scenario.cast.latecomers(&scenario.params);
        let mut starter = Self { scenario, options, site, instance, late, processes: Processes::new() };
        for (process, part) in scenario.cast.parts() {
            if !starter.late.contains(process) {
                starter.start_one(process, part)?;
            }
        }
        Ok(starter)
    }

    /// Stops those that are left.
    pub(super) async fn stop(self) -> Vec<Ending> {
        self.processes.stop().await
    }

    fn start_one(&mut self, process: ProcessId, part: &Part) -> anyhow::Result<()> {
        let processes = &mut self.processes;
        let (site, instance, run_seed) = (self.site, self.instance, self.scenario.seed);
        match &self.options.program {
            Some(program) => {
                let server = site.url();
                let child = supervisor::Child { program, server, instance, process, part, run_seed };
                processes.start(process, |stop| child.start(stop))
            }
            None => {
                let client = match part.role {
                    Role::Attacker(_) => site.client_apart(process)?,
                    Role::Correct | Role::Byzantine(_) => site.client_of(process)?,
                };
                let part = part.clone();
                processes
                    .start(process, |stop| Ok(task::play(client, instance, process, part, run_seed, stop)))
            }
        }
    }
}

impl Ends for Starter<'_> {
    async fn next(&mut self) -> Option<Ending> {
        if self.processes.is_empty() && !self.late.is_empty() {
            return std::future::pending().await;
        }
        self.processes.next().await
    }

    /// Starts those that come late and are due.
    fn happened(&mut self, happened: &Happened) -> anyhow::Result<()> {
        let Some(phase) = happened.reached.filter(|_| !self.late.is_empty()) else { return Ok(()) };
        for process in self.late.come(phase) {
            if let Some(part) = self.scenario.cast.part(process) {
                self.start_one(process, part)?;
            }
        }
        Ok(())
    }
}
