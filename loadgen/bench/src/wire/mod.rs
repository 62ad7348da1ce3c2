//! The cost of the service over the wire, beside that of a service that does nothing, and of etcd: see
//! `docs/internals/performance.md`. Only accesses are counted. On Attach the hello of each instance and the
//! decision that ends it are sent and answered within the measured time; the unary calls do not report
//! decisions. Creating the instances is not measured; dropping the finished ones is.
//!
//! `cost_us` is the processor time of all programs for each access, `server_cost_us` the server's part of it.
//! With a log: `commits_per_s`, `accesses_per_commit`, `commit_us` (writing and syncing a batch),
//! `log_bytes_per_access`. With `--beside NAME=PATH` every candidate has a turn with the `stickycas-server`
//! of that build too, as `CANDIDATE@NAME`, and is compared with the first server's.

pub(crate) mod attach;
pub(crate) mod steps;
pub(crate) mod unary;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;

use self::attach::{Play, play_all};
use crate::etcd::{self, Program};
use crate::fixture::{Fixture, principal};
use crate::results::Figures;
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, Launch};
use crate::workload::Shape;

/// How to measure the wire.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// The program of etcd; by default the one in PATH.
    #[arg(long, value_name = "PATH")]
    etcd: Option<PathBuf>,
    /// The server of another build, which takes turns with the first.
    #[arg(long, value_name = "NAME=PATH", value_parser = Build::parse)]
    beside: Vec<Build>,
}

/// The program of another build, and its name in the results.
#[derive(Clone, Debug)]
struct Build {
    name: String,
    program: PathBuf,
}

impl Build {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or("give NAME=PATH")?;
        let program = servers::find(Some(Path::new(program))).map_err(|error| error.to_string())?;
        Ok(Self { name: name.to_owned(), program })
    }
}

/// The peer of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Floor,
    Memory,
    /// StickyCAS with its log on disk.
    Durable,
    /// StickyCAS with certificates of both sides.
    Tls,
    /// StickyCAS with both.
    DurableTls,
    Etcd,
    /// etcd that does not wait for the disk.
    EtcdNoFsync,
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Unary,
    /// All frames of a moment leave together with `batch`.
    Attach {
        batch: bool,
    },
}

use Peer::{Durable, DurableTls, Etcd, EtcdNoFsync, Floor, Memory, Tls};

/// What is measured: with so many instances in flight, and so many instances in a turn, for about a second of
/// work on two slow cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    name: &'static str,
    work: Work,
    peer: Peer,
    in_flight: usize,
    amount: usize,
}

const ATTACH: Work = Work::Attach { batch: false };
const BATCH: Work = Work::Attach { batch: true };

const fn kind(name: &'static str, work: Work, peer: Peer, in_flight: usize, amount: usize) -> Kind {
    Kind { name, work, peer, in_flight, amount }
}

/// In the order of their turns: each next to its floor. etcd has none with 256 instances in flight: it
/// refuses requests while more than 5,000 are not applied yet.
const KINDS: [Kind; 23] = [
    kind("unary-floor", Work::Unary, Floor, UNARY_IN_FLIGHT, 800),
    kind("unary", Work::Unary, Memory, UNARY_IN_FLIGHT, 800),
    kind("unary-durable", Work::Unary, Durable, UNARY_IN_FLIGHT, 800),
    kind("unary-tls", Work::Unary, Tls, UNARY_IN_FLIGHT, 800),
    kind("stream-floor/16", ATTACH, Floor, 16, 8_000),
    kind("attach/16", ATTACH, Memory, 16, 4_000),
    kind("attach-durable/16", ATTACH, Durable, 16, 4_000),
    kind("attach-batch/16", BATCH, Memory, 16, 4_000),
    kind("attach-batch-durable/16", BATCH, Durable, 16, 4_000),
    kind("stream-floor/64", ATTACH, Floor, 64, 8_000),
    kind("attach/64", ATTACH, Memory, 64, 4_000),
    kind("attach-durable/64", ATTACH, Durable, 64, 4_000),
    kind("attach-tls/64", ATTACH, Tls, 64, 4_000),
    kind("attach-durable-tls/64", ATTACH, DurableTls, 64, 4_000),
    kind("attach-batch/64", BATCH, Memory, 64, 4_000),
    kind("attach-batch-durable/64", BATCH, Durable, 64, 4_000),
    kind("stream-floor/256", ATTACH, Floor, 256, 8_000),
    kind("attach/256", ATTACH, Memory, 256, 4_000),
    kind("attach-batch/256", BATCH, Memory, 256, 4_000),
    kind("etcd/16", ATTACH, Etcd, 16, 256),
    kind("etcd/64", ATTACH, Etcd, 64, 256),
    kind("etcd-no-fsync/16", ATTACH, EtcdNoFsync, 16, 256),
    kind("etcd-no-fsync/64", ATTACH, EtcdNoFsync, 64, 256),
];

/// Instances in flight over unary calls: so many that some keep the connection busy while others wait for a
/// phase.
pub(crate) const UNARY_IN_FLIGHT: usize = 16;

impl Kind {
    /// Whether it is measured on StickyCAS.
    fn is_ours(self) -> bool {
        matches!(self.peer, Memory | Durable | Tls | DurableTls)
    }

