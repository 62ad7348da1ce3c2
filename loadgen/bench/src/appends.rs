//! Appends to an ordered log (crate `stickycas-log`), beside puts of etcd on the same disk: four writers,
//! each with so many at a time. The members are in two warps, q = p; a put of etcd goes to one member. Every
//! value has 100 bytes. And elections, one epoch after the other, in which all members support the same one.
//!
//! | row | who |
//! | --- | --- |
//! | `log/N`, `log-durable/N` | four correct members, N appends at a time of each |
//! | `log-beside-attack/N` | three, and one that appends in every slot at once, in each of its accesses |
//! | `log-beside-silence/N` | three, and one that joins every slot and is silent: each waits its patience, 1 s |
//! | `etcd-puts/N` | four writers of etcd |
//! | `elections`, `elections-durable` | four correct members, each of which learns the leader |

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use serde_json::json;
use stickycas_client::{Client, ProcessSpec, Strategy};
use stickycas_log::{Election, MAX_WINDOW, Member, Series, SeriesSpec};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tonic::transport::Endpoint;

use crate::etcd::wire::kv_client::KvClient;
use crate::etcd::wire::request_op::Request;
use crate::etcd::wire::{PutRequest, RequestOp, TxnRequest};
use crate::etcd::{self, Program};
use crate::fixture::principal;
use crate::results::Figures;
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, COORDINATOR, Launch, Server};
use crate::tasks::in_parallel;

const WRITERS: usize = 4;
/// Of each writer at a time, and in all.
const FEW: (usize, usize) = (1, 1_000);
const MANY: (usize, usize) = (16, 8_000);
const VALUE: [u8; 100] = [b'v'; 100];
const SERIES: &str = "log";
const APPENDS: &str = "appends_per_s";

/// Appends an entry that looks like one of a member of this crate, in each of its accesses.
const ATTACK: &str = "repeat-append(value=0x01000000000000000076)";

/// How to measure appends.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// The program etcd; by default the one in PATH. Without it the rest is measured.
    #[arg(long, value_name = "PROGRAM")]
    etcd: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The strategy of the last member, if it is Byzantine.
    Log {
        is_durable: bool,
        byzantine: Option<&'static str>,
    },
    Elections {
        is_durable: bool,
    },
    Puts,
}

#[derive(Clone, Debug)]
struct Measured {
    name: String,
    kind: Kind,
    /// Of each writer.
    in_flight: usize,
    amount: usize,
}

impl Measured {
    fn new(name: &str, kind: Kind, (in_flight, amount): (usize, usize)) -> Self {
        Self { name: name.to_owned(), kind, in_flight, amount }
    }

    fn all() -> Vec<Self> {
        let log = |is_durable, byzantine| Kind::Log { is_durable, byzantine };
        let kinds = [
            ("log", log(false, None)),
            ("log-durable", log(true, None)),
            ("log-beside-attack", log(false, Some(ATTACK))),
            ("etcd-puts", Kind::Puts),
        ];
        let appends = kinds.into_iter().flat_map(|(name, kind)| {
            [FEW, MANY].map(|amount| Self::new(&format!("{name}/{}", amount.0), kind, amount))
        });
        let others = [
            Self::new("log-beside-silence/16", log(false, Some("silent")), (16, 500)),
            Self::new("elections", Kind::Elections { is_durable: false }, (1, 500)),
            Self::new("elections-durable", Kind::Elections { is_durable: true }, (1, 500)),
        ];
        appends.chain(others).collect()
    }
}

