//! How long one instance takes that is alone, in round trips of a service that does nothing.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- latency
//! cargo run --release -p stickycas-bench -- latency --json latency.json
//! ```
//!
//! The work is that of [`crate::work`], one instance at a time. All 32 processes are connected, and on Attach their
//! streams are open; all of them begin at one moment. The time runs from the first thing that is sent to the last
//! decision that is made. Creating the instance comes before; what both take together stands beside.
//!
//! | candidate | what |
//! | --- | --- |
//! | `message` | one message with one access to a stream that echoes, and back; nobody else does anything |
//! | `messages` | 32 of them at once, on 32 streams, until the last one is back |
//! | `call`, `calls` | the same with unary calls of a service that answers at once |
//! | `attach` | one instance: a hello and the append as one message, then the read, as one more |
//! | `attach-ahead` | the same, and the read goes out together with the append (F7): it is the same whatever the append comes to (D1) |
//! | `unary` | one instance: an append, then a read |
//!
//! `message` is what one process would wait alone, `messages` what 32 wait who share the processors with each other and
//! with the server: no instance of 32 processes can be done before 32 messages went there and back.
//!
//! In the raw results: `rounds`, `layout`, and for each of `candidates` its `name`, `samples_us` by round and in it by
//! instance, `create_us` likewise, and over the rounds the spread of each round's median, `median_us`, `p99_us` and
//! `with_create_us`; `of`: by floor, the medians in units of the floor's in the same round.

mod call;
mod report;
mod stream;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use self::report::{Results, Series};
use crate::results;
use crate::rig::Rig;
use crate::serve::{self, Layout};
use crate::turns::Turns;

/// How to measure an instance alone.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    turns: Turns,
    /// How clients and server share the processors.
    #[arg(long, value_enum, default_value_t)]
    layout: Layout,
}

/// Instances, or round trips, in one turn.
const INSTANCES: usize = 300;

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    Message,
    Messages,
    Call,
    Calls,
    Attach { ahead: bool },
    Unary,
}

use Candidate::{Attach, Call, Calls, Message, Messages, Unary};

const CANDIDATES: [Candidate; 7] =
    [Message, Messages, Attach { ahead: false }, Attach { ahead: true }, Call, Calls, Unary];

/// What one took.
#[derive(Clone, Copy, Debug)]
struct Took {
    /// Creating the instance; nothing where there is none.
    create: Duration,
    /// From the first message to the last decision.
    decide: Duration,
}

impl Candidate {
    fn name(self) -> &'static str {
        match self {
            Message => "message",
            Messages => "messages",
            Call => "call",
            Calls => "calls",
            Attach { ahead: false } => "attach",
            Attach { ahead: true } => "attach-ahead",
            Unary => "unary",
        }
    }

    /// What it is measured against.
    fn floors(self) -> &'static [Self] {
        match self {
            Message | Messages | Call | Calls => &[],
            Attach { .. } => &[Message, Messages],
            Unary => &[Call, Calls],
        }
    }

    /// One turn, on a server of its own.
    async fn turn(self, times: usize, layout: Layout) -> anyhow::Result<Vec<Took>> {
        match self {
            Message => stream::round_trips(&Rig::floor(0, layout).await?, times, 1).await,
            Messages => stream::round_trips(&Rig::floor(0, layout).await?, times, usize::MAX).await,
            Call => call::round_trips(&Rig::floor(0, layout).await?, times, 1).await,
            Calls => call::round_trips(&Rig::floor(0, layout).await?, times, usize::MAX).await,
            Attach { ahead } => stream::instances(&Rig::server(0, layout).await?, times, ahead).await,
            Unary => call::instances(&Rig::server(0, layout).await?, times).await,
        }
    }
}

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = CANDIDATES.iter().map(|candidate| candidate.name().to_owned()).collect();
    options.turns.check(&names)?;
    let wanted = CANDIDATES.into_iter().filter(|candidate| options.turns.wants(candidate.name()));
    let mut series: Vec<Series> = wanted.map(Series::new).collect();
    let runtime = serve::runtime(options.layout.workers())?;
    for round in 0..=options.turns.rounds {
        for series in &mut series {
            let turn = runtime.spawn(series.candidate.turn(options.turns.scaled(INSTANCES), options.layout));
            let took = runtime.block_on(turn)?.with_context(|| series.candidate.name())?;
            if round > 0 {
                series.rounds.push(took);
            }
        }
    }
    let results = Results::new(options.layout, options.turns.rounds, &series);
    results.print()?;
    if let Some(json) = &options.turns.json {
        results::write(json, "latency", &BTreeMap::new(), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}
