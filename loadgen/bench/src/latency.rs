//! The latency of one instance alone, in round trips to a service that does nothing.
//!
//! | candidate | measured |
//! | --- | --- |
//! | `message` | one message with one access to a stream that echoes, and back, without other messages: the wait of one process alone |
//! | `messages` | 32 of them at once, on 32 streams, until the last is back: no instance of 32 processes can end before |
//! | `call`, `calls` | the same with unary calls to a service that answers at once |
//! | `attach` | one instance: hello and append as one message, then the read as another |
//! | `attach-ahead` | the same, with the read in the first message (F7, D1): it does not depend on the result of the append |
//! | `propose` | one instance, by its name: the client for Rust, from its look-up to the acknowledged decision |
//! | `unary` | one instance: an append, then a read |
//! | `...-durable` | an instance on a server that keeps its log on disk |
//!
//! The time runs from the first message to the last decision; `with_create_us` has the creation too. Of
//! `propose` only the decisions are compared, since the client shows no more. The first instance of each turn
//! does not count: it opens connections.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use stickycas_client::raw::Connection;
use stickycas_client::{Client, Phase, RetryPolicy, Value};

use crate::fixture::Fixture;
use crate::results::{Figures, quantile};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, Launch};
use crate::streams::{AttachStream, append};
use crate::tasks::in_parallel;
use crate::wire::attach::{Play, open_all, play_these};
use crate::wire::unary;
use crate::workload::{Observation, Shape, agree, proposal};

/// Instances, or round trips, in one turn.
const INSTANCES: usize = 300;
const ALL: usize = Shape::WIRE.processes as usize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// So many at once.
    Messages(usize),
    Calls(usize),
    Attach {
        ahead: bool,
    },
    Propose,
    Unary,
}

#[derive(Clone, Copy, Debug)]
struct Measured {
    name: &'static str,
    kind: Kind,
}

const MEASURED: [Measured; 11] = [
    Measured { name: "message", kind: Kind::Messages(1) },
    Measured { name: "messages", kind: Kind::Messages(ALL) },
    Measured { name: "attach", kind: Kind::Attach { ahead: false } },
    Measured { name: "attach-ahead", kind: Kind::Attach { ahead: true } },
    Measured { name: "propose", kind: Kind::Propose },
    Measured { name: "call", kind: Kind::Calls(1) },
    Measured { name: "calls", kind: Kind::Calls(ALL) },
    Measured { name: "unary", kind: Kind::Unary },
    Measured { name: "attach-durable", kind: Kind::Attach { ahead: false } },
    Measured { name: "attach-ahead-durable", kind: Kind::Attach { ahead: true } },
    Measured { name: "unary-durable", kind: Kind::Unary },
];

impl Candidate for Measured {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn over(&self) -> Vec<String> {
        let floors = match self.kind {
            Kind::Messages(_) | Kind::Calls(_) => [].as_slice(),
            Kind::Attach { .. } | Kind::Propose => &["message", "messages"],
            Kind::Unary => &["call", "calls"],
        };
        let memory = self.name.strip_suffix("-durable");
        floors.iter().copied().chain(memory).map(str::to_owned).collect()
    }
}

