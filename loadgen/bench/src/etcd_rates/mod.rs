//! The rates of a cluster of etcd with one program: fenced appends as a server makes them, and changes sent
//! to watches.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- etcd-rates --members 3 --json etcd-rates.json
//! ```
//!
//! A **fenced append** is a transaction that compares the create revision of an owner's key and the value of
//! the key that says where the log ends, and puts two keys: that end, and the batch. Each of the appends in
//! flight is of a shard of its own, so all of them succeed. All members and this program share the machine:
//! the members wait for its disk (fsync), each for itself.
//!
//! **Watches**: so many watches of one prefix, all of this program; the time from the first put of a key
//! there until the last watch has received the last change.
//!
//! Each round has an etcd of its own. In the raw results: `disk`, `members`, `rounds`; for each of `appends`
//! its `batch_bytes` and `in_flight`, over the rounds the summaries `per_second`, `bytes_per_second` (of
//! batches), `median_us` and `p99_us`; `watches` and the summary `changes_per_second` (changes times
//! watches).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use stickycas_cluster::etcd::Client;
use stickycas_cluster::store::{Compare, KeyRange, Op, Revision, Store as _, StoreError, Txn, Watch as _};
use tokio::task::JoinSet;

use crate::etcd::{Options as EtcdOptions, Program};
use crate::summary::{Summary, quantile};
use crate::table::table;
use crate::{disk, results};

/// Bytes of the batches.
const BATCHES: [usize; 3] = [1 << 10, 16 << 10, 256 << 10];
/// Appends in flight.
const IN_FLIGHT: [usize; 2] = [1, 16];
/// Enough space for the largest batches.
const QUOTA: u64 = 8 << 30;
/// Puts in flight beside the watches.
const WRITERS: usize = 16;
/// The prefix that is watched.
const WATCHED: &str = "watched/";

/// How to measure etcd.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often everything is measured.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Members of etcd.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=7))]
    members: u8,
    /// The time for each kind of append in a round.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = stickycas_program::parse_duration)]
    turn: Duration,
    /// Watches of one prefix.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    watches: u32,
    /// Keys that are put beside the watches.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..))]
    changes: u32,
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

/// The raw results.
#[derive(Debug, Serialize)]
struct Results {
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    members: u8,
    rounds: u32,
    appends: Vec<Appends>,
    watches: u32,
    changes_per_second: Option<Summary>,
}

#[derive(Debug, Serialize)]
struct Appends {
    batch_bytes: usize,
    in_flight: usize,
    per_second: Option<Summary>,
    bytes_per_second: Option<Summary>,
    median_us: Option<Summary>,
    p99_us: Option<Summary>,
}

/// One turn of one kind of append: the time of each, and of all.
struct Turn {
    each: Vec<Duration>,
    all: Duration,
}

