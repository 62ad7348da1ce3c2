//! A durable server under load for long: whether disk and memory stay flat, and what checkpoints cost.
//!
//! ```text
//! cargo build --release -p stickycas-server -p stickycas-bench
//! target/release/stickycas-bench soak                                  360,000 instances: an hour of 100 a second
//! target/release/stickycas-bench soak --live 20000 --in-flight 4 --instances 40000     p99 beside checkpoints
//! ```
//!
//! The instances are those of `scale`: created, played and judged in portions, by eight principals with
//! `--in-flight` of them at a time. Their retention is short, so that the server forgets them; everything
//! else about the log is as by default. With `--live` there are instances besides which do not end: all their
//! processes read in a slice of them every 50 ms, so that each of them has new inputs whenever checkpoints
//! are written.
//!
//! Four times a second, and at the end: the disk that the log takes, the memory of the server, and how many
//! checkpoints it has written. An access is timed from the moment it was sent to the moment its answer came;
//! the load is closed, so an access that the server delays also delays those behind it. It belongs to the
//! sample in which it was answered; checkpoints are taken in a sample if their count has grown in it or in
//! the one before, for behind the last of them the log is trimmed. *Flat* means: the first third warms up;
//! the most of the last third is at most 10 % above that of the middle one, and the line that fits both best
//! rises by at most 10 % of their mean.
//!
//! In the raw results: `instances`, `live`, `in_flight`, `retention`, `disk` (the kind of file system),
//! `wall_s`; `trends` of `disk_bytes` and `rss_bytes`: the most of each third, the `rise`, and whether it is
//! `flat`; `with_checkpoints` and `without`: `samples`, `accesses`, `median_us`, `p99_us`, `most_us`;
//! `samples`: column by column, `until_s`, `disk_bytes`, `rss_bytes`, `checkpoints`, `accesses`, `p99_us`.

mod live;
mod report;
mod samples;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

use self::live::LiveInstances;
use self::report::Findings;
use self::samples::{Observations, Sampler};
use crate::scale::at_least_one;
use crate::scale::finished::{IN_FLIGHT, PORTION, portion};
use crate::scale::fixture::{PROCESSES, ScaleFixture};
use crate::scale::live::groups;
use crate::scale::server::{DurableOptions, DurableServer, Serving};
use crate::serve::runtime;
use crate::{disk, operators};

/// The time within which the server has to be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// The load, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Instances that are played to their end.
    #[arg(long, default_value = "360000", value_name = "N", value_parser = at_least_one())]
    instances: usize,
    /// Instances besides that do not end.
    #[arg(long, default_value_t = 0, value_name = "N")]
    live: usize,
    /// Instances that each principal plays at a time.
    #[arg(long, default_value_t = IN_FLIGHT, value_name = "N", value_parser = at_least_one())]
    in_flight: usize,
    /// How long the server keeps a finished instance.
    #[arg(long, default_value = "5s", value_name = "DURATION")]
    retention: String,
    #[command(flatten)]
    durable: DurableOptions,
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let directory = options.durable.directory();
    let observations = runtime(2)?.block_on(measure(options, &directory))?;
    let findings = Findings::new(options, disk::file_system(&directory), &observations);
    findings.print()?;
    options.durable.write("soak", &findings)?;
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Options, directory: &Path) -> anyhow::Result<Observations> {
    let program = options.durable.program()?;
    let folder = disk::folder(directory, "soak")?;
    // Instances that have ended are there until their retention is over.
    let room = options.live + options.instances + PORTION;
    let server = DurableServer::start(&program, &Serving::durable(room, &options.retention, folder.path()))?;
    operators::ready(&server.operators, READY_WITHIN).await?;
    let (operators, pid) = (server.operators, server.process.pid());
    let principals = groups(options.live).max(1) * PROCESSES as usize;
    let fixture = Arc::new(ScaleFixture::on(server.process, principals).await?);
    let live = LiveInstances::begin(&fixture, options.live).await?;
    let reading = tokio::spawn(live.read_on());
    let sampler = Sampler::start(Instant::now(), folder.path().to_owned(), operators, pid)?;
    let mut accesses = Vec::new();
    let mut done = 0;
    while done < options.instances {
        let next = done..(done + PORTION).min(options.instances);
        done = next.end;
        accesses.extend(portion(&fixture, next, false, options.in_flight).await?.times);
    }
    if reading.is_finished() {
        reading.await?.context("the live instances")?;
    } else {
        reading.abort();
    }
    sampler.stop(accesses)
}
