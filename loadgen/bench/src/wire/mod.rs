//! The cost of the service over the wire, beside that of a service that does nothing, and of etcd.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire                     tables
//! cargo run --release -p stickycas-bench -- wire --json wire.json    and every sample
//! cargo run --release -p stickycas-bench -- wire --only unary-floor,unary --beside before=../before/stickycas-server
//! ```
//!
//! Instances of 32 processes ([`Shape::WIRE`]): half of the accesses are appends, half are reads of 8
//! entries. Each process is a principal with a connection of its own, and takes part in several instances at
//! a time. Patience is endless. Server and clients are a program each, with one worker each, on TCP over
//! loopback.
//!
//! | candidate | measured |
//! | --- | --- |
//! | `unary-floor` | the unary client against a service that answers each call at once with a message of the right size: no layers, no identity, no instance |
//! | `unary` | the same client against StickyCAS with all of its layers |
//! | `stream-floor/k` | the Attach client, with accesses only, against a stream that echoes: one message out for one message in, k accesses in flight |
//! | `attach/k` | one Attach stream per principal against StickyCAS, k instances in flight, one access in each message; the client encodes and decodes as the load generator does (`stickycas_load::attach_codec`) |
//! | `attach-batch/k` | the same; all frames that follow from one message of the server leave as one message |
//! | `...-durable` | the same with a server that keeps its log on disk, in a folder of its own in `--disk` |
//! | `...-tls` | the same with certificates of both sides |
//! | `connect`, `connect-tls` | 2,000 connections, 16 at a time, each with one call; they stay |
//! | `etcd/k`, `etcd-no-fsync/k` | the same consensus on etcd, k instances in flight: see `etcd`. Left out without etcd |
//!
//! Only accesses are counted. On Attach the hello of each instance and the decision that ends it are sent and
//! answered within the measured time: for each access the server handles two frames, the floor one. The unary
//! calls do not report decisions. Creating the instances is not measured; dropping the finished ones is.
//! Every process decides for itself. When the clock has stopped, every instance is judged, and one that is
//! not valid fails the run.
//!
//! Each turn has a fresh server. Each candidate is compared with its floor, with its like in memory or
//! without TLS, and with etcd. `cost_us` is the processor time of all programs for each access (or
//! connection), which depends less on other load than the rate does, `server_cost_us` the server's part of
//! it. With a log: `commits_per_s`, `accesses_per_commit`, `commit_us` (writing and syncing a batch),
//! `log_bytes_per_access`, as the server's metrics tell them.
//!
//! `--beside NAME=PATH`, given several times: the `stickycas-server` of other builds; every candidate then
//! has a turn with each of them too, as `CANDIDATE@NAME`, and is compared with the first server's.

pub(crate) mod attach;
pub(crate) mod codec;
pub(crate) mod connect;
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
use self::codec::{Generated, HandWritten};
use crate::etcd::{self, Program};
use crate::fixture::{Fixture, principal};
use crate::results::{Common, Figures, Results};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, Launch};
use crate::workload::Shape;

/// How to measure the wire.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    #[command(flatten)]
    common: Common,
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

/// Where the server keeps its log, and how it knows its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Memory,
    Durable,
    Tls,
}

/// A client, and the server that it is played against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    UnaryFloor,
    Unary(Server),
    StreamFloor(usize),
    Attach { in_flight: usize, batch: bool, server: Server },
    Connect(Server),
    Etcd { in_flight: usize, fsync: bool },
}

use Kind::{Attach, Connect, Etcd, StreamFloor, Unary, UnaryFloor};
use Server::{Durable, Memory, Tls};

const fn attach(in_flight: usize, batch: bool, server: Server) -> Kind {
    Attach { in_flight, batch, server }
}

