//! A simulation of placement: many servers own very many shards, and start, die, drain, join and restart.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- placement --json placement.json
//! cargo run --release -p stickycas-bench -- placement --servers 10 --shards 1000 --shards-per-etcd 1000
//! ```
//!
//! The function that the servers use (`stickycas_cluster::placement`) computes the server that should own a
//! shard; time is modelled ([`model::Times`]; each of its values is an option). Nothing here sends a message.
//!
//! * **etcd.** One cluster of etcd cannot carry all shards of the largest clusters, so shard s is held by the
//!   cluster of etcd number s / `--shards-per-etcd`, one file of keys each. Each executes transactions one
//!   after the other, sends changes one after the other, and answers reads one after the other; the three do
//!   not wait for each other. Every server has a lease and a watch in each cluster of etcd, and places all
//!   shards together.
//! * **A claim** is a transaction; then the server reads back the shard, one shard after the other. A
//!   hand-over: the owner commits the accesses in flight and deletes its key; the next owner receives the
//!   change, claims and reads.
//! * **Watches.** A change costs etcd one message for each server. All servers receive it when the last one
//!   does.
//! * **Left out.** Servers that replay different versions, lost requests, a lease that ends early, failures
//!   of etcd itself.
//!
//! Every change begins with the same cluster, as it is after the start. `moves`: shards that another server
//! serves than before. `least`: the fewest moves after which the remaining servers could own all shards
//! evenly. `spread`: the most shards of a server less the fewest, in the end. `pause`: the time in which no
//! server serves a shard, from the death of its owner or from the moment at which the owner refuses further
//! accesses; also in the raw results, in seconds. `quiet`: the time at which the last shard is served.
//! `placements`: the number of computations of the placement by each server.
//!
//! Deaths are repeated (`--deaths`), each time from the same cluster and with other random numbers: the last
//! renewal of a lease was up to a third of its time before the death, and etcd looks twice a second for
//! leases that are over. Pauses are those of all repetitions, all else is the largest of them, and `median of
//! worst` is the median of their longest pauses.
//!
//! The same seed gives the same table.

mod changes;
mod model;
mod simulation;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use self::changes::{Outcome, all, names};
use self::model::Times;
use crate::results;
use crate::table::table;

/// The simulated cluster and its changes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    times: Times,
    /// Only these changes, by name, and the start before them.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Write every figure there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The cluster.
#[derive(Clone, Debug, Args, Serialize)]
struct Cluster {
    /// Servers.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    servers: u32,
    /// Shards.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    shards: u32,
    /// Shards that one cluster of etcd holds.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    shards_per_etcd: u32,
    /// Servers that restart together in the rolling restart.
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    restart_together: u32,
    /// How often a death is simulated, of one server and of ten.
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    deaths: u32,
    /// Chooses the servers, and every random delay.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Serialize)]
struct Results<'a> {
    cluster: &'a Cluster,
    etcds: usize,
    times: &'a Times,
    changes: Vec<Outcome>,
}

/// Simulates, prints the table and writes the raw results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let Options { cluster, times, only, json } = options;
    let names = names();
    for only in only {
        ensure!(names.contains(only), "--only: no change '{only}'; there are: {}", names.join(", "));
    }
    let wants = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let (etcds, changes) = all(cluster, times, wants)?;
    let results = Results { cluster, etcds, times, changes };
    results.print()?;
    if let Some(path) = json {
        results::write(path, "placement", &BTreeMap::new(), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A column of the table: its name, and its text for a change.
type Column = (&'static str, fn(&Outcome) -> String);

const COLUMNS: [Column; 13] = [
    ("change", |change| change.change.to_owned()),
    ("times", |change| change.repetitions.to_string()),
    ("moves", |change| change.moves.to_string()),
    ("least", |change| change.least.to_string()),
    ("spread", |change| change.spread.to_string()),
    ("claims lost", |change| change.claims_lost.to_string()),
    ("placements", |change| change.placements.to_string()),
    ("pauses", |change| change.pauses.to_string()),
    ("median s", |change| change.pause_median_s.to_string()),
    ("p99 s", |change| change.pause_p99_s.to_string()),
    ("worst s", |change| change.pause_worst_s.to_string()),
    ("median of worst s", |change| change.pause_median_worst_s.to_string()),
    ("quiet s", |change| change.quiet_s.to_string()),
];

impl Results<'_> {
    fn print(&self) -> anyhow::Result<()> {
        let Cluster { servers, shards, shards_per_etcd, seed, .. } = self.cluster;
        let mut out = std::io::stdout().lock();
        let mib = (u64::from(*shards_per_etcd.min(shards)) * self.times.shard_bytes) >> 20;
        writeln!(
            out,
            "{servers} servers, {shards} shards, {} clusters of etcd with {mib} MiB each, seed {seed}",
            self.etcds
        )?;
        let header = COLUMNS.map(|(name, _)| name.to_owned()).into();
        let rows = self.changes.iter().map(|change| COLUMNS.map(|(_, of)| of(change)).into());
        writeln!(out, "{}", table(header, rows))?;
        Ok(())
    }
}
