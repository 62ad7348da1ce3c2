//! Appends to an ordered log (crate `stickycas-log`), beside puts of etcd on the same disk: four writers,
//! each with so many at a time. The members are in two warps, q = p; a put of etcd goes to one member. Every
//! value has 100 bytes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;
use stickycas_log::{MAX_WINDOW, Member, Series, SeriesSpec};
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

use crate::etcd::wire::kv_client::KvClient;
use crate::etcd::wire::request_op::Request;
use crate::etcd::wire::{PutRequest, RequestOp, TxnRequest};
use crate::etcd::{self, Program};
use crate::fixture::principal;
use crate::results::Figures;
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, COORDINATOR, Launch};
use crate::tasks::in_parallel;

const WRITERS: usize = 4;
/// Appends of a turn: with one at a time, and with more.
const AMOUNTS: [(usize, usize); 2] = [(1, 1_000), (16, 8_000)];
const VALUE: [u8; 100] = [b'v'; 100];

/// How to measure appends.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// The program etcd; by default the one in PATH. Without it only the log is measured.
    #[arg(long, value_name = "PROGRAM")]
    etcd: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    kind: &'static str,
    /// Of each writer.
    in_flight: usize,
    amount: usize,
}

impl Candidate for Measured {
    fn name(&self) -> String {
        format!("{}/{}", self.kind, self.in_flight)
    }

    fn over(&self) -> Vec<String> {
        let others = if self.kind == "log-durable" { ["log", "etcd-puts"].as_slice() } else { &[] };
        others.iter().map(|kind| format!("{kind}/{}", self.in_flight)).collect()
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let disk = options.rounds.common.disk();
    let etcd = Program::find(options.etcd.as_deref(), &disk)?;
    let kinds =
        ["log", "log-durable", "etcd-puts"].into_iter().filter(|kind| *kind != "etcd-puts" || etcd.is_some());
    let all = kinds.flat_map(|kind| AMOUNTS.map(|(in_flight, amount)| Measured { kind, in_flight, amount }));
    let candidates = options.rounds.wanted(all)?;
    let program = servers::find(options.rounds.common.server.as_deref())?;
    let rows = options.rounds.run(&candidates, |measured| {
        let (etcd, disk, amount) = (etcd.clone(), disk.clone(), options.rounds.scaled(measured.amount));
        let launch = Launch { retention: "1h", ..Launch::new(&program) };
        async move {
            let folder = servers::folder(&disk)?;
            match measured.kind {
                "log" => log(&launch, measured.in_flight, amount).await,
                "log-durable" => log(&launch.durable(folder.path()), measured.in_flight, amount).await,
                _ => puts(&etcd.context("etcd is missing")?, measured.in_flight, amount).await,
            }
        }
    })?;
    options.rounds.report("appends", etcd.map(|etcd| etcd.version), json!({ "writers": WRITERS }), rows)
}

async fn log(launch: &Launch, in_flight: usize, amount: usize) -> anyhow::Result<Figures> {
    let server = launch.start().await?;
    let mut tasks = JoinSet::new();
    let coordinator = Series::new(&server.client(COORDINATOR)?, "log")?;
    let roster = (0..WRITERS).map(principal).collect();
    let spec = SeriesSpec { warp_size: 2, window: MAX_WINDOW, ..SeriesSpec::new(roster) };
    tasks.spawn(async move { coordinator.coordinate(&spec).await.map(|never| match never {}) });
    let mut members = Vec::new();
    for writer in 0..WRITERS {
        let (member, driver) =
            Member::join(&Series::new(&server.client(&principal(writer))?, "log")?).await?;
        tasks.spawn(driver.run());
        members.push(member);
    }
    let figures = timed(in_flight, amount, move |number| {
        let member = members[number % WRITERS].clone();
        async move { Ok(member.append(VALUE).await.map(drop)?) }
    });
    let figures = figures.await?;
    ensure!(tasks.try_join_next().is_none(), "a member or the coordinator has ended");
    Ok(figures)
}

async fn puts(program: &Program, in_flight: usize, amount: usize) -> anyhow::Result<Figures> {
    let etcd = program.start(&etcd::Options::default()).await?;
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let url = etcd.urls().first().context("etcd has no member")?.clone();
        writers.push(KvClient::new(Endpoint::from_shared(url)?.connect().await?));
    }
    timed(in_flight, amount, move |number| {
        let mut writer = writers[number % WRITERS].clone();
        let key = format!("log/{number}").into_bytes().into();
        let put = PutRequest { key, value: VALUE.to_vec().into(), ..PutRequest::default() };
        // On condition of nothing.
        let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        let put = TxnRequest { success, ..TxnRequest::default() };
        async move { Ok(writer.txn(put).await.map(drop)?) }
    })
    .await
}

/// This many appends in all, so many at a time of each writer.
#[allow(clippy::cast_precision_loss)]
async fn timed<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
    in_flight: usize,
    amount: usize,
    append: impl Fn(usize) -> F + Clone + Send + 'static,
) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let times: Vec<Duration> = in_parallel(amount, WRITERS * in_flight, move |number| {
        let append = append(number);
        async move {
            let begun = Instant::now();
            append.await?;
            Ok(begun.elapsed())
        }
    })
    .await?;
    let appends_per_s = amount as f64 / begun.elapsed().as_secs_f64();
    let figures = Figures::default().with("appends_per_s", appends_per_s);
    Ok(figures.quantile_ms("median_ms", &times, 0.5).quantile_ms("p99_ms", &times, 0.99))
}
