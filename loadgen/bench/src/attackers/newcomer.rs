//! A newcomer among clients that connect as fast as they can.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- newcomer
//! ```
//!
//! A program on the second processor opens TCP connections from four addresses, 127.0.0.2 to 127.0.0.5, and
//! sends nothing on them. It keeps the latest of them (`--held`, of all addresses) and resets older ones, so
//! that ports do not run out. The server is on the first processor. Each of `--newcomers` comes from an
//! address of its own (127.0.1.1 and on) without earlier connections, and is timed from its connect to the
//! answer of its first call (`List`), with the TLS handshake between. A refused newcomer connects again, at
//! once.
//!
//! In the raw results: `sources`, `held`, `connects_per_s` (connections of the flood, while newcomers came),
//! `newcomers_us` of each, `failures` (connects that had to be repeated).

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use stickycas_proto::v1::ListRequest;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use tokio::net::{TcpSocket, TcpStream};

use super::child::Child;
use super::processors;
use super::server::{AllCredentials, AttackedServer};
use crate::principal::Principal;
use crate::results;
use crate::serve::{self, COORDINATOR};
use crate::summary::quantile;

/// A newcomer that is not in by then has failed.
const LONGEST: Duration = Duration::from_secs(20);
/// How long the flood goes on before newcomers come.
const WARM_UP: Duration = Duration::from_secs(1);
const SOURCES: u8 = 4;

/// How to measure newcomers.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Newcomers, one after the other.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=250))]
    newcomers: u8,
    /// Connections that the flood holds open.
    #[arg(long, default_value_t = 8_000)]
    held: usize,
    /// Connects under way at a time, from each address.
    #[arg(long, default_value_t = 8)]
    at_once: usize,
    /// Write every sample there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where to connect to.
#[derive(Debug, Args)]
pub(crate) struct FloodOptions {
    #[arg(long)]
    address: SocketAddr,
    #[arg(long)]
    held: usize,
    #[arg(long)]
    at_once: usize,
}

#[derive(Debug, Serialize)]
struct Results {
    sources: u8,
    held: usize,
    connects_per_s: f64,
    newcomers_us: Vec<f64>,
    failures: usize,
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    processors::keep_to_ours()?;
    let runtime = serve::runtime(1)?;
    let credentials = AllCredentials::make([])?;
    let server = AttackedServer::start(&credentials)?;
    let address = server.url.strip_prefix("https://").context("no https:// in the URL")?;
    let mut flood = processors::attackers_program()?;
    flood.args(["flood-connects", "--address", address, "--held", &options.held.to_string()]);
    flood.arg("--at-once").arg(options.at_once.to_string());
    let flood = Child::start(flood.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let started = Instant::now();
    let newcomers = measure(server.url.clone(), credentials.clients(), options.newcomers);
    let (times, failures) = runtime.block_on(runtime.spawn(newcomers))??;
    let lasted = started.elapsed();
    let connects: u64 = flood.finish()?.trim().parse().context("the flood does not say how many it were")?;
    #[allow(clippy::cast_precision_loss)]
    let results = Results {
        sources: SOURCES,
        held: options.held,
        connects_per_s: connects as f64 / lasted.as_secs_f64(),
        newcomers_us: times.iter().map(|time| time.as_secs_f64() * 1e6).collect(),
        failures,
    };
    ensure!(connects > 0, "nobody connected: that was no flood");
    let (p50, longest) = (quantile(times.clone(), 0.5), quantile(times, 1.0));
    let (p50, longest) = (p50.unwrap_or_default(), longest.unwrap_or_default());
    writeln!(
        std::io::stdout(),
        "{:.0} connects/s from {SOURCES} addresses; {} newcomers: p50 {:.1} ms, longest {:.1} ms, {failures} repeated",
        results.connects_per_s,
        results.newcomers_us.len(),
        p50.as_secs_f64() * 1e3,
        longest.as_secs_f64() * 1e3,
    )?;
    let written = |json: &PathBuf| results::write(json, "newcomer", &Default::default(), &results);
    options.json.as_ref().map_or(Ok(()), written)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(url: String, clients: PathBuf, newcomers: u8) -> anyhow::Result<(Vec<Duration>, usize)> {
    tokio::time::sleep(WARM_UP).await;
    let (mut times, mut failures) = (Vec::new(), 0);
    for number in 1..=newcomers {
        let from = IpAddr::from(Ipv4Addr::new(127, 0, 1, number));
        let started = Instant::now();
        while let Err(error) = come(&url, &clients, from).await {
            failures += 1;
            ensure!(started.elapsed() < LONGEST, "no newcomer gets in: {error:#}");
        }
        times.push(started.elapsed());
    }
    Ok((times, failures))
}

/// One client from this address, until its first call is answered.
async fn come(url: &str, clients: &Path, from: IpAddr) -> anyhow::Result<()> {
    let principal = Principal::certified_from(url, COORDINATOR, Some(clients), Some(from)).await?;
    let mut instances = InstanceServiceClient::new(principal.channel.clone());
    instances.list(principal.request(ListRequest::default())).await?;
    Ok(())
}

/// The subcommand `flood-connects`: connects until standard input ends, and then says how often.
pub(crate) fn flood(options: &FloodOptions) -> anyhow::Result<()> {
    let _files = stickycas_server::allow_all_files();
    let runtime = serve::runtime(1)?;
    let connects = Arc::new(AtomicU64::new(0));
    let tasks = usize::from(SOURCES) * options.at_once;
    for source in 0..SOURCES {
        for _ in 0..options.at_once {
            let from = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2 + source), 0));
            runtime.spawn(connect_on_and_on(from, options.address, options.held / tasks, connects.clone()));
        }
    }
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    writeln!(std::io::stdout(), "{}", connects.load(Ordering::Relaxed))?;
    runtime.shutdown_background();
    Ok(())
}

/// Connects without a pause, and holds the latest of them.
async fn connect_on_and_on(from: SocketAddr, to: SocketAddr, held: usize, connects: Arc<AtomicU64>) {
    let mut latest = VecDeque::new();
    loop {
        match connect(from, to).await {
            Ok(stream) => {
                connects.fetch_add(1, Ordering::Relaxed);
                latest.push_back(stream);
            }
            // No port or file is free: older ones make room.
            Err(_) => tokio::task::yield_now().await,
        }
        if latest.len() > held {
            drop(latest.pop_front());
        }
    }
}

/// A connection that is reset when it is dropped.
async fn connect(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_zero_linger()?;
    socket.bind(from)?;
    socket.connect(to).await
}
