//! `run`: a scenario over the network.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::record::Record;
use stickycas_harness::run::{
    self, COORDINATOR, Identities, MOST_CERTIFICATES, OwnServer, RunOptions, ServerHandle, attacked_limits,
    principal,
};
use stickycas_harness::scenario::Scenario;
use stickycas_model::types::ProcessId;
use stickycas_program::asked_to_stop;

use super::output::{RunLog, tell};
use super::scenario::{ScenarioArgs, repeat};
use super::{runtime, with_cure};

/// The arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Use this server; without it, one is started for the run
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// With --server: create the instance as this principal
    #[arg(long, alias = "coordinator", value_name = "NAME", default_value = COORDINATOR, requires = "server")]
    principal: String,
    /// With --server: a folder with a folder of credentials for each principal, of its name: process-1, ...,
    /// and that of --principal; or with the tokens of all of them (tokens, ca.crt). The server's address
    /// begins with https:// then
    #[arg(long, value_name = "DIR", env = "STICKYCAS_RUN_CREDENTIALS", requires = "server")]
    credentials: Option<PathBuf>,
    /// With --server and --credentials: the server's listener for tokens, which bad-token-flood attacks
    #[arg(long, value_name = "URL", requires = "credentials")]
    token_server: Option<String>,
    /// Run processes as tasks of this process, not as child processes: for many
    #[arg(long)]
    in_process: bool,
    /// Give up waiting after so long without any event, beyond patience, join timeout and pace
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = stickycas_program::parse_duration)]
    timeout: Duration,
}

pub(super) fn run(args: &RunArgs) -> anyhow::Result<Exit> {
    let scenario = args.scenario.load()?;
    scenario.check_runnable().map_err(|error| UsageError(error.to_string()))?;
    let log = RunLog::begin();
    let runtime = runtime()?;
    let record = runtime.block_on(async {
        tokio::select! {
            record = run_on_some_server(args, &scenario) => record,
            () = asked_to_stop() => Err(anyhow!("interrupted")),
        }
    });
    // Children are killed with the tasks that wait for them.
    drop(runtime);
    let record = record.inspect_err(|error| {
        // What was never begun needs no repeating.
        if !error.is::<stickycas_client::Error>() {
            tell(&repeat(scenario.seed));
        }
    })?;
    args.scenario.finish(&record, args.server.clone(), &log)
}

async fn run_on_some_server(args: &RunArgs, scenario: &Scenario) -> anyhow::Result<Record> {
    let program =
        if args.in_process { None } else { Some(std::env::current_exe().context("cannot find myself")?) };
    let options = RunOptions { program, stall: args.timeout, quiet: false };
    let Some(url) = &args.server else {
        let server = OwnServer::start_for(&scenario.params, attacked_limits()).await?;
        if scenario.params.processes() > MOST_CERTIFICATES {
            tell(&format!(
                "processes are known by tokens: only up to {MOST_CERTIFICATES} processes get certificates"
            ));
        }
        let handle = server.connect().await?;
        let record = run::run(&handle, scenario, &options).await;
        drop(handle);
        server.stop().await?;
        return record;
    };
    let identities = args.credentials.as_deref().map(Identities::read).transpose()?.unwrap_or_default();
    // Better said now than by each process in a run that proves nothing.
    let processes = ProcessId::all(scenario.params.processes()).map(principal);
    for who in std::iter::once(args.principal.clone()).chain(processes) {
        drop(identities.client(url, &who)?);
    }
    let handle = ServerHandle::open_with(url, &args.principal, identities)
        .await
        .map_err(|error| with_cure(error, &args.principal, ""))?;
    run::run(&handle.with_token_url(args.token_server.clone()), scenario, &options).await
}
