//! How long instances pause when a server of a cluster is drained, and when one joins.
//!
//! ```text
//! cargo run --release -p stickycas-bench --features cluster -- cluster-moves --json cluster-moves.json
//! ```
//!
//! Instances of one process are live on three servers; each makes an access at its pace, by a unary call of
//! the client library, which goes on at the next owner by itself. Each access is a step that is committed.
//! Then a server is drained, is started again, and a fourth one joins, one change after the other, each when
//! the shards are spread again and some calm time has passed.
//!
//! | figure | meaning |
//! | --- | --- |
//! | shards, instances | those that have another owner after the change; instances that belong to these shards |
//! | pause of a shard | the longest time without an answer to any of its instances, with an access planned in it: its instances pause as long. Its resolution is the pace over the instances of a shard |
//! | delay of an instance | the longest time from the planned moment of an access to its answer, of the instances that have moved |
//! | calm | the same of all accesses in the calm time before, at the same load |
//!
//! In the raw results: the options, `load`, and for each of `changes` (`drain`, `join`: back to three,
//! `join-4`) its `shards`, `instances`, `paused` (instances of moved shards with an access that waited 100 ms
//! or more), `settled_s` (until the shards were spread), and in milliseconds `median`, `p99` and `worst` of
//! `shard_pause`, `instance_delay`, `calm_delay`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use stickycas_client::{
    AccessNumber, Client, InstanceId, Params, ParamsSpec, Position, RetryPolicy, WaitMode,
};
use stickycas_cluster::shard::{ShardCount, shard_of};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::load_average;
use super::servers::ClusterServers;
use crate::etcd::Program;
use crate::serve::{self, COORDINATOR};
use crate::summary::quantile;
use crate::table::table;
use crate::{disk, results};

/// Connections of the clients to each server: so many that few calls of each wait at once.
const CLIENTS: usize = 32;
/// The time in which the instances are created: those of 100 ms are of one shard, and each shard is to have
/// some.
const CREATION: Duration = Duration::from_millis(2_500);
/// Instances end after the measurement.
const RETENTION: Duration = Duration::from_secs(600);
/// A delay that counts as a pause.
const PAUSE: Duration = Duration::from_millis(100);

/// How to measure moves.
#[derive(Debug, Args)]
pub(crate) struct MoveOptions {
    /// Instances that are live.
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..))]
    instances: u32,
    /// The time between two accesses of an instance.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = stickycas_program::parse_duration)]
    pace: Duration,
    /// The time before each change.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stickycas_program::parse_duration)]
    calm: Duration,
    /// The lease of a server.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stickycas_program::parse_duration)]
    lease: Duration,
    /// Members of etcd.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    members: u8,
    /// The program etcd; by default the one in PATH.
    #[arg(long, value_name = "PROGRAM")]
    etcd: Option<PathBuf>,
    /// The directory for etcd's data; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// Write every figure there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// An access that was answered.
#[derive(Clone, Copy, Debug)]
struct Answered {
    instance: usize,
    planned: Instant,
    at: Instant,
}

/// All accesses so far.
type Answers = Arc<Mutex<Vec<Answered>>>;

/// The raw results.
#[derive(Debug, Serialize)]
struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    members: u8,
    instances: u32,
    pace_s: f64,
    lease_s: f64,
    load: [Option<f64>; 2],
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    name: &'static str,
    shards: usize,
    instances: usize,
    paused: usize,
    settled_s: f64,
    shard_pause: Spread,
    instance_delay: Spread,
    calm_delay: Spread,
}

/// In milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Spread {
    median: f64,
    p99: f64,
    worst: f64,
}

impl Spread {
    fn of(times: &[Duration]) -> Self {
        let at = |part| quantile(times.to_vec(), part).map_or(0.0, |time| time.as_secs_f64() * 1e3);
        Self { median: at(0.5), p99: at(0.99), worst: at(1.0) }
    }

    fn cell(self) -> String {
        format!("{:.0} / {:.0} / {:.0}", self.median, self.p99, self.worst)
    }
}

