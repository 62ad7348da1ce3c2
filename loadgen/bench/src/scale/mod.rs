//! The capacity of one server: memory of each connected principal, of each finished and each live instance,
//! the cost of an access beside many live instances, and the start on a large log.
//!
//! Instances are of 8 processes ([`Shape::SMALL`]), all of them judged. The memory of a server is its
//! resident memory, once it no longer changes; `each_bytes` is that after less that before, divided by the
//! count. It includes allocator, page size and fragmentation, but not what the kernel holds for a socket. A
//! first portion that does not count includes what a server allocates once.

mod live;
mod start_up;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use serde_json::json;
use stickycas_client::raw::Connection;

use crate::fixture::{Fixture, connect};
use crate::metrics::Metrics;
use crate::results::{Common, Figures, Row};
use crate::servers::{self, Launch, Server, runtime, settled_memory};
use crate::streams::{AttachStream, append};
use crate::wire::attach::{Play, Played, open_all, play_these};
use crate::workload::{Shape, judge, proposal};

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Principals that are connected.
    #[arg(long, value_name = "N", value_parser = principals)]
    principals: Option<usize>,
    /// Finished instances.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    finished: Option<usize>,
    /// Live instances.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    live: Option<usize>,
    /// Live instances while accesses are timed; several counts, each on a server of its own.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = at_least_one())]
    cost: Vec<usize>,
    /// Archived instances in the log on which servers are started, and a tenth as many live ones.
    #[arg(long, value_name = "N", value_parser = at_least_one())]
    start_up: Option<usize>,
    /// How often a server is started on the log as it is, and again after it was compacted.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    starts: u32,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// n, the number of processes of an instance.
const PROCESSES: usize = Shape::SMALL.processes as usize;

fn principals(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count: &usize| *count > 0 && count.is_multiple_of(PROCESSES));
    count.ok_or_else(|| format!("give a multiple of {PROCESSES}, such as 10000"))
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let rows = runtime(2)?.block_on(measure(options))?;
    let conditions = json!({"server_arguments": Launch::new(Path::new("")).arguments()});
    options.common.report("scale", None, conditions, rows)
}

async fn measure(options: &Options) -> anyhow::Result<Vec<Row>> {
    let Options { principals, finished, live, cost, start_up, .. } = options;
    let counts = [principals, finished, live, start_up];
    ensure!(
        counts.iter().any(|count| count.is_some()) || !cost.is_empty(),
        "say what to measure: --principals, --finished, --live, --cost, --start-up"
    );
    let program = servers::find(options.common.server.as_deref())?;
    let launch = Launch { retention: "1h", ..Launch::new(&program) };
    let mut rows = Vec::new();
    if let Some(count) = *principals {
        rows.push(connected("connections, server that does nothing", Server::floor()?, count).await?);
        rows.push(connected("connected principals", launch.start().await?, count).await?);
    }
    if let Some(count) = *finished {
        rows.push(measure_finished(&launch, count).await?);
    }
    if let Some(count) = *live {
        rows.push(live::measure(&launch, count).await?);
    }
    for &live in cost {
        rows.push(live::cost(&launch, live).await?);
    }
    if let Some(archived) = *start_up {
        rows.extend(start_up::measure(&launch, &options.common.disk(), archived, options.starts).await?);
    }
    Ok(rows)
}

/// The memory of a server before so many of something are there.
struct Before {
    pid: u32,
    memory: u64,
    began: Instant,
}

impl Before {
    async fn of(server: &Server) -> anyhow::Result<Self> {
        let memory = settled_memory(server.pid()).await?;
        Ok(Self { pid: server.pid(), memory, began: Instant::now() })
    }

    /// The row when they are there.
    async fn row(self, what: &str, count: usize) -> anyhow::Result<Row> {
        let wall = self.began.elapsed();
        let after = settled_memory(self.pid).await?;
        let figures = Figures::default()
            .count("count", count as u64)
            .count("each_bytes", after.saturating_sub(self.memory) / count as u64)
            .count("before_bytes", self.memory)
            .count("after_bytes", after)
            .with("wall_s", wall.as_secs_f64());
        Ok(Row::once(what, figures))
    }
}

