//! The command line.
//!
//! `--json` puts `verdict.json`'s content on standard output and nothing else; everything for people goes to standard
//! error. The exit code is 0 for `valid` and `outside`, 1 for `violation`, 2 for `unknown`, 3 if the run could
//! not be set up or carried through, which includes a wrong command line.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, Parser, Subcommand};
use stickycas_model::judge::Outcome;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::environment::Environment;
use crate::record::{HARNESS_FAILED, Record, exit_code};
use crate::report::{folder, json, table};
use crate::run::{self, COORDINATOR, Options, OwnServer, Site};
use crate::scenario::{LARGEST_SEED, Scenario};
use crate::simulate::simulate;

/// Runs whole scenarios of StickyCAS, judges them, and says why.
#[derive(Debug, Parser)]
#[command(name = "stickycas-loadgen", version, after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
Exit codes: 0 the verdict is valid or outside, 1 violation, 2 unknown, 3 the run could not be made.
With --expect: 0 if the verdict is the expected one, else 1.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a scenario over the network and judge it
    Run(RunArgs),
    /// Run a scenario in the simulator and judge it
    Simulate(CommonArgs),
    /// Be a client: play one process, or work on instances by hand (client --help)
    #[command(disable_help_flag = true)]
    Client {
        /// The client's own arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct CommonArgs {
    /// The scenario file
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,
    /// Takes the place of the scenario's seed; without any, one is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    seed: Option<u64>,
    /// Print the verdict as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Where the run folder goes; it must not exist [default: runs/SCENARIO-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Exit with 0 for this verdict and with 1 for any other: valid, outside, unknown or violation
    #[arg(long, value_name = "VERDICT", value_parser = outcome)]
    expect: Option<Outcome>,
}

fn outcome(text: &str) -> Result<Outcome, String> {
    let all = [Outcome::Valid, Outcome::Outside, Outcome::Unknown, Outcome::Violation];
    let found = all.into_iter().find(|outcome| outcome.to_string() == text);
    found.ok_or_else(|| "give valid, outside, unknown or violation".to_owned())
}

#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    common: CommonArgs,
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

/// Runs the program with these arguments, the first being its name.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap would exit with 2, which here means `unknown`.
            let code = if error.use_stderr() { HARNESS_FAILED } else { 0 };
            let printed = error.print();
            return ExitCode::from(if printed.is_ok() { code } else { HARNESS_FAILED });
        }
    };
    let done = match cli.command {
        Command::Client { arguments } => return client(arguments),
        Command::Simulate(args) => simulated(&args),
        Command::Run(args) => networked(&args),
    };
    ExitCode::from(done.unwrap_or_else(|error| {
        tell(&format!("stickycas-loadgen: {error:#}"));
        HARNESS_FAILED
    }))
}

fn simulated(args: &CommonArgs) -> anyhow::Result<u8> {
    let scenario = load(args)?;
    finish(&simulate(&scenario), None, args, "simulate")
}

fn networked(args: &RunArgs) -> anyhow::Result<u8> {
    let scenario = load(&args.common)?;
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
    let record = record.inspect_err(|_| tell(&repeat(&args.common, scenario.seed, command)))?;
    finish(&record, args.server.clone(), &args.common, command)
}

/// Until somebody wants this program to end. Children would outlive it if it just died.
async fn asked_to_stop() -> io::Result<()> {
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

/// The client's command line, within this program.
fn client(arguments: Vec<OsString>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            tell(&format!("stickycas-loadgen: cannot start the runtime: {error}"));
            return ExitCode::from(HARNESS_FAILED);
        }
    };
    let arguments = std::iter::once(OsString::from("stickycas-loadgen client")).chain(arguments);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    runtime.block_on(stickycas_client::cli::run_from(arguments, &mut out, &mut err)).into()
}

/// Warnings of server and clients; more if `RUST_LOG` says so.
fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // A second call finds a subscriber in place, which serves as well.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).try_init();
}

/// Reads the scenario and says which seed it has, before anything is done with it.
fn load(args: &CommonArgs) -> anyhow::Result<Scenario> {
    let scenario = Scenario::load(&args.scenario, args.seed)?;
    // Better now than when there is a result that has nowhere to go.
    if let Some(out) = &args.out
        && folder::is_taken(out)
    {
        bail!("{} exists already: give another --out", out.display());
    }
    tell(&format!("seed {}", scenario.seed));
    Ok(scenario)
}

/// Writes everything down, shows it, and makes an exit code of it.
fn finish(record: &Record, server: Option<String>, args: &CommonArgs, command: &str) -> anyhow::Result<u8> {
    let environment = Environment::here(record.how, server);
    let written = folder::write(record, &environment, args.out.as_deref());
    let report = table::coloured(record, table::ROWS_ON_SCREEN);
    if args.json {
        tell(&report);
        show(&json::verdict(&record.verdict))?;
    } else {
        show(&report)?;
    }
    // After the report, so that a full disk does not hide it.
    let folder = written.context("cannot write the run folder")?;
    tell(&format!("run folder: {}", folder.display()));
    let code = exit_code(record.verdict.verdict, args.expect);
    if let Some(expected) = args.expect.filter(|_| code != 0) {
        tell(&format!("expected {expected}, got {}", record.verdict.verdict));
    }
    if code != 0 {
        tell(&repeat(args, record.scenario.seed, command));
    }
    Ok(code)
}

/// The one command that does the same again.
fn repeat(args: &CommonArgs, seed: u64, command: &str) -> String {
    let scenario = args.scenario.display();
    format!("seed {seed}; to repeat it: stickycas-loadgen {command} {scenario} --seed {seed}")
}

/// To standard output: the result.
fn show(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// To standard error: what people want to know besides. If nobody can hear it, the run goes on.
fn tell(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.trim_end());
}
