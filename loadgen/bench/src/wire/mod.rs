//! The cost of the service over the wire, beside that of a service that does nothing, and of etcd.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire                     tables
//! cargo run --release -p stickycas-bench -- wire --json wire.json    and every sample
//! cargo run --release -p stickycas-bench -- wire --help              rounds, candidates, size
//! ```
//!
//! The workload is that of [`crate::workload`]: half of the accesses are appends, half are reads of 8
//! entries. Each process is a principal with a connection of its own, and takes part in several instances at
//! a time. Patience is endless. Server and clients are a program each, with one worker each, on TCP over
//! loopback, unless `--layout` says otherwise.
//!
//! | candidate | measured |
//! | --- | --- |
//! | `unary-baseline` | the unary client against a service that answers each call at once with a message of the right size: no layers, no identity, no instance |
//! | `unary` | the same client against StickyCAS with all of its layers |
//! | `stream-baseline/k` | the Attach client, with accesses only, against a stream that echoes: one message out for one message in, k accesses in flight |
//! | `attach/k` | one Attach stream per principal against StickyCAS, k instances in flight, one access in each message; the client encodes and decodes as the load generator does (`stickycas_load::attach_codec`) |
//! | `attach-batch/k` | the same; all frames that follow from one message of the server leave as one message |
//! | `unary-durable`, `attach-durable/k`, `attach-batch-durable/k` | the same with a server that keeps its log on disk, in a folder of its own in `--disk` |
//! | `etcd/k`, `etcd-no-fsync/k` | the same consensus on etcd, k instances in flight: see `etcd`. Left out without etcd |
//!
//! Two limits of the server are changed. The retention of finished instances is short, so that the server
//! drops them while others run. The limit on instances of a creator while the server is busy is lifted,
//! because all instances of a turn are created ahead.
//!
//! Only accesses are counted. On Attach the hello of each instance and the decision that ends it are sent and
//! answered within the measured time: for each access the server handles two frames, the floor one. The unary
//! calls do not report decisions. Creating the instances is not measured; dropping the finished ones is.
//! Every process decides for itself. When the clock has stopped, every instance is judged, and one that is
//! not valid fails the run.
//!
//! This is no benchmark of criterion, which measures one candidate after the other, while the load of a
//! shared machine changes within minutes. Here the candidates take turns, each turn has a fresh server, and a
//! ratio is taken within its round. The processor time per access of server and clients together depends less
//! on other load than the rate does.
//!
//! In the raw results: `layout`, `rounds`, `disk` (the kind of file system with the data of etcd and the
//! logs), and for each of `candidates` its `name`, the candidate that it is compared with (`baseline`),
//! `in_flight`, its `samples`, and medians with their ranges: `rate` and `instance_rate`, `cost_us`
//! (processor time per access), `server_cost_us` (the server's part of it), `of_floor` and
//! `of_floor_by_cost`, and `of_etcd`: by candidate of etcd, `rate` (our instances per second in units of
//! those of etcd) and `cost` (the processor time per access of etcd in units of ours). With a log also
//! `of_memory`: `rate` and `server_cost_us` in units of those of the same candidate without one in the same
//! round; `commit_rate`, `accesses_per_commit`, `commit_us` (writing and syncing a batch) and
//! `log_bytes_each` (bytes of batches for each access), as the server's metrics tell them; and `log` of each
//! sample.
//!
//! # Two builds beside each other
//! `--server NAME=PATH`, given several times: the `stickycas-bench` of other builds serve, each in a process
//! of its own. This program is the client of all of them, and every candidate has a turn with each. In the
//! raw results there is then one candidate for each `server`, and all but those of the first server have
//! `of_first_server`: `rate` and `server_cost_us` in units of the first server's in the same round.

pub(crate) mod attach;
pub(crate) mod codec;
mod report;
pub(crate) mod unary;
mod variant;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use self::report::{Conditions, Series};
use self::variant::{VARIANTS, Variant};
use crate::etcd::Program;
use crate::rounds::RoundOptions;
use crate::serve::{self, Launch, Layout};
use crate::{disk, results};

