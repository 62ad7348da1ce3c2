//! Three servers over three members of etcd, beside one server and beside the same consensus on bare etcd
//! (`naive`); k instances in flight at all servers together. Feature `cluster`.
//!
//! With a log in etcd: `writes_per_s` (transactions that etcd has applied), and of an applied transaction its
//! `batches` (of one shard each), `steps` and `bytes`; `commit_us` is the time from handing a batch to the
//! committer to its commit.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;
use stickycas_client::ClusterInfo;
use tokio::task::JoinSet;

use crate::etcd::{self, Etcd, Program};
use crate::fixture::Fixture;
use crate::metrics::{self, Metrics};
use crate::results::Figures;
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, ANY_PORT, COORDINATOR, Launch};
use crate::stopwatch::Stopwatch;
use crate::wire::attach::{Play, play_all};
use crate::workload::Shape;

/// Enough space that etcd is not full within a turn.
const ETCD_QUOTA: u64 = 8 << 30;
/// The time within which all shards have their owners.
const SPREAD_WITHIN: Duration = Duration::from_secs(60);
/// The time between two questions who owns what.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// The least instances of a turn for each of those in flight.
const LEAST: usize = 4;
/// Proposals of writes that a member has applied: every member applies all of them.
const PROPOSALS: &str = "etcd_server_proposals_applied_total";

/// How to measure a cluster.
#[derive(Clone, Debug, Args)]
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
}

/// What is measured, and the instances in a turn, which take some seconds on two slow cores.
const KINDS: [(&str, usize); 4] =
    [("naive", 1_000), ("cluster", 3_000), ("durable", 6_000), ("memory", 6_000)];

#[derive(Clone, Copy, Debug)]
struct Measured {
    kind: &'static str,
    amount: usize,
    in_flight: usize,
}

impl Candidate for Measured {
    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.in_flight)
    }

    fn over(&self) -> Vec<String> {
        let others = if self.kind == "cluster" { ["naive", "durable", "memory"].as_slice() } else { &[] };
        others.iter().map(|kind| format!("{kind}/{}", self.in_flight)).collect()
    }
}

/// Measures, prints the tables and writes the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = Program::find(options.etcd.as_deref(), &options.rounds.common.disk())?;
    let program = program.context("etcd is missing: install it, or give --etcd")?;
    let server = servers::find(options.rounds.common.server.as_deref())?;
    let all = [16, 64]
        .into_iter()
        .flat_map(|in_flight| KINDS.map(|(kind, amount)| Measured { kind, amount, in_flight }));
    let candidates = options.rounds.wanted(all)?;
    let turns = Turns { options: options.clone(), program: program.clone(), launch: Launch::new(&server) };
    let rows = options.rounds.run(&candidates, |measured| {
        let turns = turns.clone();
        async move { turns.turn(measured).await }
    })?;
    let conditions = json!({"servers": options.servers, "members": options.members});
    options.rounds.report("cluster", Some(program.version), conditions, rows)
}

#[derive(Clone)]
struct Turns {
    options: Options,
    program: Program,
    launch: Launch,
}

impl Turns {
    /// One turn, on programs of its own.
    async fn turn(&self, Measured { kind, amount, in_flight }: Measured) -> anyhow::Result<Figures> {
        // Enough that most of the turn has as many in flight as it should.
        let amount = self.options.rounds.scaled(amount).max(LEAST * in_flight);
        let play = Play { in_flight, batch: true, ..Play::default() };
        match kind {
            "naive" => etcd::run(&self.etcd().await?, amount, in_flight).await,
            "cluster" => cluster(self.start().await?, amount, in_flight).await,
            kind => {
                let log = servers::folder(&self.options.rounds.common.disk())?;
                let launch = self.launch.clone();
                let launch = if kind == "durable" { launch.durable(log.path()) } else { launch };
                let fixture = Fixture::start(&launch, Shape::WIRE, amount).await?;
                fixture.measure(play_all(&fixture, &play)).await
            }
        }
    }

    async fn etcd(&self) -> anyhow::Result<Etcd> {
        let members = self.options.members.into();
        let options = etcd::Options { members, quota_bytes: Some(ETCD_QUOTA), ..etcd::Options::default() };
        self.program.start(&options).await
    }

    /// Starts etcd and servers, and waits until the shards are spread over them.
    async fn start(&self) -> anyhow::Result<Cluster> {
        let etcd = self.etcd().await?;
        let mut servers = Vec::new();
        for number in 0..self.options.servers {
            // Free now; nobody else takes it within the moment until the server does. It tells others its
            // port before it has one.
            let listen = TcpListener::bind(ANY_PORT)?.local_addr()?;
            let more = format!(
                "--listen {listen} --cluster bench --server-name server-{number} --lease 10s --etcd {} \
                 --etcd-quota {ETCD_QUOTA}",
                etcd.urls().join(",")
            );
            let server = Launch { more, ..self.launch.clone() }.start().await?;
            servers.push(Fixture::groups(server, Shape::WIRE, 1).await?);
        }
        let cluster = Cluster { servers, etcd };
        cluster.spread().await?;
        Ok(cluster)
    }
}

