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
//! | `attach-ahead` | the same, and the read goes out together with the append (F7, D1) |
//! | `unary` | one instance: an append, then a read |
//!
//! A read may go ahead because it is the same whatever the append comes to. The first of each turn does not count: it
//! opens connections and streams.
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
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;

use self::report::{Results, Series};
use crate::results;
use crate::rig::Rig;
use crate::serve::{self, Launch};
use crate::turns::Turns;
use crate::work::{self, Saw};

/// How to measure an instance alone.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    turns: Turns,
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

    /// One turn, on a server of its own: so many, after a first one that does not count.
    async fn turn(self, times: usize, launch: &Launch) -> anyhow::Result<Vec<Took>> {
        let times = times + 1;
        let took = match self {
            Message => stream::round_trips(&Rig::floor(0, launch).await?, times, 1).await,
            Messages => stream::round_trips(&Rig::floor(0, launch).await?, times, usize::MAX).await,
            Call => call::round_trips(&Rig::floor(0, launch).await?, times, 1).await,
            Calls => call::round_trips(&Rig::floor(0, launch).await?, times, usize::MAX).await,
            Attach { ahead } => {
                let rig = Rig::server(0, launch).await?;
                instances(&rig, times, &mut stream::Player::new(&rig, ahead)).await
            }
            Unary => {
                let rig = Rig::server(0, launch).await?;
                instances(&rig, times, &mut call::Player(&rig)).await
            }
        };
        took.map(|took| took.into_iter().skip(1).collect())
    }
}

/// Plays all processes of one instance.
trait Player {
    /// What they saw, by process, and how long it took from the first message to the last decision.
    fn play(
        &mut self,
        id: &str,
        instance: usize,
    ) -> impl Future<Output = anyhow::Result<(Vec<Saw>, Duration)>> + Send;
}

/// So many instances, one after the other, each created just before it is played; all of them judged.
async fn instances(rig: &Rig, times: usize, player: &mut impl Player) -> anyhow::Result<Vec<Took>> {
    let mut creator = rig.creator().await?;
    let mut took = Vec::new();
    let mut all = vec![Vec::new(); rig.lines.len()];
    for instance in 0..times {
        let created = Instant::now();
        let id = creator.create().await?;
        let create = created.elapsed();
        let (saw, decide) = player.play(&id, instance).await?;
        for (all, saw) in all.iter_mut().zip(saw) {
            all.push(saw);
        }
        took.push(Took { create, decide });
    }
    work::judge(&all, times)?;
    Ok(took)
}

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = CANDIDATES.iter().map(|candidate| candidate.name().to_owned()).collect();
    options.turns.check(&names)?;
    let wanted = CANDIDATES.into_iter().filter(|candidate| options.turns.wants(candidate.name()));
    let mut series: Vec<Series> = wanted.map(Series::new).collect();
    let layout = options.turns.layout;
    let runtime = serve::runtime(layout.workers())?;
    for round in 0..=options.turns.rounds {
        for series in &mut series {
            let (candidate, launch) = (series.candidate, Launch::own(layout));
            let times = options.turns.scaled(INSTANCES);
            let turn = runtime.spawn(async move { candidate.turn(times, &launch).await });
            let took = runtime.block_on(turn)?.with_context(|| series.candidate.name())?;
            if round > 0 {
                series.rounds.push(took);
            }
        }
    }
    let results = Results::new(layout, options.turns.rounds, &series);
    results.print()?;
    if let Some(json) = &options.turns.json {
        results::write(json, "latency", &BTreeMap::new(), &results)?;
    }
    Ok(ExitCode::SUCCESS)
}
