//! The start of a server on a large log: the time until it serves, its memory, and the disk that the log
//! takes.
//!
//! ```text
//! cargo build --release -p stickycas-server -p stickycas-bench
//! target/release/stickycas-bench start-up                                     1,000,000 archived, 100,000 live
//! target/release/stickycas-bench start-up --archived 100000 --live 10000 --disk DIR --json start-up.json
//! target/release/stickycas-bench start-up --keep DIR      the log is made once, for several builds of the server
//! ```
//!
//! The log is made by clients of the real server: the instances of `scale`, first those that end and are
//! archived, then those that stay live (all processes have joined, half of the warps have appended). Every
//! server is killed by SIGKILL, so each start finds a log that was not closed.
//!
//! | measured | how |
//! | --- | --- |
//! | `killed` | starts on the log as the kill left it: checkpoints, and the inputs behind them |
//! | `compacted` | starts after `stickycas-server data compact`: checkpoints only |
//! | bytes of an archived and of a live instance | disk in use after `data compact`, with and without them |
//! | disk in use, of what lives | disk in use after the kill, in units of that after `data compact` |
//!
//! A start is timed from the start of the process until `/readyz` says that the server serves; the metrics
//! then have to tell of every instance. The file is in the page cache, as it is when a server that was killed
//! is started again.
//!
//! In the raw results: `archived`, `live`, `disk` (the kind of file system), `made_s` (making the log),
//! `starts`: of `after`, each `seconds`, `peak_rss_bytes` and `rss_bytes`, and the `disk_bytes` before;
//! `archived_bytes_each`, `live_bytes_each`, `disk_of_live`.

mod log;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::disk;
use crate::operators::{self, Metrics};
use crate::scale::server::{self, DurableOptions, DurableServer};
use crate::scale::{at_least_one, finished};
use crate::serve::runtime;
use crate::summary::Summary;
use crate::table::table;
use log::{KeptPlace, Log, Made};

/// The time within which a server has to be ready.
const READY_WITHIN: Duration = Duration::from_secs(600);

/// The contents of the log, and the number of starts on it.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Archived instances.
    #[arg(long, default_value = "1000000", value_name = "N", value_parser = at_least_one())]
    archived: usize,
    /// Live instances.
    #[arg(long, default_value = "100000", value_name = "N", value_parser = at_least_one())]
    live: usize,
    /// How often a server is started on the log as it is, and again after it was compacted.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    /// Keeps the log in this folder: it is made in the first run, and each run starts servers on a copy.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    durable: DurableOptions,
}

/// One start.
#[derive(Clone, Copy, Debug, Serialize)]
struct Start {
    /// Until it served.
    seconds: f64,
    peak_rss_bytes: u64,
    rss_bytes: u64,
}

/// Starts on the same log.
#[derive(Debug, Serialize)]
struct Starts {
    after: &'static str,
    disk_bytes: u64,
    starts: Vec<Start>,
}

#[derive(Debug, Serialize)]
struct Findings {
    archived: usize,
    live: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<String>,
    made_s: f64,
    starts: Vec<Starts>,
    archived_bytes_each: u64,
    live_bytes_each: u64,
    disk_of_live: f64,
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let findings = runtime(2)?.block_on(measure(options))?;
    print(&findings)?;
    options.durable.write("start-up", &findings)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Options) -> anyhow::Result<Findings> {
    let Options { archived, live, .. } = *options;
    let program = options.durable.program()?;
    let directory = options.durable.directory();
    let folder = disk::folder(&directory, "start-up")?;
    let log = Log::new(&program, folder.path(), archived + live + finished::PORTION);
    let made = match &options.keep {
        None => log.make(archived, live).await?,
        Some(kept) if kept.exists() => log.copy_from(kept, archived, live)?,
        Some(kept) => {
            let place = KeptPlace::new(kept)?;
            let made = log.make(archived, live).await?;
            log.copy_to(place, &made)?;
            made
        }
    };
    let Made { archived_bytes, killed_bytes, made_s, .. } = made;
    let killed = starts("killed", killed_bytes, &log, options).await?;
    log.compact()?;
    let all = disk::usage(folder.path())?;
    let compacted = starts("compacted", all, &log, options).await?;
    #[allow(clippy::cast_precision_loss)]
    Ok(Findings {
        archived,
        live,
        disk: disk::file_system(&directory),
        made_s,
        archived_bytes_each: archived_bytes / archived as u64,
        live_bytes_each: all.saturating_sub(archived_bytes) / live as u64,
        disk_of_live: killed_bytes as f64 / all as f64,
        starts: vec![killed, compacted],
    })
}

/// Starts a server on the log, so many times.
async fn starts(
    after: &'static str,
    disk_bytes: u64,
    log: &Log,
    options: &Options,
) -> anyhow::Result<Starts> {
    let mut starts = Vec::new();
    for _ in 0..options.starts {
        let started = Instant::now();
        let server = log.start()?;
        operators::ready(&server.operators, READY_WITHIN).await?;
        let seconds = started.elapsed().as_secs_f64();
        check(&server, options).await?;
        let (peak_rss_bytes, rss_bytes) = server::peak_and_resident(server.process.pid())?;
        starts.push(Start { seconds, peak_rss_bytes, rss_bytes });
    }
    Ok(Starts { after, disk_bytes, starts })
}

/// Fails unless the server has all instances.
async fn check(server: &DurableServer, options: &Options) -> anyhow::Result<()> {
    let metrics = Metrics::read(&server.operators).await?;
    let count = |state: &str| metrics.value(&format!("stickycas_instances{{state=\"{state}\"}}"));
    let live = count("gathering")? + count("running")?;
    let ended = count("finished")? + count("closed")?;
    #[allow(clippy::cast_precision_loss)]
    let expected = (options.live as f64, options.archived as f64);
    ensure!((live, ended) == expected, "the server has {live} live and {ended} ended instances");
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn print(findings: &Findings) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    let head = ["log", "disk MiB", "seconds", "min", "max", "peak RSS MiB", "RSS MiB"];
    let rows = findings.starts.iter().map(|Starts { after, disk_bytes, starts }| {
        let seconds = Summary::of(starts.iter().map(|start| start.seconds));
        let cell = |figure: fn(&Summary) -> f64| {
            seconds.as_ref().map_or(String::new(), |seconds| format!("{:.2}", figure(seconds)))
        };
        let most = |figure: fn(&Start) -> u64| mib(starts.iter().map(figure).max().unwrap_or_default());
        vec![
            (*after).to_owned(),
            mib(*disk_bytes),
            cell(|it| it.median),
            cell(|it| it.min),
            cell(|it| it.max),
            most(|it| it.peak_rss_bytes),
            most(|it| it.rss_bytes),
        ]
    });
    writeln!(out, "{}", table(head.map(str::to_owned).into(), rows))?;
    writeln!(
        out,
        "\n{} archived instances: {} bytes of disk each; {} live ones: {} bytes each; disk in use, of what lives: {:.2}; \
         the log was made in {:.0} s",
        findings.archived,
        findings.archived_bytes_each,
        findings.live,
        findings.live_bytes_each,
        findings.disk_of_live,
        findings.made_s
    )?;
    Ok(())
}