/// Measures, prints the table and writes the raw results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let directory = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let program = Program::find(options.etcd.as_deref(), &directory)?;
    let program = program.context("etcd is missing: install it, or give --etcd")?;
    let kinds: Vec<(usize, usize)> =
        BATCHES.into_iter().flat_map(|bytes| IN_FLIGHT.map(|in_flight| (bytes, in_flight))).collect();
    let mut turns: Vec<Vec<Turn>> = kinds.iter().map(|_| Vec::new()).collect();
    let mut told = Vec::new();
    for _ in 0..options.rounds {
        let members = usize::from(options.members);
        let started = EtcdOptions { members, quota_bytes: Some(QUOTA), ..EtcdOptions::default() };
        runtime.block_on(async {
            let etcd = program.start(&started).await?;
            let client = Client::new(&etcd.config())?;
            for (kind, &(bytes, in_flight)) in kinds.iter().enumerate() {
                turns[kind].push(appends(&client, bytes, in_flight, options.turn).await?);
            }
            told.push(watches(&client, options.watches, options.changes).await?);
            anyhow::Ok(())
        })?;
    }
    let appends = kinds.iter().zip(&turns).map(|(&kind, turns)| Appends::of(kind, turns)).collect();
    let results = Results {
        disk: disk::file_system(&directory),
        members: options.members,
        rounds: options.rounds,
        appends,
        watches: options.watches,
        changes_per_second: Summary::of(told),
    };
    results.print()?;
    if let Some(path) = &options.json {
        let programs = BTreeMap::from([("etcd".to_owned(), program.version)]);
        results::write(path, "etcd-rates", &programs, &results)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// So many shards append one batch after the other for so long.
async fn appends(client: &Client, bytes: usize, in_flight: usize, turn: Duration) -> anyhow::Result<Turn> {
    let start = Instant::now();
    let mut shards = JoinSet::new();
    for shard in 0..in_flight {
        shards.spawn(append(client.clone(), format!("{bytes}-{in_flight}-{shard}"), bytes, start + turn));
    }
    let mut each = Vec::new();
    while let Some(shard) = shards.join_next().await {
        each.extend(shard??);
    }
    Ok(Turn { each, all: start.elapsed() })
}

async fn append(
    client: Client,
    shard: String,
    bytes: usize,
    until: Instant,
) -> anyhow::Result<Vec<Duration>> {
    let (owner, end) = (Bytes::from(format!("owner/{shard}")), Bytes::from(format!("end/{shard}")));
    let epoch = put(&client, owner.clone(), "server-1".into()).await?;
    put(&client, end.clone(), "0".into()).await?;
    let batch = Bytes::from(vec![0x5a; bytes]);
    let mut each = Vec::new();
    for place in 1_u64.. {
        let begin = Instant::now();
        if begin >= until {
            break;
        }
        let mark = |place: u64| Bytes::from(place.to_string());
        let log = Bytes::from(format!("log/{shard}/{place:020}"));
        let compare =
            vec![Compare::Created(owner.clone(), epoch), Compare::Value(end.clone(), mark(place - 1))];
        let then = vec![
            Op::Put { key: end.clone(), value: mark(place), lease: None },
            Op::Put { key: log, value: batch.clone(), lease: None },
        ];
        let answer = client.txn(Txn { compare, then, otherwise: Vec::new() }).await?;
        ensure!(answer.succeeded, "nobody else writes to shard {shard}");
        each.push(begin.elapsed());
    }
    Ok(each)
}

async fn put(client: &Client, key: Bytes, value: Bytes) -> Result<Revision, StoreError> {
    let then = vec![Op::Put { key, value, lease: None }];
    Ok(client.txn(Txn { then, ..Txn::default() }).await?.revision)
}

/// Changes a second, to all watches together.
async fn watches(client: &Client, watches: u32, changes: u32) -> anyhow::Result<f64> {
    let before = client.range(KeyRange::one("nothing"), 1).await?.revision;
    let mut told = JoinSet::new();
    for _ in 0..watches {
        let mut watch = client.watch(KeyRange::prefix(WATCHED), before.next()).await?;
        told.spawn(async move {
            let mut left = changes as usize;
            while left > 0 {
                left = left.saturating_sub(watch.next().await?.len());
            }
            Ok::<_, StoreError>(())
        });
    }
    let start = Instant::now();
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = client.clone();
        writers.spawn(async move {
            for number in (writer..changes as usize).step_by(WRITERS) {
                put(&client, format!("{WATCHED}{number}").into(), "server-1".into()).await?;
            }
            Ok::<_, StoreError>(())
        });
    }
    while let Some(writer) = writers.join_next().await {
        writer??;
    }
    while let Some(watch) = told.join_next().await {
        if let Err(error) = watch? {
            bail!("a watch has ended: {error}");
        }
    }
    Ok(f64::from(changes) * f64::from(watches) / start.elapsed().as_secs_f64())
}

impl Appends {
    #[allow(clippy::cast_precision_loss)]
    fn of((batch_bytes, in_flight): (usize, usize), turns: &[Turn]) -> Self {
        let rates: Vec<f64> =
            turns.iter().map(|turn| turn.each.len() as f64 / turn.all.as_secs_f64()).collect();
        let micros = |at: f64| {
            let each = |turn: &Turn| Some(quantile(turn.each.clone(), at)?.as_secs_f64() * 1e6);
            Summary::of(turns.iter().filter_map(each))
        };
        Self {
            batch_bytes,
            in_flight,
            per_second: Summary::of(rates.clone()),
            bytes_per_second: Summary::of(rates.iter().map(|rate| rate * batch_bytes as f64)),
            median_us: micros(0.5),
            p99_us: micros(0.99),
        }
    }
}

impl Results {
    fn print(&self) -> anyhow::Result<()> {
        let header = ["batch KiB", "in flight", "appends/s", "min", "max", "MiB/s", "median ms", "p99 ms"];
        let median = |summary: Option<Summary>| summary.map_or(f64::NAN, |summary| summary.median);
        let rows = self.appends.iter().map(|row| {
            let rate = row.per_second.unwrap_or(Summary { median: 0.0, min: 0.0, max: 0.0 });
            vec![
                (row.batch_bytes >> 10).to_string(),
                row.in_flight.to_string(),
                format!("{:.0}", rate.median),
                format!("{:.0}", rate.min),
                format!("{:.0}", rate.max),
                format!("{:.1}", median(row.bytes_per_second) / f64::from(1 << 20)),
                format!("{:.2}", median(row.median_us) / 1e3),
                format!("{:.2}", median(row.p99_us) / 1e3),
            ]
        });
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", table(header.map(str::to_owned).into(), rows))?;
        writeln!(
            out,
            "{} watches of one prefix: {:.0} changes told per second, all together",
            self.watches,
            median(self.changes_per_second)
        )?;
        Ok(())
    }
}
