//! The latency of one instance alone, in round trips to a service that does nothing.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- latency --json latency.json
//! ```
//!
//! Instances of 32 processes, one at a time. All of them are connected, on Attach with open streams, and
//! begin at the same moment. The time runs from the first message to the last decision; the instance is
//! created before (`with_create_us` has both).
//!
//! | candidate | measured |
//! | --- | --- |
//! | `message` | one message with one access to a stream that echoes, and back, without other messages |
//! | `messages` | 32 of them at once, on 32 streams, until the last is back |
//! | `call`, `calls` | the same with unary calls to a service that answers at once |
//! | `attach` | one instance: hello and append as one message, then the read as another |
//! | `attach-ahead` | the same, with the read in the first message (F7, D1): it does not depend on the result of the append |
//! | `unary` | one instance: an append, then a read |
//! | `sync` | a page is written to a file that has its size, and synced (`fdatasync`) |
//! | `commit` | twice that, one after the other, as the server's log commits a batch: in two phases |
//! | `attach-durable`, `attach-ahead-durable`, `unary-durable` | an instance on a server that keeps its log on disk |
//!
//! `message` is the wait of one process alone, `messages` that of 32 processes which share the processors
//! with each other and with the server: no instance of 32 processes can end before 32 messages went there and
//! back. The first instance of each turn does not count: it opens connections and streams.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;

use crate::fixture::Fixture;
use crate::results::{Common, Figures, Results};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, Launch};
use crate::streams::{Mode, Players};
use crate::wire::unary;
use crate::workload::{Observation, Shape};

/// How to measure an instance alone.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    #[command(flatten)]
    common: Common,
}

/// Instances, or round trips, in one turn.
const INSTANCES: usize = 300;
const ALL: usize = Shape::WIRE.processes as usize;
/// The id of no instance, of the usual length.
const NO_INSTANCE: &str = "00000000000000000000000000000000";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// So many at once.
    Messages(usize),
    Calls(usize),
    /// So many one after the other.
    Syncs(usize),
    Attach(Mode),
    Unary,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    name: &'static str,
    kind: Kind,
    durable: bool,
}

const fn measured(name: &'static str, kind: Kind) -> Measured {
    Measured { name, kind, durable: false }
}

const fn durable(name: &'static str, kind: Kind) -> Measured {
    Measured { name, kind, durable: true }
}

const MEASURED: [Measured; 12] = [
    measured("message", Kind::Messages(1)),
    measured("messages", Kind::Messages(ALL)),
    measured("attach", Kind::Attach(Mode::Wait)),
    measured("attach-ahead", Kind::Attach(Mode::Ahead)),
    measured("call", Kind::Calls(1)),
    measured("calls", Kind::Calls(ALL)),
    measured("unary", Kind::Unary),
    measured("sync", Kind::Syncs(1)),
    measured("commit", Kind::Syncs(2)),
    durable("attach-durable", Kind::Attach(Mode::Wait)),
    durable("attach-ahead-durable", Kind::Attach(Mode::Ahead)),
    durable("unary-durable", Kind::Unary),
];

impl Candidate for Measured {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn over(&self) -> Vec<String> {
        let floors = match self.kind {
            Kind::Messages(_) | Kind::Calls(_) | Kind::Syncs(_) => [].as_slice(),
            Kind::Attach(_) => &["message", "messages"],
            Kind::Unary => &["call", "calls"],
        };
        let memory = self.name.strip_suffix("-durable");
        floors.iter().copied().chain(memory).map(str::to_owned).collect()
    }
}

/// The times of creating an instance, and from the first message to the last decision.
type Timing = (Duration, Duration);

/// Plays all processes of one instance, or of one round trip.
enum Player {
    Streams(Players, usize),
    Calls(usize),
    Unary,
}

impl Player {
    /// The observations, by process, and the time until the last decision.
    async fn play(
        &mut self,
        fixture: &Fixture,
        id: &str,
        instance: usize,
    ) -> anyhow::Result<(Vec<Observation>, Duration)> {
        let started = Instant::now();
        let (mut seen, mut last) = (vec![Observation::EMPTY; ALL], started);
        match self {
            Self::Streams(players, many) => {
                // The channel of every instance: free again before the next instance begins.
                players.begin(0, id, instance, *many)?;
                for _ in 0..*many {
                    let left = players.next().await?;
                    anyhow::ensure!(left.refused.is_none(), "refused: {:?}", left.refused);
                    seen[left.process] = left.seen;
                    last = last.max(left.at);
                }
            }
            Self::Calls(_) | Self::Unary => {
                let many = if let Self::Calls(many) = self { *many } else { ALL };
                let propose = matches!(self, Self::Unary);
                let mut processes = JoinSet::new();
                for (process, principal) in fixture.principals.iter().cloned().enumerate().take(many) {
                    let id = id.to_owned();
                    processes.spawn(async move {
                        let seen = if propose {
                            unary::propose(&principal, &id, process, instance, None).await?
                        } else {
                            unary::append(&principal, &id, process, instance).await?
                        };
                        anyhow::Ok((process, seen, Instant::now()))
                    });
                }
                while let Some(one) = processes.join_next().await {
                    let (process, own, decided) = one??;
                    seen[process] = own;
                    last = last.max(decided);
                }
            }
        }
        Ok((seen, last - started))
    }
}