/// Members of etcd, and servers. Everything ends when this is dropped.
struct Cluster {
    servers: Vec<Fixture>,
    etcd: Etcd,
}

impl Cluster {
    /// Waits until all servers own about as many shards each: then none moves any more.
    async fn spread(&self) -> anyhow::Result<()> {
        let last = self.servers.last().context("there is no server")?;
        let client = last.server.client(COORDINATOR)?;
        let until = Instant::now() + SPREAD_WITHIN;
        while !client.cluster().await.is_ok_and(|told| self.is_spread(&told)) {
            ensure!(Instant::now() < until, "the shards have no owners within {SPREAD_WITHIN:?}");
            tokio::time::sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    fn is_spread(&self, told: &ClusterInfo) -> bool {
        let owned = told.servers.iter().filter(|server| !server.draining).map(|server| server.shards.len());
        let (least, most) = (owned.clone().min().unwrap_or(0), owned.clone().max().unwrap_or(0));
        let all = told.shards_without_owner.is_empty() && owned.count() == self.servers.len();
        all && least > 0 && most - least <= 1
    }

    /// What etcd and the servers have counted so far.
    async fn counts(&self) -> anyhow::Result<Counts> {
        let mut counts = Counts::default();
        for url in self.etcd.urls() {
            let metrics = Metrics::read(url.strip_prefix("http://").context("etcd has no TLS here")?).await?;
            counts.writes = counts.writes.max(metrics.value(PROPOSALS)?);
        }
        for Fixture { server, .. } in &self.servers {
            counts.log = counts.log.plus(1.0, &Metrics::read(server.operators()?).await?);
        }
        Ok(counts)
    }
}

#[derive(Debug, Default)]
struct Counts {
    /// Writes that etcd has applied: transactions that write, and a few for leases.
    writes: f64,
    /// A commit is one batch of one shard.
    log: Metrics,
}

impl Counts {
    /// Adds those between an earlier moment and this one to the figures of a turn.
    fn figures(self, before: &Self, (wall, figures): (Duration, Figures)) -> Figures {
        let (writes, log) = (self.writes - before.writes, self.log.plus(-1.0, &before.log));
        let count = |name| log.value(name).ok().filter(|count| *count > 0.0);
        let of_write = |name| count(name).map(|count| count / writes).filter(|_| writes > 0.0);
        let commit = count(metrics::SYNC_S).zip(count(metrics::COMMITS));
        figures
            .with("writes_per_s", writes / wall.as_secs_f64())
            .maybe("batches_per_write", of_write(metrics::COMMITS))
            .maybe("steps_per_write", of_write(metrics::STEPS))
            .maybe("bytes_per_write", of_write(metrics::BYTES))
            .maybe("commit_us", commit.map(|(seconds, commits)| seconds * 1e6 / commits))
    }
}

/// The part of a number that the one with this index among so many gets.
fn share(all: usize, of: usize, index: usize) -> usize {
    all / of + usize::from(index < all % of)
}

/// Plays instances on all servers at once.
async fn cluster(mut cluster: Cluster, instances: usize, in_flight: usize) -> anyhow::Result<Figures> {
    let count = cluster.servers.len();
    for (index, fixture) in cluster.servers.iter_mut().enumerate() {
        // As many for each in flight, so that all servers are busy until the end.
        let own = (instances * share(in_flight, count, index)).div_ceil(in_flight);
        fixture.ids = fixture.create(own, own).await?;
    }
    let cluster = Arc::new(cluster);
    let instances: usize = cluster.servers.iter().map(|fixture| fixture.ids.len()).sum();
    let before = cluster.counts().await?;
    let servers = cluster.servers.iter().map(|fixture| fixture.server.pid()).collect();
    let watch = Stopwatch::start(servers, etcd::pids(&cluster.etcd));
    let mut playing = JoinSet::new();
    for index in 0..count {
        let play = Play { in_flight: share(in_flight, count, index), batch: true, ..Play::default() };
        let cluster = cluster.clone();
        playing.spawn(async move { anyhow::Ok((index, play_all(&cluster.servers[index], &play).await?)) });
    }
    let mut observed = Vec::new();
    while let Some(played) = playing.join_next().await {
        observed.push(played??);
    }
    let sample = watch.stop(instances, instances * Shape::WIRE.accesses());
    let after = cluster.counts().await?;
    observed.iter().try_for_each(|(index, seen)| cluster.servers[*index].judge(seen))?;
    Ok(after.figures(&before, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_nothing_is_left() {
        for (all, of) in [(16, 3), (64, 3), (2, 3), (7, 1)] {
            let shares: Vec<usize> = (0..of).map(|index| share(all, of, index)).collect();
            assert_eq!(shares.iter().sum::<usize>(), all, "{shares:?}");
            assert!(shares[0] - shares[of - 1] <= 1, "{shares:?}");
        }
    }
}