/// Plays all processes of one instance, or of one round trip. Returns the observations, by process, and the
/// time until the last decision. The streams are those of the processes, or none.
async fn play(
    kind: Kind,
    fixture: &Fixture,
    streams: &mut Vec<AttachStream>,
    ids: &Arc<[String]>,
    instance: usize,
) -> anyhow::Result<(Vec<Observation>, Duration)> {
    let started = Instant::now();
    let (mut seen, mut last) = (Vec::new(), started);
    match kind {
        Kind::Messages(many) => {
            let mut frames = Vec::new();
            append(&mut frames, 0, &proposal(0, instance));
            for stream in &streams[..many] {
                stream.send(&mut frames.clone())?;
            }
            for stream in &mut streams[..many] {
                stream.receive().await?;
            }
            last = Instant::now();
        }
        Kind::Attach { ahead } => {
            let play = Play { in_flight: 1, batch: true, ahead, timed: true, ..Play::default() };
            for played in play_these(std::mem::take(streams), ids, instance, &play).await? {
                seen.push(played.observations[0]);
                streams.push(played.stream);
                // It decides when it has the last answer; the server acknowledges that later.
                last = played.times.last().map_or(last, |(at, _)| last.max(*at));
            }
        }
        Kind::Calls(_) | Kind::Propose | Kind::Unary => {
            let many = if let Kind::Calls(many) = kind { many } else { ALL };
            let (principals, ids) = (fixture.principals.clone(), ids.clone());
            let processes = in_parallel(many, many, move |process| {
                let (principal, ids) = (principals[process].clone(), ids.clone());
                async move {
                    let seen = match kind {
                        Kind::Propose => propose(principal, &name(instance), process, instance).await?,
                        Kind::Unary => unary::propose(&principal, &ids[0], process, instance, None).await?,
                        _ => unary::append(&principal, &ids[0], process, instance).await?,
                    };
                    Ok((seen, Instant::now()))
                }
            });
            for (own, decided) in processes.await? {
                seen.push(own);
                last = last.max(decided);
            }
        }
    }
    Ok((seen, last - started))
}

/// The name of an instance that is proposed to.
fn name(instance: usize) -> String {
    format!("instance-{instance}")
}

/// The client for Rust, which shows the entries of the list and the decision.
async fn propose(
    principal: Connection,
    name: &str,
    process: usize,
    instance: usize,
) -> anyhow::Result<Observation> {
    let client = Client::on(principal, RetryPolicy::default());
    let decision = client.propose(name, proposal(process, instance)).await?;
    let mut observed = Observation::EMPTY;
    let values = decision.from.iter().map(Value::as_bytes);
    observed.record_list(decision.phase.map_or(0, Phase::get), values)?;
    Ok(observed)
}

/// One turn on a server of its own, or on the floor: this many instances or round trips, after a first one
/// that does not count.
async fn turn(kind: Kind, times: usize, launch: &Launch) -> anyhow::Result<Figures> {
    let fixture = match kind {
        Kind::Messages(_) | Kind::Calls(_) => Fixture::floor(Shape::WIRE, 1).await?,
        Kind::Attach { .. } | Kind::Propose | Kind::Unary => Fixture::start(launch, Shape::WIRE, 0).await?,
    };
    let mut streams = open_all(&fixture.principals).await?;
    let (mut decided, mut with_create, mut all) = (Vec::new(), Vec::new(), vec![Vec::new(); ALL]);
    for instance in 0..=times {
        let started = Instant::now();
        let ids = match kind {
            Kind::Propose => fixture.create_named(&name(instance)).await?,
            _ if fixture.is_real() => fixture.create(1, 1).await?,
            _ => fixture.ids.clone(),
        };
        let create = started.elapsed();
        let (seen, decide) = play(kind, &fixture, &mut streams, &ids, instance).await?;
        all.iter_mut().zip(seen).for_each(|(all, seen)| all.push(seen));
        if instance > 0 {
            decided.push(decide);
            with_create.push(create + decide);
        }
    }
    let at = |times: &[Duration], at| quantile(times, at).map(|time| time.as_secs_f64() * 1e6);
    let figures =
        Figures::default().maybe("median_us", at(&decided, 0.5)).maybe("p99_us", at(&decided, 0.99));
    if !fixture.is_real() {
        return Ok(figures);
    }
    if kind == Kind::Propose {
        agree(&all)?;
    } else {
        fixture.judge(&all)?;
    }
    Ok(figures.maybe("with_create_us", at(&with_create, 0.5)))
}

/// Measures, and prints the results.
pub(crate) fn run(options: &RoundOptions) -> anyhow::Result<ExitCode> {
    let candidates = options.wanted(MEASURED)?;
    let disk = options.common.disk();
    let program = servers::find(options.common.server.as_deref())?;
    let rows = options.run(&candidates, |Measured { kind, name }| {
        let (disk, times, launch) = (disk.clone(), options.scaled(INSTANCES), Launch::new(&program));
        async move {
            let log = servers::folder(&disk)?;
            let launch = if name.ends_with("-durable") { launch.durable(log.path()) } else { launch };
            turn(kind, times, &launch).await
        }
    })?;
    options.report("latency", None, json!({}), rows)
}