/// One turn on a server of its own: this many instances or round trips, after a first one that does not
/// count.
async fn turn(kind: Kind, times: usize, launch: &Launch, disk: &Path) -> anyhow::Result<Figures> {
    let floor = || Fixture::floor(Shape::WIRE, 0);
    let real = || Fixture::start(launch, Shape::WIRE, 0);
    let (fixture, mut player) = match kind {
        Kind::Syncs(syncs) => return Ok(figures(&repeat(disk, times, syncs)?)),
        Kind::Messages(many) => {
            let fixture = floor().await?;
            let players = Players::open(&fixture.principals, Mode::Echo);
            (fixture, Player::Streams(players, many))
        }
        Kind::Calls(many) => (floor().await?, Player::Calls(many)),
        Kind::Attach(mode) => {
            let fixture = real().await?;
            let players = Players::open(&fixture.principals, mode);
            (fixture, Player::Streams(players, ALL))
        }
        Kind::Unary => (real().await?, Player::Unary),
    };
    let mut timings = Vec::new();
    let mut all = vec![Vec::new(); ALL];
    for instance in 0..=times {
        let created = Instant::now();
        let id = match fixture.creator.clone() {
            Some(mut creator) => creator.create(fixture.roster(0)).await?,
            None => NO_INSTANCE.to_owned(),
        };
        let create = created.elapsed();
        let (seen, decide) = player.play(&fixture, &id, instance).await?;
        all.iter_mut().zip(seen).for_each(|(all, seen)| all.push(seen));
        timings.push((create, decide));
    }
    if fixture.is_real() {
        fixture.judge(&all)?;
    }
    let figures = figures(&timings[1..]);
    let both: Vec<Duration> = timings[1..].iter().map(|(create, decide)| *create + *decide).collect();
    let with_create = crate::results::quantile(&both, 0.5).filter(|_| fixture.is_real());
    Ok(figures.maybe("with_create_us", with_create.map(|it| it.as_secs_f64() * 1e6)))
}

fn figures(timings: &[Timing]) -> Figures {
    let times: Vec<Duration> = timings.iter().map(|(_, decide)| *decide).collect();
    let at = |at| crate::results::quantile(&times, at).map(|time| time.as_secs_f64() * 1e6);
    Figures::default().maybe("median_us", at(0.5)).maybe("p99_us", at(0.99))
}

/// Writes a page and syncs it, so many times in a row; and all of that this many times.
fn repeat(directory: &Path, times: usize, syncs: usize) -> anyhow::Result<Vec<Timing>> {
    /// A page of the log's database, and the pages of the file, written one after the other.
    const PAGE: usize = 4096;
    const PAGES: usize = 256;
    let folder = servers::folder(directory)?;
    let file = File::create(folder.path().join("file"))?;
    // Whole from the beginning: a file that grows has its new length synced too.
    file.write_all_at(&vec![0; PAGE * PAGES], 0)?;
    file.sync_all()?;
    let (mut timings, mut written) = (Vec::new(), 0);
    for _ in 0..times {
        let started = Instant::now();
        for _ in 0..syncs {
            file.write_all_at(&[1; PAGE], (written % PAGES * PAGE) as u64)?;
            file.sync_data()?;
            written += 1;
        }
        timings.push((Duration::ZERO, started.elapsed()));
    }
    Ok(timings)
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let candidates = options.rounds.wanted(MEASURED)?;
    let disk = options.common.disk();
    let program = servers::find(options.common.server.as_deref())?;
    let rows = options.rounds.run(&candidates, |Measured { kind, durable, .. }| {
        let (disk, times) = (disk.clone(), options.rounds.scaled(INSTANCES));
        let launch = Launch::new(&program);
        async move {
            let log = servers::folder(&disk)?;
            let launch = if durable { launch.durable(log.path()) } else { launch };
            turn(kind, times, &launch, &disk).await.context("an instance alone")
        }
    })?;
    let conditions = json!({"rounds": options.rounds.rounds, "disk": servers::file_system(&disk)});
    Results { measured: "latency", programs: Default::default(), conditions, rows }
        .report(&options.common)?;
    Ok(ExitCode::SUCCESS)
}
