//! The cost of TLS with certificates of both sides, beside the same on plain TCP, in one run.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- tls                   tables
//! cargo run --release -p stickycas-bench -- tls --json tls.json   and every sample
//! ```
//!
//! | measure | what |
//! | --- | --- |
//! | `unary`, `attach/64` | those of [`crate::wire`], against a server that believes names and one that knows callers by certificates |
//! | `connect` | clients that connect, `--at-once` at a time, make one call (`List`) and stay: connections per second, processor time of the server for each, and the memory of the server for each when all are there and idle |
//!
//! A connection with TLS is a whole handshake of TLS 1.3, with a signature of each side, since no session is
//! resumed. The answer of the first call proves that the server has accepted the client. One certificate
//! serves for all connections of `connect`: the server has no part in making others. Plain and TLS take
//! turns, each turn has a fresh server, and a ratio is taken within its round.
//!
//! In the raw results: `layout`, `rounds`, `connections`, and for each of `measures` its `name`, its samples
//! `plain` and `tls`, and `of_plain`, the ratio of the rates.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use stickycas_certificates::development::DevelopmentCas;
use stickycas_proto::v1::ListRequest;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use tokio::task::JoinSet;

use crate::fixture::{Fixture, roster};
use crate::principal::Principal;
use crate::results;
use crate::rounds::RoundOptions;
use crate::scale::server::peak_and_resident;
use crate::serve::{self, COORDINATOR, Launch, Layout, RunningServer, Service, TRUST_DOMAIN};
use crate::stopwatch::{Sample, processor_time_of};
use crate::summary::Summary;
use crate::table::table;
use crate::wire::attach;
use crate::wire::codec::HandWritten;
use crate::wire::unary;

/// How to measure TLS.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// Connections of each turn of `connect`.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// How many of them are being opened at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    at_once: u32,
}

/// The measurements, in the order of the turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Unary,
    Attach,
    Connect,
}

const MEASURES: [Measure; 3] = [Measure::Unary, Measure::Attach, Measure::Connect];
/// Instances that are played at the same time, and in one turn; as in [`crate::wire`].
const UNARY: (usize, usize) = (16, 800);
const ATTACH: (usize, usize) = (64, 4_000);
const LIFETIME: Duration = Duration::from_secs(24 * 3600);

impl Measure {
    fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Attach => "attach/64",
            Self::Connect => "connect",
        }
    }

    async fn turn(self, options: RoundOptions, connect: Connect, launch: Launch) -> anyhow::Result<Figures> {
        let played = |(in_flight, instances): (usize, usize)| (in_flight, options.scaled(instances));
        match self {
            Self::Unary => {
                let (in_flight, instances) = played(UNARY);
                let fixture = Fixture::start(instances, &launch).await?;
                Ok(Figures::of(&unary::run(&fixture, in_flight).await?))
            }
            Self::Attach => {
                let (in_flight, instances) = played(ATTACH);
                let fixture = Fixture::start(instances, &launch).await?;
                Ok(Figures::of(&attach::run::<HandWritten>(&fixture, in_flight, false).await?))
            }
            Self::Connect => connect.turn(&launch).await,
        }
    }
}

/// The figures of one turn, for each access or connection.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// Per second.
    rate: f64,
    /// Processor time of the server, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cost_us: Option<f64>,
    /// Memory of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<f64>,
}

impl Figures {
    fn of(sample: &Sample) -> Self {
        Self { rate: sample.rate(), server_cost_us: sample.server_cost(), memory_bytes: None }
    }
}

/// Connections that are opened, used once, and left open.
#[derive(Clone, Copy, Debug)]
struct Connect {
    connections: u32,
    at_once: u32,
}

impl Connect {
    async fn turn(self, launch: &Launch) -> anyhow::Result<Figures> {
        let server = RunningServer::start(Service::Stickycas, launch).await?;
        let pid = server.pid().context("the server is a program of its own")?;
        // So that what the server makes once is not counted.
        let warm = open(&server.url, server.clients()).await?;
        let (_, memory_before) = peak_and_resident(pid)?;
        let (time_before, started) = (processor_time_of(pid)?, Instant::now());
        let opened = self.open_all(&server).await?;
        let (wall, time) = (started.elapsed(), processor_time_of(pid)?.saturating_sub(time_before));
        let (_, memory) = peak_and_resident(pid)?;
        let count = f64::from(self.connections);
        ensure!(opened.len() == self.connections as usize, "{} connections are open", opened.len());
        drop((warm, opened));
        #[allow(clippy::cast_precision_loss)]
        let memory = memory.saturating_sub(memory_before) as f64;
        Ok(Figures {
            rate: count / wall.as_secs_f64(),
            server_cost_us: Some(time.as_secs_f64() * 1e6 / count),
            memory_bytes: Some(memory / count),
        })
    }

    async fn open_all(self, server: &RunningServer) -> anyhow::Result<Vec<Principal>> {
        let mut opening = JoinSet::new();
        for number in 0..self.at_once {
            let (url, clients) = (server.url.clone(), server.clients().map(Path::to_owned));
            // The first ones have one more if it does not come out even.
            let own = self.connections / self.at_once + u32::from(number < self.connections % self.at_once);
            opening.spawn(async move {
                let mut opened = Vec::new();
                for _ in 0..own {
                    opened.push(open(&url, clients.as_deref()).await?);
                }
                anyhow::Ok(opened)
            });
        }
        let mut all = Vec::new();
        while let Some(opened) = opening.join_next().await {
            all.extend(opened??);
        }
        Ok(all)
    }
}

