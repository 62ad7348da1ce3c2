//! Who is started when.

use stickycas_model::cast::{Latecomers, Part, Role};
use stickycas_model::types::{Phase, ProcessId};
use stickycas_proto::names::InstanceId;

use super::processes::Processes;
use super::site::Site;
use super::{Options, supervisor, task};
use crate::scenario::Scenario;

/// Starts processes: all at first, save those that come late.
#[derive(Debug)]
pub(super) struct Starter<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) options: &'a Options,
    site: &'a Site,
    instance: InstanceId,
    /// Who has not been started.
    late: Latecomers,
}

impl<'a> Starter<'a> {
    pub(super) fn new(
        site: &'a Site,
        scenario: &'a Scenario,
        instance: InstanceId,
        options: &'a Options,
    ) -> Self {
        Self { scenario, options, site, instance, late: scenario.cast.latecomers(&scenario.params) }
    }

    /// Starts all that are not late.
    pub(super) fn start_all(&self) -> anyhow::Result<Processes> {
        let mut processes = Processes::new();
        for (process, part) in self.scenario.cast.parts() {
            if !self.late.contains(process) {
                self.start(process, part, &mut processes)?;
            }
        }
        Ok(processes)
    }

    /// Starts those that come late and are due, this phase having come.
    pub(super) fn start_late(
        &mut self,
        reached: Option<Phase>,
        processes: &mut Processes,
    ) -> anyhow::Result<()> {
        let Some(phase) = reached.filter(|_| !self.late.is_empty()) else { return Ok(()) };
        for process in self.late.come(phase) {
            if let Some(part) = self.scenario.cast.part(process) {
                self.start(process, part, processes)?;
            }
        }
        Ok(())
    }

    pub(super) fn has_started_all(&self) -> bool {
        self.late.is_empty()
    }

    fn start(&self, process: ProcessId, part: &Part, processes: &mut Processes) -> anyhow::Result<()> {
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
