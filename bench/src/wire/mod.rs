//! What the service costs over the wire, against a service that does nothing, and against etcd.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire                     tables
//! cargo run --release -p stickycas-bench -- wire --json wire.json    and every sample
//! cargo run --release -p stickycas-bench -- wire --help              rounds, candidates, size
//! ```
//!
//! The work is that of [`crate::work`]: half of the accesses are appends and half are reads of 8 entries. Each process is
//! a principal with one connection of its own, and takes part in several instances at a time. Patience is endless. Server
//! and clients are a program each, with one worker each, on TCP over loopback, unless `--layout` says otherwise.
//!
//! | candidate | what |
//! | --- | --- |
//! | `unary-floor` | the unary client, all that it sends, against a service that answers at once with a message of the right size: no layers, no identity, no instance |
//! | `unary` | the same client against the real server, every layer on |
//! | `stream-floor/k` | the Attach client, stripped to its accesses, against a stream that echoes: one message out for one in, k accesses in flight |
//! | `attach/k` | one Attach stream per principal against the real server, k instances in flight, one access per message of the client, which encodes and decodes as the load generator does (`stickycas_loadgen::load::attach_codec`) |
//! | `attach-batch/k` | the same; what follows from one message of the server goes out as one message |
//! | `etcd/k`, `etcd-no-fsync/k` | the same consensus on etcd, k instances in flight: see `etcd/play`. Left out where there is no etcd |
//!
//! The real server has every limit on but two: how long a finished instance is kept, so that finished ones go while others
//! run, and how many instances one creator may have while there is no time to spare, for all are created ahead.
//!
//! Only accesses are counted. On Attach the Hello of each instance and the Decision that ends it are sent and
//! waited for inside the measured time, and count nothing: per access the real server handles two frames, the
//! floor one. The unary calls do not report decisions. Creating the instances is outside the measured time;
//! letting go of those that have finished is inside. Every process decides for itself; when the clock has stopped every
//! instance is judged, and one that is not valid fails the run.
//!
//! Not criterion: it measures one candidate after the other, and a minute later the machine is another one.
//! Here all candidates take turns, every round has a fresh server for each, and a ratio is taken within its
//! round. Beside each rate stands the processor time that an access took, server and client together, which
//! does not depend on what else the machine is doing.
//!
//! In the raw results: `layout`, `rounds`, `disk` (the kind of file system under etcd's data), and for each of
//! `candidates` its `name`, what it is measured against (`floor`), `in_flight`, its `samples`, and medians with their
//! ranges: `rate` and `instance_rate`, `cost_us` (of a processor, for each access), `server_cost_us` (the server's part of
//! it), `of_floor` and `of_floor_by_cost`, and `of_etcd`: by candidate of etcd, `rate`, our instances per second in units
//! of its, and `cost`, its processor time for each access in units of ours.
//!
//! # Two builds beside each other
//! `--server NAME=PATH`, several times: the `stickycas-bench` of other builds serve, each in a process of its own. This
//! program is the client of them all, and every candidate has its turn with each. In the raw results each candidate then
//! stands once for each `server`, and all but the first have `of_first_server`: `rate` and `server_cost_us` in units of
//! what the first server had in the same round.

mod attach;
mod candidate;
mod report;
mod tongue;
pub(crate) mod unary;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Args;

use self::candidate::CANDIDATES;
use self::report::{Conditions, Series};
use crate::etcd::Program;
use crate::results;
use crate::serve::{self, Launch, Layout};
use crate::turns::Turns;
use crate::work::{PROCESSES, Saw};

/// How to measure the wire.
#[derive(Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    turns: Turns,
    /// etcd's program; the one in PATH if not given.
    #[arg(long, value_name = "PATH")]
    etcd: Option<PathBuf>,
    /// The directory below which etcd's data lie for as long as it runs; the system's for temporary files if not given.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// A program that serves in place of this one: `stickycas-bench` of another build. Given several times, each
    /// candidate has its turn with each of them, and they are compared with the first.
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

/// What one task of a process saw: instances by number.
pub(crate) struct Slot {
    pub(crate) process: usize,
    pub(crate) saw: Vec<(usize, Saw)>,
}

impl Slot {
    /// By process, then by instance.
    pub(crate) fn together(slots: Vec<Self>, instances: usize) -> Vec<Vec<Saw>> {
        let mut all = vec![vec![Saw::NOTHING; instances]; PROCESSES as usize];
        for Self { process, saw } in slots {
            for (instance, saw) in saw {
                all[process][instance] = saw;
            }
        }
        all
    }
}

/// Measures, and prints what came of it.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let names: Vec<String> = CANDIDATES.iter().map(|candidate| candidate.name()).collect();
    options.turns.check(&names)?;
    let layout = options.turns.layout;
    check_servers(&options.servers, layout)?;
    let disk = options.disk.clone().unwrap_or_else(std::env::temp_dir);
    let etcd = Program::find(options.etcd.as_deref(), &disk)?;
    let mut series = candidates(options, etcd.as_ref())?;
    let runtime = serve::runtime(layout.workers())?;
    let mut order: Vec<usize> = (0..series.len()).collect();
    for round in 0..=options.turns.rounds {
        for &turn in &order {
            let series = &mut series[turn];
            let candidate = series.candidate;
            let instances = options.turns.scaled(candidate.instances());
            let (launch, etcd) = (series.launch.clone(), etcd.clone());
            // Spawned, so that it runs on the workers and not beside them.
            let turn = runtime.spawn(async move { candidate.turn(instances, &launch, etcd).await });
            let sample = runtime.block_on(turn)?.with_context(|| series.name())?;
            if round > 0 {
                series.samples.push(sample);
            }
        }
        // Next time backwards: a machine that becomes slower within a round does not favour the same one each time.
        order.reverse();
    }
    let conditions = Conditions {
        layout,
        rounds: options.turns.rounds,
        disk: etcd.as_ref().and_then(|_| results::file_system(&disk)),
    };
    let version = etcd.map(|etcd| ("etcd".to_owned(), etcd.version));
    report(&conditions, &series, &version.into_iter().collect(), options.turns.json.as_deref())?;
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

/// Those that are wanted and can take part, with each of the servers. For what reason others cannot is told once.
fn candidates(options: &Options, etcd: Option<&Program>) -> anyhow::Result<Vec<Series>> {
    let mut series = Vec::new();
    let mut left_out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for candidate in CANDIDATES.into_iter().filter(|candidate| options.turns.wants(&candidate.name())) {
        match candidate.lacks(etcd) {
            None if candidate.is_etcd() || options.servers.is_empty() => {
                series.push(Series::new(candidate, None, Launch::own(options.turns.layout)));
            }
            None => series.extend(options.servers.iter().map(|server| {
                Series::new(candidate, Some(server.name.clone()), Launch::other(&server.program))
            })),
            Some(lack) => left_out.entry(lack).or_default().push(candidate.name()),
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