/// Measures, prints the table and writes the raw results.
pub(crate) fn run(options: &MoveOptions) -> anyhow::Result<ExitCode> {
    let directory = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let program = Program::find(options.etcd.as_deref(), &directory)?;
    let program = program.context("etcd is missing: install it, or give --etcd")?;
    let load_before = load_average();
    let runtime = serve::runtime(2)?;
    let changes = runtime.block_on(measure(options, &program))?;
    let results = Results {
        disk: disk::file_system(&directory),
        members: options.members,
        instances: options.instances,
        pace_s: options.pace.as_secs_f64(),
        lease_s: options.lease.as_secs_f64(),
        load: [load_before, load_average()],
        changes,
    };
    results.print()?;
    if let Some(path) = &options.json {
        results::write(
            path,
            "cluster-moves",
            &BTreeMap::from([("etcd".to_owned(), program.version)]),
            &results,
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &MoveOptions, program: &Program) -> anyhow::Result<Vec<Change>> {
    let sizes = (usize::from(options.members), 3);
    let mut measurement =
        Measurement::start(options, ClusterServers::start(program, sizes, options.lease, RETENTION).await?)
            .await?;
    let mut changes = Vec::new();
    sleep(options.calm).await;
    changes.push(measurement.change("drain", options, async |cluster| cluster.drain(0).await).await?);
    changes.push(measurement.change("join", options, async |cluster| cluster.join(0).await).await?);
    changes.push(measurement.change("join-4", options, async |cluster| cluster.join(3).await).await?);
    measurement.check().await?;
    Ok(changes)
}

/// A cluster with its load.
struct Measurement {
    cluster: ClusterServers,
    shards: ShardCount,
    ids: Vec<InstanceId>,
    answers: Answers,
    players: JoinSet<anyhow::Result<()>>,
}

impl Measurement {
    /// Creates the instances, as many at each server, and begins to play.
    async fn start(options: &MoveOptions, cluster: ClusterServers) -> anyhow::Result<Self> {
        let urls = cluster.urls();
        let shards = ShardCount::new(clients(&urls[..1])?.cluster().await?.shards)?;
        let params = Params::try_new(ParamsSpec::new(1, 1, 1))?;
        let creators =
            urls.iter().map(|url| clients(std::slice::from_ref(url))).collect::<Result<Vec<_>, _>>()?;
        let (mut ids, begin): (Vec<InstanceId>, _) = (Vec::new(), Instant::now());
        for instance in 0..options.instances as usize {
            sleep_until(begin + CREATION.mul_f64(instance as f64 / f64::from(options.instances))).await;
            let create = creators[instance % urls.len()].create_instance();
            let created = create.params(&params).roster([principal(instance)]).send().await?;
            ids.push(created.instance.id);
        }
        let connections = (0..CLIENTS).map(|_| clients(&urls)).collect::<Result<Vec<_>, _>>()?;
        let (answers, mut players, begin) = (Answers::default(), JoinSet::new(), Instant::now());
        for (instance, &id) in ids.iter().enumerate() {
            let client = connections[instance % CLIENTS].as_principal(&principal(instance))?;
            let first = begin + options.pace.mul_f64(instance as f64 / f64::from(options.instances));
            players.spawn(play(
                client,
                (instance, id),
                params.clone(),
                (first, options.pace),
                answers.clone(),
            ));
        }
        Ok(Self { cluster, shards, ids, answers, players })
    }

    /// The epoch of the owner of each shard.
    async fn owners(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let told = clients(&self.cluster.urls())?.cluster().await?;
        Ok(told
            .servers
            .iter()
            .flat_map(|server| &server.shards)
            .map(|owned| (owned.shard, owned.epoch))
            .collect())
    }

    /// Makes a change, waits until the shards are spread again and some calm time has passed.
    async fn change(
        &mut self,
        name: &'static str,
        options: &MoveOptions,
        change: impl AsyncFnOnce(&mut ClusterServers) -> anyhow::Result<()>,
    ) -> anyhow::Result<Change> {
        let before = self.owners().await?;
        let start = Instant::now();
        change(&mut self.cluster).await?;
        self.cluster.spread().await?;
        let settled = start.elapsed();
        let after = self.owners().await?;
        sleep(options.calm).await;
        let moved: BTreeSet<u32> = after
            .iter()
            .filter(|(shard, epoch)| before.get(shard) != Some(epoch))
            .map(|(shard, _)| *shard)
            .collect();
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let calm =
            answers.iter().filter(|answer| answer.planned + options.calm >= start && answer.at < start);
        let calm_delay = Spread::of(&calm.map(|answer| answer.at - answer.planned).collect::<Vec<_>>());
        let window = (start, start + settled + options.calm / 2);
        let moves = self.moves(&moved, &answers, window);
        Ok(Change {
            name,
            shards: moved.len(),
            instances: moves.delays.len(),
            paused: moves.delays.values().filter(|delay| **delay >= PAUSE).count(),
            settled_s: settled.as_secs_f64(),
            shard_pause: Spread::of(&moves.pauses()),
            instance_delay: Spread::of(&moves.delays.into_values().collect::<Vec<_>>()),
            calm_delay,
        })
    }

    fn shard(&self, instance: usize) -> u32 {
        shard_of(self.ids[instance].get(), self.shards).get()
    }

    /// The delays and answers of the instances of moved shards in this time.
    fn moves(&self, moved: &BTreeSet<u32>, answers: &[Answered], (from, to): (Instant, Instant)) -> Moves {
        let mut moves = Moves::default();
        for answer in answers {
            let shard = self.shard(answer.instance);
            if moved.contains(&shard) && answer.at >= from && answer.planned < to {
                let delay = moves.delays.entry(answer.instance).or_default();
                *delay = (*delay).max(answer.at - answer.planned);
                moves.answered.entry(shard).or_default().push((answer.planned, answer.at));
            }
        }
        moves
    }

    /// Fails if a player has ended.
    async fn check(&mut self) -> anyhow::Result<()> {
        match self.players.try_join_next() {
            None => Ok(()),
            Some(ended) => ended?,
        }
    }
}

#[derive(Debug, Default)]
struct Moves {
    /// The longest delay of an access, by instance.
    delays: BTreeMap<usize, Duration>,
    /// When accesses were planned and answered, by shard.
    answered: BTreeMap<u32, Vec<(Instant, Instant)>>,
}

impl Moves {
    /// The pause of each shard.
    fn pauses(&self) -> Vec<Duration> {
        self.answered.values().map(|answered| pause(answered.clone())).collect()
    }
}

/// The longest time without an answer: from the first access that was planned behind an answer to the next
/// answer.
fn pause(mut answered: Vec<(Instant, Instant)>) -> Duration {
    answered.sort_unstable_by_key(|(_, at)| *at);
    let mut planned: Vec<Instant> = answered.iter().map(|(planned, _)| *planned).collect();
    planned.sort_unstable();
    let waits = answered.windows(2).filter_map(|pair| {
        let (before, next) = (pair[0].1, pair[1].1);
        let first = planned.get(planned.partition_point(|planned| *planned < before))?;
        Some(next.saturating_duration_since(*first))
    });
    waits.max().unwrap_or_default()
}

/// Clients of all these servers.
fn clients(urls: &[String]) -> Result<Client, stickycas_client::Error> {
    let first = Client::builder(&urls[0]).principal(COORDINATOR);
    let all = urls[1..].iter().fold(first, stickycas_client::ClientBuilder::server);
    all.retry(RetryPolicy::of_cluster().without_end()).connect_lazy()
}

fn principal(instance: usize) -> String {
    format!("process-{}", instance % CLIENTS)
}

/// An append, and one read after the other, each at its moment.
async fn play(
    client: Client,
    (instance, id): (usize, InstanceId),
    params: Params,
    (first, pace): (Instant, Duration),
    answers: Answers,
) -> anyhow::Result<()> {
    let mut planned = first;
    for number in (1..).filter_map(AccessNumber::new) {
        sleep_until(planned).await;
        if number == AccessNumber::FIRST {
            client.append(id, number, "value", WaitMode::UntilPhase).await?;
        } else {
            client.read(id, &params, number, Position::new(0), WaitMode::UntilPhase).await?;
        }
        let answered = Answered { instance, planned, at: Instant::now() };
        answers.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
        // Accesses that were due in a pause are not made up for: each has its delay in the one that waited.
        while planned <= answered.at {
            planned += pace;
        }
    }
    Ok(())
}

impl Results {
    fn print(&self) -> anyhow::Result<()> {
        let header = [
            "change",
            "shards moved",
            "instances moved",
            "paused 100 ms or more",
            "pause of a shard: median / p99 / worst ms",
            "delay of an instance",
            "calm",
            "spread after s",
        ];
        let rows = self.changes.iter().map(|change| {
            vec![
                change.name.to_owned(),
                change.shards.to_string(),
                change.instances.to_string(),
                change.paused.to_string(),
                change.shard_pause.cell(),
                change.instance_delay.cell(),
                change.calm_delay.cell(),
                format!("{:.2}", change.settled_s),
            ]
        });
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", table(header.map(str::to_owned).into(), rows))?;
        if let [Some(before), Some(after)] = self.load {
            writeln!(out, "\nload of the machine: {before:.1} before, {after:.1} after")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_begins_with_the_first_access_that_waits() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        // Answered at once, but for what was planned from 100 to 400; nothing was planned between 500 and
        // 900.
        let answered = [(0, 1), (50, 51), (100, 430), (200, 440), (400, 445), (500, 501), (900, 902)]
            .map(|(a, b)| (at(a), at(b)));
        assert_eq!(pause(answered.to_vec()), Duration::from_millis(330));
        assert_eq!(pause(answered[..2].to_vec()), Duration::from_millis(1));
        assert_eq!(pause(Vec::new()), Duration::ZERO);
    }
}
