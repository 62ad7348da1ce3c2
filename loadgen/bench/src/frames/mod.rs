//! One instance at a time beside clients without identity that flood the server with HTTP/2 frames.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- frames
//! cargo run --release -p stickycas-bench -- frames --connections 16,64,200 --instances 100
//! ```
//!
//! The workload is `attach` of [`crate::latency`]: an instance of 32 processes, from its first message to its
//! last decision. The server and the correct processes run on the first processor, the attackers are a
//! program of their own on the second (with `taskset`). The quiet turn is measured before each turn with a
//! flood, and the ratio is taken within the pair.

mod attacker;

use std::io::Write as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

pub(crate) use self::attacker::{AttackerOptions, Frames, attack};
use crate::fixture::Fixture;
use crate::serve::{self, Launch, Layout};
use crate::{latency, table::table};

/// How long a flood runs before instances are measured.
const WARM_UP: Duration = Duration::from_millis(500);

/// How to measure beside a flood of frames.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Connections that flood.
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [16, 64, 200])]
    connections: Vec<usize>,
    /// Instances in one turn.
    #[arg(long, value_name = "N", default_value_t = 50)]
    instances: usize,
    /// The longest turn, in seconds; a turn that is cut short says of how many instances it is.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    longest: u64,
    /// Frames that are sent; by default each kind.
    #[arg(long, value_enum)]
    frames: Vec<Frames>,
}

/// The attackers as a program; ends when this is dropped.
struct Attackers(Child);

impl Attackers {
    fn start(url: &str, frames: Frames, connections: usize) -> anyhow::Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", "1"]).arg(std::env::current_exe()?);
        command.args(["flood-frames", "--url", url, "--frames", frames.name()]);
        command.arg("--connections").arg(connections.to_string());
        let child = command.stdin(Stdio::piped()).spawn().context("taskset")?;
        Ok(Self(child))
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    // The server is started by this program and inherits the processor.
    let own = std::process::id().to_string();
    let pinned = Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", "0", &own]).output();
    anyhow::ensure!(pinned.context("taskset")?.status.success(), "the processor cannot be chosen");
    let kinds = if options.frames.is_empty() { Frames::ALL.to_vec() } else { options.frames.clone() };
    let runtime = serve::runtime(1)?;
    let mut rows = Vec::new();
    for frames in kinds {
        for connections in options.connections.iter().copied() {
            let (instances, longest) = (options.instances, Duration::from_secs(options.longest));
            let turn = runtime.spawn(pair(frames, connections, instances, longest));
            rows.push(runtime.block_on(turn)??);
        }
    }
    let heads = ["frames", "connections", "quiet p50", "p50", "longest", "instances", "ratio of p50"];
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", table(heads.map(str::to_owned).to_vec(), rows))?;
    Ok(ExitCode::SUCCESS)
}

/// A quiet turn, and one beside this many connections that flood: a row of the table.
async fn pair(
    frames: Frames,
    connections: usize,
    instances: usize,
    longest: Duration,
) -> anyhow::Result<Vec<String>> {
    let fixture = Fixture::start(0, &Launch::own(Layout::TwoPrograms)).await?;
    let quiet = turn(&fixture, instances, longest).await?;
    let attackers = Attackers::start(fixture.url(), frames, connections)?;
    tokio::time::sleep(WARM_UP).await;
    let flooded = turn(&fixture, instances, longest).await?;
    drop(attackers);
    let p50 = |times: &[Duration]| times.get(times.len() / 2).copied().unwrap_or_default();
    let show = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    Ok(vec![
        frames.name().to_owned(),
        connections.to_string(),
        show(p50(&quiet)),
        show(p50(&flooded)),
        show(flooded.last().copied().unwrap_or_default()),
        flooded.len().to_string(),
        format!("{:.2}", p50(&flooded).as_secs_f64() / p50(&quiet).as_secs_f64()),
    ])
}

/// The times of instances, ascending: this many, or as many as end in the longest turn, at least one.
async fn turn(fixture: &Fixture, instances: usize, longest: Duration) -> anyhow::Result<Vec<Duration>> {
    let started = Instant::now();
    let mut times = Vec::new();
    let mut player = latency::AttachInstances::new(fixture).await?;
    while times.len() < instances && (times.is_empty() || started.elapsed() < longest) {
        times.push(player.play().await?);
    }
    times.sort_unstable();
    Ok(times)
}