impl Candidate for Measured {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn over(&self) -> Vec<String> {
        let others = match self.kind {
            Kind::Log { is_durable: true, .. } => ["log", "etcd-puts"].as_slice(),
            Kind::Elections { is_durable: true } => return vec!["elections".to_owned()],
            _ => &[],
        };
        others.iter().map(|kind| format!("{kind}/{}", self.in_flight)).collect()
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let disk = options.rounds.common.disk();
    let etcd = Program::find(options.etcd.as_deref(), &disk)?;
    let all = Measured::all().into_iter().filter(|it| it.kind != Kind::Puts || etcd.is_some());
    let candidates = options.rounds.wanted(all)?;
    let program = servers::find(options.rounds.common.server.as_deref())?;
    let rows = options.rounds.run(&candidates, |measured| {
        let (etcd, disk, amount) = (etcd.clone(), disk.clone(), options.rounds.scaled(measured.amount));
        let launch = Launch { retention: "1h", ..Launch::new(&program) };
        async move {
            let folder = servers::folder(&disk)?;
            let start = |is_durable| if is_durable { launch.durable(folder.path()) } else { launch.clone() };
            match measured.kind {
                Kind::Log { is_durable, byzantine } => {
                    log(&start(is_durable), byzantine, measured.in_flight, amount).await
                }
                Kind::Elections { is_durable } => elections(&start(is_durable), amount).await,
                Kind::Puts => puts(&etcd.context("etcd is missing")?, measured.in_flight, amount).await,
            }
        }
    })?;
    options.rounds.report("appends", etcd.map(|etcd| etcd.version), json!({ "writers": WRITERS }), rows)
}

/// The tasks beside the appends or elections: none is to end.
type Tasks = JoinSet<anyhow::Result<()>>;

/// A series of which all writers are members, and its coordinator.
fn coordinate(server: &Server, tasks: &mut Tasks) -> anyhow::Result<()> {
    let coordinator = Series::new(&server.client(COORDINATOR)?, SERIES)?;
    let roster = (0..WRITERS).map(principal).collect();
    let spec = SeriesSpec { warp_size: 2, window: MAX_WINDOW, ..SeriesSpec::new(roster) };
    tasks.spawn(async move { Ok(coordinator.coordinate(&spec).await.map(|never| match never {})?) });
    Ok(())
}

async fn log(
    launch: &Launch,
    byzantine: Option<&'static str>,
    in_flight: usize,
    amount: usize,
) -> anyhow::Result<Figures> {
    let (server, mut tasks) = (launch.start().await?, JoinSet::new());
    coordinate(&server, &mut tasks)?;
    let correct = WRITERS - usize::from(byzantine.is_some());
    let acted = Arc::new(AtomicUsize::new(0));
    if let Some(strategy) = byzantine {
        tasks.spawn(act_at_once(server.client(&principal(correct))?, strategy, acted.clone()));
    }
    let mut members = Vec::new();
    for writer in 0..correct {
        let (member, driver) =
            Member::join(&Series::new(&server.client(&principal(writer))?, SERIES)?).await?;
        tasks.spawn(async move { Ok(driver.run().await?) });
        members.push(member);
    }
    let appends = timed(APPENDS, correct * in_flight, amount, move |number| {
        let member = members[number % correct].clone();
        async move { Ok(member.append(VALUE).await.map(drop)?) }
    });
    let figures = beside(tasks, appends).await?;
    ensure!(byzantine.is_none() || acted.load(Ordering::Relaxed) > 0, "the Byzantine member did not act");
    Ok(figures)
}

/// These figures, unless one of the tasks ends before.
async fn beside(
    mut tasks: Tasks,
    figures: impl Future<Output = anyhow::Result<Figures>>,
) -> anyhow::Result<Figures> {
    tokio::select! {
        figures = figures => figures,
        Some(ended) = tasks.join_next() => Err(ended?.err().unwrap_or_else(|| anyhow!("a member has ended"))),
    }
}

/// A Byzantine member, which acts in every slot as soon as that exists. `acted`: in how many.
async fn act_at_once(client: Client, strategy: &'static str, acted: Arc<AtomicUsize>) -> anyhow::Result<()> {
    /// Of the 64 streams that it may have.
    const STREAMS: usize = 48;
    let (streams, mut playing) = (Arc::new(Semaphore::new(STREAMS)), JoinSet::new());
    let strategy: Strategy = strategy.parse().map_err(|error| anyhow!("{strategy}: {error}"))?;
    for slot in 1_u64.. {
        let id = loop {
            match client.find(&format!("{SERIES}.{slot}")).await {
                Ok(id) => break id,
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        };
        let (client, acted) = (client.clone(), acted.clone());
        let permit = streams.clone().acquire_owned().await?;
        let spec = ProcessSpec::byzantine(strategy.clone(), None, slot);
        playing.spawn(async move {
            // A silent one would stay for ever.
            let played = client.play(id, spec, sleep(Duration::from_secs(1))).await;
            acted.fetch_add(played.report.map_or(0, |_| 1), Ordering::Relaxed);
            drop(permit);
        });
        while playing.try_join_next().is_some() {}
    }
    Ok(())
}

async fn elections(launch: &Launch, amount: usize) -> anyhow::Result<Figures> {
    let (server, mut tasks) = (launch.start().await?, JoinSet::new());
    coordinate(&server, &mut tasks)?;
    let mut members = Vec::new();
    for member in 0..WRITERS {
        members.push(Election::new(&Series::new(&server.client(&principal(member))?, SERIES)?));
    }
    let elections = timed("elections_per_s", 1, amount, move |number| {
        let (members, leader) = (members.clone(), principal(number % WRITERS));
        async move {
            let (epoch, mut supports) = (number as u64 + 1, JoinSet::new());
            for (index, member) in members.into_iter().enumerate() {
                let leader = leader.clone();
                supports.spawn(async move {
                    if index > 0 {
                        member.begun(epoch).await?;
                    }
                    member.support(epoch, &leader).await
                });
            }
            for elected in supports.join_all().await {
                ensure!(elected?.leader.as_ref() == Some(&leader), "another leader of epoch {epoch}");
            }
            Ok(())
        }
    });
    beside(tasks, elections).await
}

async fn puts(program: &Program, in_flight: usize, amount: usize) -> anyhow::Result<Figures> {
    let etcd = program.start(&etcd::Options::default()).await?;
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let url = etcd.urls().first().context("etcd has no member")?.clone();
        writers.push(KvClient::new(Endpoint::from_shared(url)?.connect().await?));
    }
    timed(APPENDS, WRITERS * in_flight, amount, move |number| {
        let mut writer = writers[number % WRITERS].clone();
        let key = format!("log/{number}").into_bytes().into();
        let put = PutRequest { key, value: VALUE.to_vec().into(), ..PutRequest::default() };
        // On condition of nothing.
        let success = vec![RequestOp { request: Some(Request::RequestPut(put)) }];
        let put = TxnRequest { success, ..TxnRequest::default() };
        async move { Ok(writer.txn(put).await.map(drop)?) }
    })
    .await
}

/// This many calls, so many at a time. `rate`: the name of their number in a second.
#[allow(clippy::cast_precision_loss)]
async fn timed<F: Future<Output = anyhow::Result<()>> + Send + 'static>(
    rate: &'static str,
    at_once: usize,
    amount: usize,
    call: impl Fn(usize) -> F + Clone + Send + 'static,
) -> anyhow::Result<Figures> {
    let begun = Instant::now();
    let times: Vec<Duration> = in_parallel(amount, at_once, move |number| {
        let call = call(number);
        async move {
            let begun = Instant::now();
            call.await?;
            Ok(begun.elapsed())
        }
    })
    .await?;
    let figures = Figures::default().with(rate, amount as f64 / begun.elapsed().as_secs_f64());
    Ok(figures.quantile_ms("median_ms", &times, 0.5).quantile_ms("p99_ms", &times, 0.99))
}