/// In the order of their turns: each next to its floor. etcd has none with 256 instances in flight: it
/// refuses requests while more than 5,000 are not applied yet.
const KINDS: [Kind; 26] = [
    UnaryFloor,
    Unary(Memory),
    Unary(Durable),
    Unary(Tls),
    StreamFloor(1),
    attach(1, false, Memory),
    StreamFloor(16),
    attach(16, false, Memory),
    attach(16, false, Durable),
    attach(16, true, Memory),
    attach(16, true, Durable),
    StreamFloor(64),
    attach(64, false, Memory),
    attach(64, false, Durable),
    attach(64, false, Tls),
    attach(64, true, Memory),
    attach(64, true, Durable),
    StreamFloor(256),
    attach(256, false, Memory),
    attach(256, true, Memory),
    Connect(Memory),
    Connect(Tls),
    Etcd { in_flight: 16, fsync: true },
    Etcd { in_flight: 64, fsync: true },
    Etcd { in_flight: 16, fsync: false },
    Etcd { in_flight: 64, fsync: false },
];

/// Instances in flight over unary calls: so many that some keep the connection busy while others wait for a
/// phase.
pub(crate) const UNARY_IN_FLIGHT: usize = 16;

impl Kind {
    fn name(self) -> String {
        let server = |server| match server {
            Memory => "",
            Durable => "-durable",
            Tls => "-tls",
        };
        match self {
            UnaryFloor => "unary-floor".to_owned(),
            Unary(of) => format!("unary{}", server(of)),
            StreamFloor(in_flight) => format!("stream-floor/{in_flight}"),
            Attach { in_flight, batch, server: of } => {
                format!("attach{}{}/{in_flight}", if batch { "-batch" } else { "" }, server(of))
            }
            Connect(of) => format!("connect{}", server(of)),
            Etcd { in_flight, fsync: true } => format!("etcd/{in_flight}"),
            Etcd { in_flight, fsync: false } => format!("etcd-no-fsync/{in_flight}"),
        }
    }

    fn server(self) -> Option<Server> {
        match self {
            Unary(server) | Attach { server, .. } | Connect(server) => Some(server),
            UnaryFloor | StreamFloor(_) | Etcd { .. } => None,
        }
    }

    /// The same with a server that keeps everything in memory and believes names.
    fn plain(self) -> Self {
        match self {
            Unary(_) => Unary(Memory),
            Attach { in_flight, batch, .. } => attach(in_flight, batch, Memory),
            Connect(_) => Connect(Memory),
            other @ (UnaryFloor | StreamFloor(_) | Etcd { .. }) => other,
        }
    }

    /// The candidates that it is compared with.
    fn over(self) -> Vec<String> {
        let floor = match self {
            Unary(_) => Some(UnaryFloor),
            Attach { in_flight, .. } => Some(StreamFloor(in_flight)),
            UnaryFloor | StreamFloor(_) | Connect(_) | Etcd { .. } => None,
        };
        let is_other = self.plain() != self;
        let etcd = KINDS.into_iter().filter(|kind| floor.is_some() && matches!(kind, Etcd { .. }));
        let all = floor.into_iter().chain(is_other.then(|| self.plain())).chain(etcd);
        all.map(Self::name).collect()
    }

    /// Instances in one turn, or connections, for about a second of work on two slow cores.
    fn amount(self) -> usize {
        match self {
            UnaryFloor | Unary(_) => 800,
            StreamFloor(1) => 3_000,
            Attach { in_flight: 1, .. } => 1_000,
            StreamFloor(_) => 8_000,
            Attach { .. } => 4_000,
            Connect(_) => 2_000,
            Etcd { in_flight, .. } => in_flight.max(64) * 4,
        }
    }

    /// The missing requirement of this candidate, if any.
    fn lacks(self, etcd: Option<&Program>) -> Option<String> {
        let Etcd { fsync, .. } = self else { return None };
        match etcd {
            None => {
                Some("there is no etcd (Debian: apt-get install etcd-server), or give --etcd PATH".to_owned())
            }
            Some(etcd) if !fsync && !etcd.can_leave_fsync => {
                let version = &etcd.version;
                Some(format!("etcd {version} has no --unsafe-no-fsync; --disk /dev/shm does without a disk"))
            }
            Some(_) => None,
        }
    }