/// Connections to this server, each with a stream that was used once and is idle since: on StickyCAS each
/// principal has taken part in an instance with seven others, on the floor it has an answer.
async fn connected(what: &str, server: Server, count: usize) -> anyhow::Result<Row> {
    let real = server.operators.is_some();
    // A last group that does not count.
    let groups = count / PROCESSES + 1;
    let mut fixture = Fixture::groups(server, Shape::SMALL, 0).await?;
    if real {
        // Created before: the memory of instances is another measurement.
        fixture.ids = fixture.create(groups, 1).await?;
    }
    let extra = take_part(&fixture, groups - 1).await?;
    let before = Before::of(&fixture.server).await?;
    let mut streams = Vec::new();
    for group in 0..groups - 1 {
        streams.push(take_part(&fixture, group).await?);
    }
    let row = before.row(what, count).await;
    drop((extra, streams));
    row
}

/// Connects the principals of a group, and plays their instance, or has an answer of the floor. The streams
/// stay open.
async fn take_part(fixture: &Fixture, group: usize) -> anyhow::Result<(Vec<Connection>, Vec<AttachStream>)> {
    let principals = connect(&fixture.server, group * PROCESSES..(group + 1) * PROCESSES).await?;
    if let Some(id) = fixture.ids.get(group) {
        let played = play(&principals, &[id.clone()].into(), 1).await?;
        return Ok((principals, played.into_iter().map(|played| played.stream).collect()));
    }
    let mut streams = open_all(&principals).await?;
    for stream in &mut streams {
        let mut frames = Vec::new();
        append(&mut frames, 0, &proposal(0, 0));
        stream.send(&mut frames)?;
        stream.receive().await?;
    }
    Ok((principals, streams))
}

/// Plays these instances, with several accesses in a message, times the accesses, and judges the instances.
async fn play(
    principals: &[Connection],
    ids: &Arc<[String]>,
    in_flight: usize,
) -> anyhow::Result<Vec<Played>> {
    let play = Play { in_flight, batch: true, timed: true, ..Play::default() };
    let mut played = play_these(open_all(principals).await?, ids, 0, &play).await?;
    let observations: Vec<_> =
        played.iter_mut().map(|played| std::mem::take(&mut played.observations)).collect();
    judge(Shape::SMALL, &observations)?;
    Ok(played)
}

/// Instances that are played by each principal at a time.
pub(crate) const IN_FLIGHT: usize = 128;
/// Instances that are created and played before the next are created.
const PORTION: usize = 4_000;

/// Creates, plays and judges so many instances of the first group of principals, portion after portion.
/// Returns when each access was answered and how long that took.
pub(crate) async fn play_portions(
    fixture: &Fixture,
    count: usize,
    in_flight: usize,
) -> anyhow::Result<Vec<(Instant, Duration)>> {
    let (mut done, mut times) = (0, Vec::new());
    while done < count {
        let portion = PORTION.min(count - done);
        done += portion;
        let ids = fixture.create(portion, portion).await?;
        let played = play(&fixture.principals[..PROCESSES], &ids, in_flight).await?;
        times.extend(played.into_iter().flat_map(|played| played.times));
    }
    Ok(times)
}

/// Plays this many instances to their end.
#[allow(clippy::cast_precision_loss)]
async fn measure_finished(launch: &Launch, count: usize) -> anyhow::Result<Row> {
    let fixture = Fixture::groups(launch.start().await?, Shape::SMALL, 1).await?;
    let first = 1_000.min(count);
    play_portions(&fixture, first, IN_FLIGHT).await?;
    let before = Before::of(&fixture.server).await?;
    play_portions(&fixture, count, IN_FLIGHT).await?;
    let row = before.row("finished instances", count).await?;
    let (_, finished) = kept(&fixture.server).await?;
    ensure!(finished == (first + count) as f64, "the server keeps {finished} finished instances");
    Ok(row)
}

/// The live and the ended instances that a server has.
async fn kept(server: &Server) -> anyhow::Result<(f64, f64)> {
    let metrics = Metrics::read(server.operators()?).await?;
    let count = |state: &str| metrics.value(&format!("stickycas_instances{{state=\"{state}\"}}"));
    Ok((count("gathering")? + count("running")?, count("finished")? + count("closed")?))
}
