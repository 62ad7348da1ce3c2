//! The command line.

use std::fs;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use stickycas_faults::table;
use stickycas_harness::exit::Exit;
use stickycas_harness::report::table::grouped;
use stickycas_harness::scenario::draw_seed;

use crate::seeds::{self, Options, SeedsResult};
use crate::test::Test;

/// The kill test in virtual time: the real server and clients of StickyCAS in one thread, over a simulated
/// network and disk, repeated exactly by a seed
#[derive(Debug, Parser)]
#[command(name = "stickycas-virtual", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<SubCommand>,
    #[command(flatten)]
    seeds: SeedsArgs,
}

#[derive(Debug, Subcommand)]
enum SubCommand {
    /// Run one seed in this process, and print its result as JSON
    One(OneArgs),
}

#[derive(Debug, Args)]
struct SeedsArgs {
    /// How many seeds: seed, seed+1, seed+2, ...
    #[arg(long, value_name = "N", env = "STICKYCAS_SEEDS", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed; without one, it is drawn
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    test: Test,
    /// Seeds at a time, each in a process of its own [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// The folder for the remains of failed seeds [default: runs/virtual-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct OneArgs {
    /// The seed
    #[arg(long, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    test: Test,
    /// The folder for the evidence of instances with a violation
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the trace to this file: every message with its virtual time
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.command {
        Some(SubCommand::One(args)) => run_one(&args),
        None => run_seeds(&cli.seeds),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(error) => {
            tell(&format!("error: {error:#}"));
            Exit::NotDone.into()
        }
    }
}

fn run_one(args: &OneArgs) -> anyhow::Result<Exit> {
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init();
    }
    let (mut result, trace) = args.test.run(args.seed)?;
    if let Some(file) = &args.trace {
        fs::write(file, trace).with_context(|| format!("cannot write {}", file.display()))?;
    }
    if let Some(out) = &args.out {
        result.round.write_evidence(out).with_context(|| format!("cannot write to {}", out.display()))?;
    }
    show(&serde_json::to_string(&result)?)?;
    Ok(Exit::Done)
}

fn run_seeds(args: &SeedsArgs) -> anyhow::Result<Exit> {
    let first = args.seed.unwrap_or_else(draw_seed);
    tell(&format!("seed {first}"));
    let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let out = args.out.clone().unwrap_or_else(|| format!("runs/virtual-{first}").into());
    let (test, jobs) = (args.test, args.jobs.unwrap_or(processors));
    let options = Options { first, seeds: args.seeds, test, jobs, out };
    let result = seeds::run(&options)?;
    let report = report(&result, test);
    if args.json {
        tell(&report);
        show(&serde_json::to_string_pretty(&result)?)?;
    } else {
        show(&report)?;
    }
    // Empty where nothing was found.
    let _ = fs::remove_dir(&options.out);
    Ok(result.rounds.outcome().map_or(Exit::NotDone, |outcome| Exit::of(outcome, None)))
}

fn report(result: &SeedsResult, test: Test) -> String {
    let arguments: String = test.arguments().iter().map(|argument| format!(" {argument}")).collect();
    let SeedsResult { rounds, messages, disturbances, disks, virtual_seconds } = result;
    format!(
        "{}{} messages and {} disturbances in {virtual_seconds:.0} s of virtual time\n{disks}\n",
        table(rounds, |seed| format!("stickycas-virtual{arguments} --seeds 1 --seed {seed}")),
        grouped(*messages),
        grouped(*disturbances),
    )
}

/// To standard output: the result.
fn show(text: &str) -> anyhow::Result<()> {
    writeln!(anstream::stdout().lock(), "{}", text.trim_end()).context("cannot write to standard output")
}

/// To standard error. If it is closed, the run goes on.
fn tell(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.trim_end());
}
