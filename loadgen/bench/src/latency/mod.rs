//! The latency of one instance alone, in round trips to a service that does nothing.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- latency
//! cargo run --release -p stickycas-bench -- latency --json latency.json
//! ```
//!
//! The workload is that of [`crate::workload`], one instance at a time. All 32 processes are connected, on
//! Attach with open streams, and begin at the same moment. The time runs from the first message to the last
//! decision. The instance is created before; the sum of both times is also given.
//!
//! | candidate | measured |
//! | --- | --- |
//! | `message` | one message with one access to a stream that echoes, and back, without other messages |
//! | `messages` | 32 of them at once, on 32 streams, until the last is back |
//! | `call`, `calls` | the same with unary calls to a service that answers at once |
//! | `attach` | one instance: hello and append as one message, then the read as another |
//! | `attach-ahead` | the same, with the read in the first message (F7, D1) |
//! | `unary` | one instance: an append, then a read |
//! | `sync` | a page is written to a file that has its size, and synced (`fdatasync`) |
//! | `commit` | twice that, one after the other, as the server's log commits a batch: in two phases |
//! | `attach-durable`, `attach-ahead-durable`, `unary-durable` | an instance on a server that keeps its log on disk |
//!
//! The read may be sent ahead because it does not depend on the result of the append. The first instance of
//! each turn does not count: it opens connections and streams.
//!
//! `message` is the wait of one process alone, `messages` that of 32 processes which share the processors
//! with each other and with the server: no instance of 32 processes can end before 32 messages went there and
//! back.
//!
//! In the raw results: `rounds`, `layout`, and for each of `candidates` its `name`, `samples_us` by round and
//! then by instance, `create_us` likewise, and over the rounds the summary of each round's median,
//! `median_us`, `p99_us` and `with_create_us`; `of`: by floor, the medians in units of the floor's in the
//! same round. With a log, `log`: `of_memory`, the median in units of that without one in the same round;
//! `syncs_per_round` and `commits_per_round`, the difference to it in units of `sync` and `commit` for each
//! of the two rounds of an instance. `disk` is the kind of file system.

mod call;
mod report;
mod stream;
mod sync;
mod variant;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

use self::report::{Results, Series};
use self::variant::Variant::{Attach, Call, Calls, Commit, Message, Messages, Sync, Unary};
use self::variant::{Timing, VARIANTS, Variant};
use crate::fixture::{Fixture, roster};
use crate::principal::Creator;
use crate::rounds::RoundOptions;
use crate::serve::{self, Launch};
use crate::workload::{self, Observation};
use crate::{disk, results};

/// How to measure an instance alone.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// The directory for the logs while they are written; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
}

/// Instances, or round trips, in one turn.
const INSTANCES: usize = 300;

/// One turn of a candidate on a server of its own: this many instances or round trips, after a first one that
/// does not count.
async fn turn(variant: Variant, times: usize, launch: &Launch, disk: &Path) -> anyhow::Result<Vec<Timing>> {
    let times = times + 1;
    let timings = match variant {
        Message => stream::round_trips(&Fixture::start_baseline(0, launch).await?, times, 1).await,
        Messages => stream::round_trips(&Fixture::start_baseline(0, launch).await?, times, usize::MAX).await,
        Call => call::round_trips(&Fixture::start_baseline(0, launch).await?, times, 1).await,
        Calls => call::round_trips(&Fixture::start_baseline(0, launch).await?, times, usize::MAX).await,
        Sync => sync::repeat(disk, times, 1),
        Commit => sync::repeat(disk, times, 2),
        Attach { ahead, .. } => {
            let fixture = Fixture::start(0, launch).await?;
            instances(&fixture, times, &mut stream::Player::new(&fixture, ahead)).await
        }
        Unary { .. } => {
            let fixture = Fixture::start(0, launch).await?;
            instances(&fixture, times, &mut call::Player(&fixture)).await
        }
    };
    timings.map(|timings| timings.into_iter().skip(1).collect())
}

/// Plays all processes of one instance.
trait Player {
    /// Returns their observations, by process, and the time from the first message to the last decision.
    fn play(
        &mut self,
        id: &str,
        instance: usize,
    ) -> impl Future<Output = anyhow::Result<(Vec<Observation>, Duration)>> + Send;
}

/// Plays this many instances, one after the other, each created just before; and judges them.
async fn instances(fixture: &Fixture, times: usize, player: &mut impl Player) -> anyhow::Result<Vec<Timing>> {
    let mut creator = fixture.creator().await?;
    let mut timings = Vec::new();
    let mut all = vec![Vec::new(); fixture.connections.len()];
    for instance in 0..times {
        let created = Instant::now();
        let id = creator.create(roster(), None).await?;
        let create = created.elapsed();
        let (observations, decide) = player.play(&id, instance).await?;
        for (all, observation) in all.iter_mut().zip(observations) {
            all.push(observation);
        }
        timings.push(Timing { create, decide });
    }
    workload::judge(&all, times)?;
    Ok(timings)
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = VARIANTS.iter().map(|variant| variant.name().to_owned()).collect();
    options.rounds.check(&names)?;
    let wanted = VARIANTS.into_iter().filter(|variant| options.rounds.wants(variant.name()));
    let mut series: Vec<Series> = wanted.map(Series::new).collect();
    let layout = options.rounds.layout;
    let disk = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let runtime = serve::runtime(layout.workers())?;
    for round in 0..=options.rounds.rounds {
        for series in &mut series {
            let (variant, disk) = (series.variant, disk.clone());
            let launch = Launch::own(layout);
            let launch = if variant.is_durable() { launch.durable(&disk) } else { launch };
            let times = options.rounds.scaled(INSTANCES);
            let turn = runtime.spawn(async move { turn(variant, times, &launch, &disk).await });
            let timings = runtime.block_on(turn)?.with_context(|| series.variant.name())?;
            if round > 0 {
                series.rounds.push(timings);
            }
        }
    }
    let results = Results::new(layout, options.rounds.rounds, disk::file_system(&disk), &series);
    results.print()?;
    if let Some(json) = &options.rounds.json {
        results::write(json, "latency", &BTreeMap::new(), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}
