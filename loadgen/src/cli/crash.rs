//! `crash`: the server is killed under load, again and again, and started again on its log.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use stickycas_faults::{
    ClusterSize, CrashOptions, CrashResult, HAS_CLUSTER, Load, Plan, RoundCounts, ServerProgram, Waiting,
    table,
};
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::command_line;
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::progress::WorkProgress;
use stickycas_harness::report::grid::counted;
use stickycas_harness::report::{folder, json};
use stickycas_harness::scenario::{LARGEST_SEED, draw_seed};
use stickycas_program::asked_to_stop;

use super::output::{log_to_stderr, show_result, tell};
use super::scenario::check_free;
use super::{PassedArgs, processors, runtime};

/// The arguments of `crash`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct CrashArgs {
    /// How many rounds, with the seeds seed, seed+1, seed+2, ...
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// The seed of the first round; without one, it is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED - 1_000_000))]
    seed: Option<u64>,
    /// Instances in each round
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    instances: u32,
    /// The most processes of one
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: u32,
    /// Rounds at a time, each with servers of its own; mostly a round waits [default: two for each processor,
    /// one with --cluster]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// How long the servers let the patience of processes stand still after a restart
    #[arg(long, value_name = "DURATION", default_value = "3s", value_parser = stickycas_program::parse_duration)]
    rejoin: Duration,
    /// Kill the server once in each round, with all instances under way, and start it again with both its
    /// clocks so much later, as in --rounds 1 --instances 1000 --outage 2days. Needs root, unshare and
    /// libfaketime
    #[arg(long, value_name = "DURATION", value_parser = stickycas_program::parse_duration)]
    outage: Option<Duration>,
    /// Servers that form a cluster over etcd, which is started too: these, and members of etcd, are killed,
    /// paused and stopped. Needs etcd, and this program and the server built with the feature `cluster`
    #[arg(long, value_name = "N", conflicts_with = "outage", num_args = 0..=1, default_missing_value = "3",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    cluster: Option<u8>,
    /// With --cluster: members of etcd; with 3, a majority is left when one of them is killed or paused
    #[arg(long, value_name = "M", default_value = "1", requires = "cluster", value_parser = ["1", "3"])]
    etcd_members: String,
    /// With --cluster: faults in each round
    #[arg(long, value_name = "N", default_value_t = 10, requires = "cluster", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    faults: u16,
    /// With --cluster: whether partitions of the network are among the faults: `auto`, where that is
    /// possible; else the result says why not. They need root on Linux, and `ip`
    #[arg(long, value_name = "WHICH", default_value = "auto", requires = "cluster", value_parser = ["auto", "yes", "no"])]
    partitions: String,
    /// With --cluster: the lease of the servers
    #[arg(long, value_name = "DURATION", default_value = "2s", requires = "cluster", value_parser = stickycas_program::parse_duration)]
    lease: Duration,
    /// The steps of this plan in each round, in place of those that its seed draws: with the same arguments
    /// and the plan.toml of a round they are the same
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Kill this server, a program with the flags of stickycas-server; without it, this program plays the
    /// server
    #[arg(long, value_name = "PROGRAM")]
    server_program: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Where the result goes, and each round while it runs; it must not exist [default: runs/crash-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
A run fails if a client was told something that did not stand; docs/internals/fault-tests.md says what that means. \
The folder of a failed round stays: the log of the server, and what was known of each instance with a violation. \
An interrupt ends it early and shows what there is.";

const BUILD_CLUSTER: &str = "--cluster needs this program with the feature `cluster`, which is no part of the usual build: \
    cargo build -p stickycas-loadgen --features cluster";

pub(super) fn run(args: &CrashArgs) -> anyhow::Result<Exit> {
    if args.cluster.is_some() && !HAS_CLUSTER {
        return Err(UsageError(BUILD_CLUSTER.to_owned()).into());
    }
    let seed = args.seed.unwrap_or_else(draw_seed);
    let plan = args.plan.as_deref().map(Plan::load_for_kill_test).transpose()?;
    check_free(args.out.as_deref())?;
    let default = || first_free(&Path::new(folder::DEFAULT_PARENT).join(format!("crash-{seed}")));
    let out = args.out.clone().unwrap_or_else(default);
    tell(&format!("seed {seed}"));
    // Clients that lose their server warn of it, which here is the plan.
    if std::env::var_os("RUST_LOG").is_some() {
        log_to_stderr();
    }
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let cluster = args.cluster.map(|servers| ClusterSize {
        servers: usize::from(servers),
        members: if args.etcd_members == "3" { 3 } else { 1 },
        lease: args.lease,
        faults: usize::from(args.faults),
        has_partitions: args.partitions != "no",
    });
    let jobs = match cluster {
        Some(_) => NonZeroUsize::MIN,
        None => processors().saturating_mul(NonZeroUsize::MIN.saturating_add(1)),
    };
    let options = CrashOptions {
        rounds: args.rounds,
        seed,
        outage: args.outage,
        load: Load {
            instances: args.instances as usize,
            processes: args.processes,
            waiting: if cluster.is_some() { Waiting::CLUSTER } else { Waiting::REAL_TIME },
        },
        cluster,
        steps: plan.map(|plan| plan.steps),
        partitions_may_lack: args.partitions == "auto",
        jobs: args.jobs.unwrap_or(jobs).get(),
        rejoin: args.rejoin,
        program: match &args.server_program {
            Some(program) => ServerProgram { program: program.clone(), arguments: Vec::new() },
            None => ServerProgram {
                program: std::env::current_exe().context("cannot find myself")?,
                arguments: vec![OsString::from("server")],
            },
        },
        out: out.clone(),
    };
    let runtime = runtime()?;
    let progress = WorkProgress::even(args.rounds, false);
    let shown = |result: &CrashResult| {
        let text = || {
            let RoundCounts { kills, faults, violations_found, .. } = &result.counts;
            let faults = kills + faults.values().sum::<u64>();
            format!(
                "{}/{} rounds, {}, {}",
                result.rounds,
                args.rounds,
                counted(faults, "fault"),
                counted(*violations_found, "violation")
            )
        };
        progress.show(result.rounds, text);
    };
    let result = runtime.block_on(async { stickycas_faults::run(&options, asked_to_stop(), shown).await });
    drop(progress);
    drop(runtime);
    finish(args, &result?, &out)
}

fn finish(args: &CrashArgs, result: &CrashResult, out: &Path) -> anyhow::Result<Exit> {
    let report = table(result, |seed| command_line::again(seed, &[("--rounds", true)]) + " --rounds 1");
    let as_json = json::text(result);
    show_result(&report, args.json.then(|| as_json.clone()))?;
    replace_file(&out.join("result.json"), as_json.as_bytes()).context("cannot write the result")?;
    tell(&format!("result folder: {}", out.display()));
    let exit = exit(result);
    // The reason is the last line: nobody looks for it in the table.
    if let (Exit::NotDone, Some(why)) = (exit, result.shortfall()) {
        tell(&why);
    }
    Ok(exit)
}

/// How a run has ended.
fn exit(result: &CrashResult) -> Exit {
    result.outcome().map_or(Exit::NotDone, |outcome| Exit::of(outcome, None))
}

/// `PLACE`, `PLACE-2`, ...: the first at which nothing is.
fn first_free(place: &Path) -> PathBuf {
    let numbered = (2..).map(|number: u64| PathBuf::from(format!("{}-{number}", place.display())));
    let mut places = std::iter::once(place.to_owned()).chain(numbered);
    places.find(|place| !place.exists()).expect("there are more numbers than folders")
}

/// The server's own command line within this program, for the servers that are killed.
pub(super) fn run_server(args: PassedArgs) -> ExitCode {
    let arguments = std::iter::once(OsString::from("stickycas-loadgen server")).chain(args.arguments);
    stickycas_server::cli::run_from(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_on_a_machine_that_is_too_slow_is_not_done() {
        let result = |asked, starved, violations_found| {
            let counts = RoundCounts {
                accesses: 9,
                short_patience: 20,
                starved,
                violations_found,
                ..RoundCounts::default()
            };
            CrashResult { asked, rounds: 2, counts, ..CrashResult::default() }
        };
        assert_eq!(exit(&result(2, 2, 0)), Exit::Done);
        assert_eq!(exit(&result(2, 3, 0)), Exit::NotDone);
        assert_eq!(exit(&result(3, 0, 0)), Exit::NotDone);
        assert_eq!(exit(&result(2, 3, 1)), Exit::Failed);
    }

    #[test]
    fn a_run_that_has_shown_too_little_is_not_done() {
        let result = |accesses| {
            let counts = RoundCounts { accesses, ..RoundCounts::default() };
            CrashResult { asked: 1, rounds: 1, counts, ..CrashResult::default() }
        };
        assert_eq!(exit(&result(1)), Exit::Done);
        let not_shown = Some("nobody took over".to_owned());
        assert_eq!(exit(&CrashResult { not_shown, ..result(1) }), Exit::NotDone);
        assert_eq!(exit(&result(0)), Exit::Unknown, "no access was acknowledged");
    }
}
