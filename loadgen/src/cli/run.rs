//! `run`: a scenario over the network.

use std::io;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::output::{log_to_stderr, tell};
use super::scenario::ScenarioArgs;
use crate::record::Record;
use crate::run::{self, COORDINATOR, Options, OwnServer, Site};
use crate::scenario::Scenario;

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Use this server; without it, one is started for the run
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// With --server: create the instance as this principal
    #[arg(long, value_name = "NAME", default_value = COORDINATOR, requires = "server")]
    principal: String,
    /// Run processes as tasks of this process, not as child processes: for many
    #[arg(long)]
    in_process: bool,
    /// Give up waiting after so long without any event, beyond patience, join timeout and pace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<u8> {
    let scenario = args.scenario.load()?;
    log_to_stderr();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let record = runtime.block_on(async {
        tokio::select! {
            record = run_on_some_server(args, &scenario) => record,
            asked = asked_to_stop() => Err(asked.map_or_else(Into::into, |()| anyhow!("interrupted"))),
        }
    });
    // Children are killed with the tasks that wait for them.
    drop(runtime);
    let command = if args.in_process { "run --in-process" } else { "run" };
    let record = record.inspect_err(|_| tell(&args.scenario.repeat(scenario.seed, command)))?;
    args.scenario.finish(&record, args.server.clone(), command)
}

/// Until somebody wants this program to end. Children would outlive it if it just died.
pub(super) async fn asked_to_stop() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

async fn run_on_some_server(args: &RunArgs, scenario: &Scenario) -> anyhow::Result<Record> {
    let program =
        if args.in_process { None } else { Some(std::env::current_exe().context("cannot find myself")?) };
    let options = Options { program, stall: args.timeout, quiet: false };
    let Some(url) = &args.server else {
        let server = OwnServer::start().await?;
        let site = Site::open(server.url(), COORDINATOR).await?;
        let record = run::run(&site, scenario, &options).await;
        drop(site);
        server.stop().await?;
        return record;
    };
    let site = Site::open(url, &args.principal).await?;
    run::run(&site, scenario, &options).await
}
