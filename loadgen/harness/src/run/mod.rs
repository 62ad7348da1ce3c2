//! A scenario over the network.
//!
//! A [`ServerHandle`] is a server and the connections to it. On it, a run goes
//!
//! 1. create the instance, and watch it from its first event on, before anybody joins;
//! 2. start all processes, those that come late once their first phase has passed, and wait until every
//!    correct one has ended, as long as something happens at the instance, and for a moment for those
//!    Byzantine ones that leave by themselves;
//! 3. if there are wire attacks, let them come to their end; meanwhile and then, ask the server what it has
//!    counted since before the run;
//! 4. close the instance and follow the watch to its end, so that the history lacks nothing;
//! 5. stop the processes that are still there (a silent Byzantine process is no failure), and judge.
//!
//! A process that ends otherwise than its part has it, a child that crashes for instance, makes the run prove
//! nothing, and the verdict says so.

pub(crate) mod collect;
pub(crate) mod completion;
mod counts;
mod identities;
mod launcher;
pub(crate) mod result;
mod server;
mod server_handle;
mod supervisor;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_model::types::ProcessId;
use stickycas_proto::names::{InstanceId, InstanceName};

use self::collect::Collector;
use self::completion::Waiting;
pub use self::counts::{CountsBefore, CountsObserver, counted};
pub use self::identities::Identities;
use self::launcher::Launcher;
use self::result::to_record;
pub use self::server::{Form, MOST_CERTIFICATES, OwnServer, attacked_limits};
pub use self::server_handle::{COORDINATOR, ServerHandle, principal};
use crate::exit::UsageError;
use crate::progress::RunProgress;
use crate::record::{ExecutionMode, Record};
use crate::scenario::Scenario;

/// When a run is given up, correct processes have so long to report.
pub(crate) const TIME_TO_REPORT: Duration = Duration::from_secs(5);

/// Default for [`RunOptions::stall`].
pub const DEFAULT_STALL: Duration = Duration::from_secs(60);

/// How a scenario is run over the network.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program that plays a process when called with `client propose`, one child process for each.
    /// `None`: processes are tasks of this process.
    pub program: Option<PathBuf>,
    /// Give up waiting after so long without any event, beyond what the instance itself may wait.
    pub stall: Duration,
    /// Show no progress.
    pub quiet: bool,
}

impl RunOptions {
    /// Processes as tasks, and no progress shown.
    #[must_use]
    pub fn in_process() -> Self {
        Self { program: None, stall: DEFAULT_STALL, quiet: true }
    }
}

/// Runs a scenario on a site and judges it.
///
/// # Errors
/// If it cannot be set up, or the server is lost. Whatever processes do or fail to do is in the record.
pub async fn run(handle: &ServerHandle, scenario: &Scenario, options: &RunOptions) -> anyhow::Result<Record> {
    scenario.check_runnable().map_err(|error| UsageError(error.to_string()))?;
    let counts = CountsObserver::start(handle, scenario, counted(handle, scenario).await?);
    let instance = create(handle, None, scenario).await?;
    let progress = RunProgress::new(scenario.truth.correct().collect(), options.quiet);
    let collector = Collector::start(handle.client(), instance, progress);
    let awaited = scenario.truth.assignments().map(|(process, _)| process).collect();
    let ends = Launcher::start(handle, scenario, instance, options)?;
    let mut waiting =
        Waiting { scenario, awaited, stall: options.stall, ends, collector, endings: Vec::new() };
    let stalled = waiting.for_correct().await?;
    waiting.for_byzantine(stalled).await?;
    let counted = counts.finish().await?;
    handle.client().close(instance).await.context("cannot close the instance")?;
    if stalled {
        // The close tells them; a child that is stopped first could not report what it waited for.
        waiting.until(scenario.truth.correct(), TIME_TO_REPORT).await?;
    }
    let Waiting { ends, collector, mut endings, .. } = waiting;
    let collected = collector.finish(true, options.stall).await;
    endings.extend(ends.stop().await);

    let how = if options.program.is_some() { ExecutionMode::ChildProcesses } else { ExecutionMode::Tasks };
    Ok(to_record(scenario, how, collected, counted, endings, stalled))
}

/// Creates the instance of a scenario, with exactly its parameters.
pub(crate) async fn create(
    handle: &ServerHandle,
    name: Option<&InstanceName>,
    scenario: &Scenario,
) -> anyhow::Result<InstanceId> {
    let roster = ProcessId::all(scenario.params.processes()).map(principal);
    let mut create = handle.client().create_instance().params(&scenario.params).roster(roster);
    if let Some(name) = name {
        create = create.name(name.as_str());
    }
    let created = create
        .send()
        .await
        .with_context(|| format!("cannot create the instance at {}", handle.url()))?
        .instance;
    if created.parameters != *scenario.params {
        bail!("the server changed the parameters to {:?}", created.parameters.spec());
    }
    Ok(created.id)
}