/// How to measure the wire.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    rounds: RoundOptions,
    /// The program of etcd; by default the one in PATH.
    #[arg(long, value_name = "PATH")]
    etcd: Option<PathBuf>,
    /// The directory for the data of etcd and for logs while they run; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// A program that serves in place of this one: `stickycas-bench` of another build. Given several times,
    /// each candidate has its turn with each of them, and they are compared with the first.
    #[arg(long = "server", value_name = "NAME=PATH", value_parser = OtherServer::parse)]
    servers: Vec<OtherServer>,
}

/// The program of another build, and its name in the results.
#[derive(Clone, Debug)]
struct OtherServer {
    name: String,
    program: PathBuf,
}

impl OtherServer {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, program) = text.split_once('=').ok_or("give NAME=PATH")?;
        let program = PathBuf::from(program);
        if !program.is_file() {
            return Err(format!("{} is missing", program.display()));
        }
        Ok(Self { name: name.to_owned(), program })
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = VARIANTS.iter().map(|variant| variant.name()).collect();
    options.rounds.check(&names)?;
    let layout = options.rounds.layout;
    check_servers(&options.servers, layout)?;
    let directory = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let etcd = Program::find(options.etcd.as_deref(), &directory)?;
    let mut series = candidates(options, etcd.as_ref(), &directory)?;
    let runtime = serve::runtime(layout.workers())?;
    let mut order: Vec<usize> = (0..series.len()).collect();
    for round in 0..=options.rounds.rounds {
        for &turn in &order {
            let series = &mut series[turn];
            let variant = series.variant;
            let instances = options.rounds.scaled(variant.instances());
            let (launch, etcd) = (series.launch.clone(), etcd.clone());
            // Spawned, so that it runs on a worker and not on this thread.
            let turn = runtime.spawn(async move { variant.turn(instances, &launch, etcd).await });
            let sample = runtime.block_on(turn)?.with_context(|| series.name())?;
            if round > 0 {
                series.samples.push(sample);
            }
        }
        // Every other round backwards: a drift within rounds favours no candidate.
        order.reverse();
    }
    let writes = series.iter().any(|one| one.variant.is_etcd() || one.variant.is_durable());
    let conditions = Conditions {
        layout,
        rounds: options.rounds.rounds,
        disk: if writes { disk::file_system(&directory) } else { None },
    };
    let version = etcd.map(|etcd| ("etcd".to_owned(), etcd.version));
    report(&conditions, &series, &version.into_iter().collect(), options.rounds.json.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

fn check_servers(servers: &[OtherServer], layout: Layout) -> anyhow::Result<()> {
    ensure!(
        servers.is_empty() || layout == Layout::TwoPrograms,
        "--server: a program of its own, so leave out --layout"
    );
    for (number, server) in servers.iter().enumerate() {
        let name = &server.name;
        ensure!(servers[..number].iter().all(|other| other.name != *name), "--server: '{name}' twice");
    }
    Ok(())
}

/// The candidates that are selected and possible, with each of the servers. Says once why others are not
/// possible.
fn candidates(options: &Options, etcd: Option<&Program>, disk: &Path) -> anyhow::Result<Vec<Series>> {
    let mut series = Vec::new();
    let mut left_out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let with_log =
        |variant: Variant, launch: Launch| if variant.is_durable() { launch.durable(disk) } else { launch };
    for variant in VARIANTS.into_iter().filter(|variant| options.rounds.wants(&variant.name())) {
        match variant.lacks(etcd) {
            None if variant.is_etcd() || options.servers.is_empty() => {
                let launch = with_log(variant, Launch::own(options.rounds.layout));
                series.push(Series::new(variant, None, launch));
            }
            None => series.extend(options.servers.iter().map(|server| {
                let launch = with_log(variant, Launch::other(&server.program));
                Series::new(variant, Some(server.name.clone()), launch)
            })),
            Some(lack) => left_out.entry(lack).or_default().push(variant.name()),
        }
    }
    for (lack, names) in left_out {
        writeln!(std::io::stderr(), "left out: {}: {lack}", names.join(", "))?;
    }
    ensure!(!series.is_empty(), "nothing is left to measure");
    Ok(series)
}

fn report(
    conditions: &Conditions,
    series: &[Series],
    programs: &BTreeMap<String, String>,
    json: Option<&Path>,
) -> anyhow::Result<()> {
    let results = report::Results::new(conditions, series);
    results.print()?;
    json.map_or(Ok(()), |json| results::write(json, "wire", programs, &results))
}