/// One connection, on which the server has answered a call.
async fn open(url: &str, clients: Option<&Path>) -> anyhow::Result<Principal> {
    let principal = Principal::certified(url, COORDINATOR, clients).await?;
    let mut instances = InstanceServiceClient::new(principal.channel.clone());
    // A page is charged by its size.
    let list = ListRequest { page_size: 1, ..ListRequest::default() };
    instances.list(principal.request(list)).await?;
    Ok(principal)
}

/// The samples of a measure, round by round.
#[derive(Debug, Serialize)]
struct Series {
    name: &'static str,
    plain: Vec<Figures>,
    tls: Vec<Figures>,
    /// The rate with TLS in units of that of plain TCP in the same round.
    of_plain: Option<Summary>,
}

#[derive(Debug, Serialize)]
struct Results {
    layout: String,
    rounds: u32,
    connections: u32,
    measures: Vec<Series>,
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rounds = &options.rounds;
    rounds.check(&MEASURES.map(|measure| measure.name().to_owned()))?;
    ensure!(rounds.layout == Layout::TwoPrograms, "the server is a program of its own: leave out --layout");
    let files = stickycas_server::allow_all_files();
    ensure!(files > u64::from(options.connections) + 100, "only {files} files may be open: raise ulimit -n");
    let folder = tempfile::tempdir()?;
    make_credentials(folder.path())?;
    let (plain, tls) = (Launch::own(rounds.layout), Launch::own(rounds.layout).certified(folder.path()));
    let connect = Connect { connections: options.connections, at_once: options.at_once };
    let runtime = serve::runtime(rounds.layout.workers())?;
    let mut measures: Vec<(Measure, Series)> = Vec::new();
    for measure in MEASURES.into_iter().filter(|measure| rounds.wants(measure.name())) {
        let series = Series { name: measure.name(), plain: Vec::new(), tls: Vec::new(), of_plain: None };
        measures.push((measure, series));
    }
    for round in 0..=rounds.rounds {
        for (measure, series) in &mut measures {
            // Every other round TLS comes first: a drift favours neither.
            let mut turns = [(&plain, &mut series.plain), (&tls, &mut series.tls)];
            if round % 2 == 1 {
                turns.reverse();
            }
            for (launch, samples) in turns {
                let turn = measure.turn(rounds.clone(), connect, launch.clone());
                let figures = runtime.block_on(runtime.spawn(turn))?.context(measure.name())?;
                if round > 0 {
                    samples.push(figures);
                }
            }
        }
    }
    let mut measures: Vec<Series> = measures.into_iter().map(|(_, series)| series).collect();
    for series in &mut measures {
        let ratios = series.plain.iter().zip(&series.tls).map(|(plain, tls)| tls.rate / plain.rate);
        series.of_plain = Summary::of(ratios);
    }
    let results = Results {
        layout: "two-programs".to_owned(),
        rounds: rounds.rounds,
        connections: options.connections,
        measures,
    };
    results.print()?;
    let written = |json: &PathBuf| results::write(json, "tls", &Default::default(), &results);
    rounds.json.as_ref().map_or(Ok(()), written)?;
    Ok(ExitCode::SUCCESS)
}

/// A folder for the server, and one for each process and the coordinator.
fn make_credentials(folder: &Path) -> anyhow::Result<()> {
    let mut cas = DevelopmentCas::new(TRUST_DOMAIN, LIFETIME)?;
    let server = cas.server(&["127.0.0.1".to_owned()])?;
    cas.write_server(&folder.join("server"), &server)?;
    for name in roster().into_iter().chain([COORDINATOR.to_owned()]) {
        let client = cas.client(&name)?;
        cas.write_client(&folder.join("clients").join(name), &client)?;
    }
    Ok(())
}

impl Results {
    fn print(&self) -> anyhow::Result<()> {
        let header =
            ["measure", "plain/s", "TLS/s", "TLS of plain", "server us", "with TLS", "KiB", "with TLS"];
        let rows = self.measures.iter().map(|series| {
            let median = |samples: &[Figures], of: fn(&Figures) -> Option<f64>| {
                Summary::of(samples.iter().filter_map(of)).map(|summary| summary.median)
            };
            let shown = |samples: &[Figures], of: fn(&Figures) -> Option<f64>, digits: usize| {
                median(samples, of).map_or_else(String::new, |value| format!("{value:.digits$}"))
            };
            let rate: fn(&Figures) -> _ = |figures| Some(figures.rate);
            let cost: fn(&Figures) -> _ = |figures| figures.server_cost_us;
            let kib: fn(&Figures) -> _ = |figures| figures.memory_bytes.map(|bytes| bytes / 1024.0);
            let Summary { median: ratio, min, max } =
                series.of_plain.unwrap_or(Summary { median: 0.0, min: 0.0, max: 0.0 });
            vec![
                series.name.to_owned(),
                shown(&series.plain, rate, 0),
                shown(&series.tls, rate, 0),
                format!("{ratio:.2} ({min:.2} to {max:.2})"),
                shown(&series.plain, cost, 1),
                shown(&series.tls, cost, 1),
                shown(&series.plain, kib, 1),
                shown(&series.tls, kib, 1),
            ]
        });
        let table = table(header.map(str::to_owned).to_vec(), rows);
        writeln!(std::io::stdout(), "{table}")?;
        Ok(())
    }
}
