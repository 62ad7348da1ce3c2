//! What the service costs over the wire, against a service that does nothing.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire              a table
//! cargo run --release -p stickycas-bench -- wire --json       and a line of JSON
//! cargo run --release -p stickycas-bench -- wire --help       rounds, candidates, size
//! ```
//!
//! The work is that of n = 32 correct processes, p = 4, r = 8, values of 8 bytes: W = 8 warps append in
//! round 1, and c = 1 read in round 2 returns all 8 entries, so half of the accesses are appends and half are
//! reads. Each process is a principal with one connection of its own, and takes part in several instances at a
//! time. Patience is endless. Server and clients share one runtime of two workers, on TCP over loopback.
//!
//! | candidate | what |
//! | --- | --- |
//! | `unary-floor` | the unary client against a service that answers at once with a message of the right size: no layers, no identity, no instance |
//! | `unary` | the same client against the real server, every layer on |
//! | `stream-floor/k` | the Attach client, stripped to its accesses, against a stream that echoes: one message out for one in, k accesses in flight |
//! | `attach/k` | one Attach stream per principal against the real server, k instances in flight, one access per message of the client |
//! | `attach-batch/k` | the same; what follows from one message of the server goes out as one message |
//!
//! Only accesses are counted. On Attach the Hello of each instance and the Decision that ends it are sent and
//! waited for inside the measured time, and count nothing: per access the real server handles two frames, the
//! floor one. The unary calls do not report decisions. Creating the instances is outside the measured time;
//! letting go of those that have finished is inside. Every process decides for itself, and a run in which two
//! decisions of an instance differ fails.
//!
//! Not criterion: it measures one candidate after the other, and a minute later the machine is another one.
//! Here all candidates take turns, every round has a fresh server for each, and a ratio is taken within its
//! round. Beside each rate stands the processor time that an access took, server and client together, which
//! does not depend on what else the machine is doing.

mod attach;
mod floor;
mod report;
mod rig;
mod unary;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use report::Series;
use rig::{Rig, Sample};

/// How to measure the wire.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How often each candidate has its turn, after one turn that does not count.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Print a line of JSON too.
    #[arg(long)]
    json: bool,
    /// Only these candidates, by name; a candidate without its floor has no ratio.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Multiplies the number of instances in each turn.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
}

/// One way to spend the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    UnaryFloor,
    Unary,
    StreamFloor { in_flight: usize },
    Attach { in_flight: usize, batch: bool },
}

use Candidate::{Attach, StreamFloor, Unary, UnaryFloor};

/// In the order of their turns: each next to its floor.
const CANDIDATES: [Candidate; 11] = [
    UnaryFloor,
    Unary,
    StreamFloor { in_flight: 1 },
    Attach { in_flight: 1, batch: false },
    StreamFloor { in_flight: 16 },
    Attach { in_flight: 16, batch: false },
    Attach { in_flight: 16, batch: true },
    StreamFloor { in_flight: 64 },
    Attach { in_flight: 64, batch: false },
    Attach { in_flight: 64, batch: true },
    Attach { in_flight: 256, batch: true },
];

/// Instances in flight over unary calls: so many that while some wait for a phase others keep the wire busy.
const UNARY_IN_FLIGHT: usize = 16;

impl Candidate {
    fn name(self) -> String {
        match self {
            UnaryFloor => "unary-floor".to_owned(),
            Unary => "unary".to_owned(),
            StreamFloor { in_flight } => format!("stream-floor/{in_flight}"),
            Attach { in_flight, batch: false } => format!("attach/{in_flight}"),
            Attach { in_flight, batch: true } => format!("attach-batch/{in_flight}"),
        }
    }

    /// What it is measured against.
    fn floor(self) -> Option<Self> {
        match self {
            UnaryFloor | StreamFloor { .. } => None,
            Unary => Some(UnaryFloor),
            Attach { in_flight, .. } => Some(StreamFloor { in_flight: in_flight.min(64) }),
        }
    }

    /// Instances in one turn, for about a second of work on two slow cores.
    fn instances(self) -> usize {
        match self {
            UnaryFloor | Unary => 800,
            StreamFloor { in_flight: 1 } => 3_000,
            Attach { in_flight: 1, .. } => 1_000,
            StreamFloor { .. } => 8_000,
            Attach { .. } => 4_000,
        }
    }

    /// One turn, on a server of its own.
    async fn turn(self, instances: usize) -> anyhow::Result<Sample> {
        match self {
            UnaryFloor => unary::run(&Rig::floor(instances).await?, UNARY_IN_FLIGHT).await,
            Unary => unary::run(&Rig::server(instances).await?, UNARY_IN_FLIGHT).await,
            StreamFloor { in_flight } => attach::run(&Rig::floor(instances).await?, in_flight, false).await,
            Attach { in_flight, batch } => {
                attach::run(&Rig::server(instances).await?, in_flight, batch).await
            }
        }
    }
}

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wanted = |candidate: &Candidate| options.only.is_empty() || options.only.contains(&candidate.name());
    let mut series: Vec<_> = CANDIDATES.into_iter().filter(wanted).map(Series::new).collect();
    anyhow::ensure!(!series.is_empty(), "--only names no candidate");
    for round in 0..=options.rounds {
        for series in &mut series {
            let candidate = series.candidate;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
            let instances = (candidate.instances() as f64 * options.scale).max(1.0) as usize;
            // Spawned, so that it runs on the two workers and not beside them.
            let turn = runtime.spawn(candidate.turn(instances));
            let sample = runtime.block_on(turn)?.with_context(|| candidate.name())?;
            if round > 0 {
                series.samples.push(sample);
            }
        }
    }
    report::print(&series, options.json)?;
    Ok(ExitCode::SUCCESS)
}