    /// One turn on a server that is launched so, or on the floor or etcd.
    pub(crate) async fn turn(
        self,
        launch: &Launch,
        amount: usize,
        etcd: Option<Program>,
    ) -> anyhow::Result<Figures> {
        match self {
            UnaryFloor => {
                let fixture = Fixture::floor(Shape::WIRE, amount).await?;
                fixture.measure(unary::play_all(&fixture, UNARY_IN_FLIGHT, None)).await
            }
            Unary(_) => {
                let fixture = Fixture::start(launch, Shape::WIRE, amount).await?;
                fixture.measure(unary::play_all(&fixture, UNARY_IN_FLIGHT, None)).await
            }
            StreamFloor(in_flight) => {
                let fixture = Fixture::floor(Shape::WIRE, amount).await?;
                let play = Play { in_flight, ..Play::default() };
                fixture.measure(play_all::<Generated>(&fixture, play)).await
            }
            Attach { in_flight, batch, .. } => {
                let fixture = Fixture::start(launch, Shape::WIRE, amount).await?;
                let play = Play { in_flight, batch, ..Play::default() };
                fixture.measure(play_all::<HandWritten>(&fixture, play)).await
            }
            Connect(_) => connect::turn(launch, amount).await,
            Etcd { in_flight, fsync } => {
                let options = etcd::Options { fsync, ..etcd::Options::default() };
                let etcd = etcd.context("there is no etcd")?.start(&options).await?;
                etcd::run(&etcd, amount, in_flight).await
            }
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
            None => self.kind.name(),
            Some(build) => format!("{}@{}", self.kind.name(), build.name),
        }
    }

    fn over(&self) -> Vec<String> {
        if self.build.is_none() { self.kind.over() } else { vec![self.kind.name()] }
    }
}

/// Credentials for a server and all processes, in a folder that is deleted when this is dropped.
pub(crate) fn credentials() -> anyhow::Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    servers::make_credentials(folder.path(), (0..Shape::WIRE.processes as usize).map(principal))?;
    Ok(folder)
}

/// The launch of a server of this kind.
pub(crate) fn launch(server: Server, plain: Launch, log: &Path, credentials: &Path) -> Launch {
    match server {
        Memory => plain,
        Durable => plain.durable(log),
        Tls => plain.certified(credentials),
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let disk = options.common.disk();
    let etcd = Program::find(options.etcd.as_deref(), &disk)?;
    let wanted = options.rounds.wanted(KINDS.map(|kind| Measured { kind, build: None }))?;
    let (mut candidates, mut left_out) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for Measured { kind, .. } in wanted {
        if let Some(lack) = kind.lacks(etcd.as_ref()) {
            left_out.entry(lack).or_default().push(kind.name());
            continue;
        }
        let builds = options.beside.iter().filter(|_| kind.server().is_some()).cloned().map(Some);
        candidates.extend([None].into_iter().chain(builds).map(|build| Measured { kind, build }));
    }
    for (lack, names) in left_out {
        writeln!(std::io::stderr(), "left out: {}: {lack}", names.join(", "))?;
    }
    let mut names: Vec<String> = candidates.iter().map(Candidate::name).collect();
    names.sort();
    ensure!(names.windows(2).all(|pair| pair[0] != pair[1]), "--beside: one name is there twice");
    let credentials = credentials()?;
    let program = servers::find(options.common.server.as_deref())?;
    let rows = options.rounds.run(&candidates, |Measured { kind, build }| {
        let program = build.map_or_else(|| program.clone(), |build| build.program);
        let (disk, etcd) = (disk.clone(), etcd.clone());
        let (amount, credentials) = (options.rounds.scaled(kind.amount()), credentials.path().to_owned());
        async move {
            let log = servers::folder(&disk)?;
            let server = kind.server().unwrap_or(Memory);
            let launch = launch(server, Launch::new(&program), log.path(), &credentials);
            kind.turn(&launch, amount, etcd).await
        }
    })?;
    let programs = etcd.map(|etcd| ("etcd".to_owned(), etcd.version)).into_iter().collect();
    let conditions = json!({"rounds": options.rounds.rounds, "disk": servers::file_system(&disk)});
    Results { measured: "wire", programs, conditions, rows }.report(&options.common)?;
    Ok(ExitCode::SUCCESS)
}
