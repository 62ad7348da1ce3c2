//! Three servers over three members of etcd, beside one server and beside the same consensus on bare etcd.
//!
//! ```text
//! cargo run --release -p stickycas-bench --features cluster -- cluster --json cluster.json
//! ```
//!
//! The workload is that of [`crate::workload`], over Attach with all frames of a moment in one message. All
//! programs share the machine: the clients with one worker, each server with one, and the members of etcd,
//! which wait for the disk.
//!
//! | candidate | measured |
//! | --- | --- |
//! | `naive/k` | the same consensus on three members of etcd, k instances in flight: see `etcd`; the processes spread over the members |
//! | `cluster/k` | three servers over three members of etcd; k instances in flight at all servers together, as many at each |
//! | `durable/k` | one server with its log on disk |
//! | `memory/k` | one server without a log |
//! | `cluster-get/k` | Get of instances at three servers, k calls in flight: each answer waits for a confirmation of ownership |
//!
//! Candidates take turns, each turn has servers and etcd of its own, and a ratio is taken within its round.
//! Instances are created before the clock runs; every one is judged when it has stopped, by the judge of the
//! wire benchmark.
//!
//! In the raw results: `disk`, `rounds`, `load` (the load average of the machine, before and after), and for
//! each of `candidates` its `name`, `in_flight`, `samples`, and medians with their ranges: `rate` (instances,
//! or calls, per second), `cost_us` (processor time of all programs for each access, or call),
//! `servers_cost_us` and `etcd_cost_us` (parts of it), `of_naive`, `of_durable`, `of_memory` (`rate` and
//! `cost`: ours in units of theirs in the same round; cost the other way round). With a log in etcd:
//! `writes_per_second` (transactions that etcd has applied), `reads_per_second` (confirming reads),
//! `batches_per_write` (of one shard each), `steps_per_write`, `bytes_per_write`, `commit_us` (from handing a
//! batch to the committer to its commit), and the `counts` of each sample.

mod counts;
mod report;
mod servers;
mod turn;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;

use self::report::{Results, Series};
use self::turn::{Kind, Turns, VARIANTS};
use crate::etcd::Program;
use crate::rounds::RoundOptions;
use crate::serve::{self, Layout};
use crate::{disk, results};

/// The lease of a server; no server dies here.
const LEASE: Duration = Duration::from_secs(10);
/// How long ended instances are kept, as by the other servers of this program.
const RETENTION: Duration = Duration::from_millis(100);

/// How to measure a cluster.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Servers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    servers: u8,
    /// Members of etcd.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    members: u8,
    /// The program etcd; by default the one in PATH.
    #[arg(long, value_name = "PROGRAM")]
    etcd: Option<PathBuf>,
    /// The directory for the data of etcd and for logs; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
}

/// Measures, prints the tables and writes the raw results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rounds = &options.rounds;
    let names: Vec<String> = VARIANTS.iter().map(|variant| variant.name()).collect();
    rounds.check(&names)?;
    ensure!(rounds.layout == Layout::TwoPrograms, "each server is a program of its own: leave out --layout");
    let directory = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let program = Program::find(options.etcd.as_deref(), &directory)?;
    let program = program.context("etcd is missing: install it, or give --etcd")?;
    let turns = Turns {
        program: program.clone(),
        disk: directory.clone(),
        members: usize::from(options.members),
        servers: usize::from(options.servers),
    };
    let wanted = VARIANTS.into_iter().filter(|variant| rounds.wants(&variant.name()));
    let mut series: Vec<Series> = wanted.map(Series::new).collect();
    let load_before = load_average();
    let runtime = serve::runtime(1)?;
    let mut order: Vec<usize> = (0..series.len()).collect();
    for round in 0..=rounds.rounds {
        for &at in &order {
            let series = &mut series[at];
            let (variant, turns) = (series.variant, turns.clone());
            let units = variant.units(rounds);
            // Spawned, so that it runs on a worker and not on this thread.
            let turn = runtime.spawn(async move { turns.turn(variant, units).await });
            let outcome = runtime.block_on(turn)?.with_context(|| variant.name())?;
            writeln!(
                std::io::stderr(),
                "round {round}: {}: {:.0}/s",
                variant.name(),
                outcome.sample.instance_rate()
            )?;
            if round > 0 {
                series.turns.push(outcome);
            }
        }
        // Every other round backwards: a drift within rounds favours no candidate.
        order.reverse();
    }
    let results =
        Results::new(&series, rounds.rounds, disk::file_system(&directory), [load_before, load_average()]);
    results.print()?;
    if let Some(json) = &rounds.json {
        results::write(json, "cluster", &BTreeMap::from([("etcd".to_owned(), program.version)]), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Programs that want to run, over the last minute; `None` where the system does not tell.
fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Whether a candidate keeps a log in etcd.
fn is_cluster(kind: Kind) -> bool {
    matches!(kind, Kind::Cluster | Kind::Get)
}