    /// The candidates that it is compared with: its floor, its like in memory without TLS, and etcd.
    fn over(self) -> Vec<String> {
        if !self.is_ours() {
            return Vec::new();
        }
        let unary = |kind: &Kind| kind.work == Work::Unary;
        let is_over = |other: &Kind| match other.peer {
            Floor => unary(other) == unary(&self) && other.in_flight == self.in_flight,
            Memory => other.work == self.work && other.in_flight == self.in_flight && self.peer != Memory,
            Etcd | EtcdNoFsync => true,
            Durable | Tls | DurableTls => false,
        };
        KINDS.into_iter().filter(is_over).map(|kind| kind.name.to_owned()).collect()
    }

    /// The missing requirement of this candidate, if any.
    fn lacks(self, etcd: Option<&Program>) -> Option<String> {
        match (self.peer, etcd) {
            (Etcd | EtcdNoFsync, None) => {
                Some("there is no etcd (Debian: apt-get install etcd-server), or give --etcd PATH".to_owned())
            }
            (EtcdNoFsync, Some(Program { can_leave_fsync: false, version, .. })) => {
                Some(format!("etcd {version} has no --unsafe-no-fsync; --disk /dev/shm does without a disk"))
            }
            _ => None,
        }
    }

    /// One turn on a server that is launched so, or on the floor or etcd.
    async fn turn(self, launch: &Launch, amount: usize, etcd: Option<Program>) -> anyhow::Result<Figures> {
        let Self { work, peer, in_flight, .. } = self;
        if let Etcd | EtcdNoFsync = peer {
            let options = etcd::Options { fsync: peer == Etcd, ..etcd::Options::default() };
            let etcd = etcd.context("there is no etcd")?.start(&options).await?;
            return etcd::run(&etcd, amount, in_flight).await;
        }
        let fixture = match peer {
            Floor => Fixture::floor(Shape::WIRE, amount).await?,
            _ => Fixture::start(launch, Shape::WIRE, amount).await?,
        };
        match work {
            Work::Attach { batch } => {
                let play = Play { in_flight, batch, ..Play::default() };
                fixture.measure(play_all(&fixture, &play)).await
            }
            Work::Unary => fixture.measure(unary::play_all(&fixture, in_flight, None)).await,
        }
    }
}

/// A kind with the server of one build.
#[derive(Clone)]
struct Measured {
    kind: Kind,
    /// `None`: the first.
    build: Option<Build>,
}

impl Candidate for Measured {
    fn name(&self) -> String {
        match &self.build {
            None => self.kind.name.to_owned(),
            Some(build) => format!("{}@{}", self.kind.name, build.name),
        }
    }

    fn over(&self) -> Vec<String> {
        if self.build.is_none() { self.kind.over() } else { vec![self.kind.name.to_owned()] }
    }
}

/// Credentials for a server and all processes, in a folder that is deleted when this is dropped.
pub(crate) fn credentials() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    servers::make_credentials(folder.path(), (0..Shape::WIRE.processes as usize).map(principal))?;
    Ok(folder)
}

/// The launch of this peer.
pub(crate) fn launch(peer: Peer, program: &Path, log: &Path, credentials: &Path) -> Launch {
    let launch = Launch::new(program);
    let launch = if let Durable | DurableTls = peer { launch.durable(log) } else { launch };
    let proves = matches!(peer, Tls | DurableTls);
    Launch { credentials: proves.then(|| credentials.to_owned()), ..launch }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let disk = options.rounds.common.disk();
    let etcd = Program::find(options.etcd.as_deref(), &disk)?;
    let wanted = options.rounds.wanted(KINDS.map(|kind| Measured { kind, build: None }))?;
    let (mut candidates, mut left_out) = (Vec::new(), BTreeMap::<String, Vec<&str>>::new());
    for Measured { kind, .. } in wanted {
        if let Some(lack) = kind.lacks(etcd.as_ref()) {
            left_out.entry(lack).or_default().push(kind.name);
            continue;
        }
        let builds = options.beside.iter().filter(|_| kind.is_ours()).cloned().map(Some);
        candidates.extend([None].into_iter().chain(builds).map(|build| Measured { kind, build }));
    }
    for (lack, names) in left_out {
        writeln!(std::io::stderr(), "left out: {}: {lack}", names.join(", "))?;
    }
    let mut names: Vec<String> = candidates.iter().map(Candidate::name).collect();
    names.sort();
    ensure!(names.windows(2).all(|pair| pair[0] != pair[1]), "--beside: one name is there twice");
    let credentials = credentials()?;
    let program = servers::find(options.rounds.common.server.as_deref())?;
    let rows = options.rounds.run(&candidates, |Measured { kind, build }| {
        let program = build.map_or_else(|| program.clone(), |build| build.program);
        let (disk, etcd) = (disk.clone(), etcd.clone());
        let (amount, credentials) = (options.rounds.scaled(kind.amount), credentials.path().to_owned());
        async move {
            let log = servers::folder(&disk)?;
            kind.turn(&launch(kind.peer, &program, log.path(), &credentials), amount, etcd).await
        }
    })?;
    options.rounds.report("wire", etcd.map(|etcd| etcd.version), json!({}), rows)
}
