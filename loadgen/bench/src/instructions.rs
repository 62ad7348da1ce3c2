//! Server instructions and system calls for each access, counted by `valgrind --tool=callgrind` and compared
//! with budgets.
//!
//! The workloads are those of [`crate::wire`], with the hellos and decisions of the instances, and the
//! creation of instances, one after the other. Those with the same server are counted on one; a few instances
//! are played first, for all that is made once. Callgrind writes the counts down whenever the server is asked
//! for its metrics, and begins anew; so the counts of a workload lie between two such calls, less the cost of
//! a call.
//!
//! So that counts repeat, whatever else the machine does, all clients send in step ([`crate::wire::steps`]),
//! and the clock of the server goes fifty times slower, as valgrind does, by libfaketime: else every client
//! seems to take more than its share of the processor, and waits for turns that the time decides. Readings of
//! the clock are not counted: valgrind hides the kernel's shared page from the program.
//!
//! Counts depend on the compiler, the profile and, by code that is chosen for it, on the processor. So
//! `budgets.toml` names the compiler and the profile, and with others `--check` skips (exit code 77), unless
//! `CI` is set, where it fails. Workloads of which one is above its budget are counted twice more, and the
//! least counts decide.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::fixture::Fixture;
use crate::metrics::Metrics;
use crate::results::{Figures, Row, Summary};
use crate::rounds::{Candidate, RoundOptions};
use crate::servers::{self, Launch, runtime};
use crate::streams::AttachStream;
use crate::wire::attach::{Play, open_all, play_these};
use crate::wire::steps::{self, Steps};
use crate::wire::{Peer, UNARY_IN_FLIGHT, credentials, launch, unary};
use crate::workload::Shape;

/// What cannot be measured here.
const SKIPPED: u8 = 77;
const RUSTC: &str = env!("STICKYCAS_BENCH_RUSTC");
/// How often workloads are counted again if one is above its budget.
const AGAIN: u32 = 2;
/// How far counts may be above their budgets; with a log, the load of the machine decides which steps are
/// committed together, and so how many commits there are.
const INSTRUCTIONS: f64 = 0.02;
const WITH_LOG: f64 = 0.05;
const SYSTEM_CALLS: f64 = 0.5;
/// The clock of the server, below `/usr/lib/ARCHITECTURE`.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";
/// A function of the server that is called once for each page of metrics.
const MARK: &str = "*metrics_page*Sources*Collector*encode*";
const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budgets.toml");

/// What to count.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fails when a count is above its budget.
    #[arg(long)]
    check: bool,
    /// Writes the medians of the counts as new budgets.
    #[arg(long, conflicts_with = "check")]
    set: bool,
    /// The file of the budgets.
    #[arg(long, value_name = "FILE", default_value = BUDGETS)]
    budgets: PathBuf,
    #[command(flatten)]
    rounds: RoundOptions,
}

/// What is counted: the creation of instances, or instances that are played, so many of them in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Create,
    Unary,
    Attach(usize),
}

/// A workload, and its instances.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    peer: Peer,
    work: Work,
    instances: usize,
}

impl Candidate for Workload {
    fn name(&self) -> String {
        self.name.to_owned()
    }
}

/// Those with the same server are next to each other.
const WORKLOADS: [Workload; 6] = [
    Workload { name: "create", peer: Peer::Memory, work: Work::Create, instances: 64 },
    Workload { name: "unary", peer: Peer::Memory, work: Work::Unary, instances: UNARY_IN_FLIGHT },
    Workload { name: "attach/16", peer: Peer::Memory, work: Work::Attach(16), instances: 64 },
    Workload { name: "attach/64", peer: Peer::Memory, work: Work::Attach(64), instances: 64 },
    Workload { name: "attach-durable/64", peer: Peer::Durable, work: Work::Attach(64), instances: 64 },
    Workload { name: "attach-tls/64", peer: Peer::Tls, work: Work::Attach(64), instances: 64 },
];
/// Instances that are played before any count.
const FIRST: usize = 4;

/// The file of the budgets.
#[derive(Debug, Serialize, Deserialize)]
struct Budgets {
    /// The compiler by whose code they were counted, as it prints its version.
    rustc: String,
    /// The profile of the server.
    profile: String,
    /// How often each workload was counted.
    rounds: u32,
    /// By workload: instructions and system calls for each access, or each creation.
    budgets: BTreeMap<String, Counts>,
}

/// Of a part of a run, or for each access.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Counts {
    instructions: f64,
    system_calls: f64,
}

impl Counts {
    fn figures(self) -> Figures {
        let Self { instructions, system_calls } = self;
        Figures::default().with("instructions", instructions).with("system_calls", system_calls)
    }

    /// Those in a file of callgrind, without readings of the clock.
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).with_context(|| format!("{} is no profile of callgrind", path.display()))
    }

    /// `events:` names the columns, `totals:` has the sums. `fn=(ID) NAME` or `fn=(ID)` begins a function,
    /// whose own lines follow: a position, and the columns. A line behind `calls=` is that of a callee.
    fn parse(text: &str) -> Option<Self> {
        let column = |name: &str| {
            let events = text.lines().find_map(|line| line.strip_prefix("events: "))?;
            events.split_whitespace().position(|event| event == name)
        };
        let value = |line: &str, at: usize| line.split_whitespace().nth(at)?.parse::<f64>().ok();
        let (instructions, system_calls) = (column("Ir")?, column("sysCount")?);
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "))?;
        let (mut clocks, mut in_clock, mut of_callee, mut clock_ids) = (0.0, false, false, Vec::new());
        for line in text.lines() {
            if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
                let (id, name) = function.split_once(' ').unwrap_or((function, ""));
                // libfaketime keeps signals away while it reads the clock; the server does not.
                if name.starts_with("clock_gettime") || name.starts_with("pthread_sigmask") {
                    clock_ids.push(id);
                }
                if line.starts_with("fn=") {
                    in_clock = clock_ids.contains(&id);
                }
            } else if line.starts_with("calls=") {
                of_callee = true;
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                if in_clock && !std::mem::take(&mut of_callee) {
                    clocks += value(line, system_calls + 1).unwrap_or(0.0);
                }
                of_callee = false;
            }
        }
        let all = value(totals, system_calls)?;
        Some(Self { instructions: value(totals, instructions)?, system_calls: all - clocks })
    }
}

/// Counts, and compares with the budgets.
pub(crate) fn run(Options { check, set, budgets: file, rounds }: &Options) -> anyhow::Result<ExitCode> {
    let program = servers::find(rounds.common.server.as_deref())?;
    let profile = program.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let read = || -> anyhow::Result<Budgets> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        toml::from_str(&text).with_context(|| file.display().to_string())
    };
    let budgets = if *check { Some(read()?) } else { None };
    if let Some(why) = lacks(budgets.as_ref(), &profile) {
        // A failure where all that it needs is given.
        ensure!(std::env::var_os("CI").is_none(), "{why}");
        writeln!(std::io::stderr(), "skipped: {why}")?;
        return Ok(SKIPPED.into());
    }
    let wanted = rounds.wanted(WORKLOADS)?;
    let credentials = credentials()?;
    let (mut rows, mut over) = (Vec::new(), 0);
    for workloads in wanted.chunk_by(|one, next| one.peer == next.peer) {
        let row = |it: &Workload| Row { name: it.name.to_owned(), ..Row::default() };
        let mut own: Vec<Row> = workloads.iter().map(row).collect();
        let mut told = Vec::new();
        for round in 1..=rounds.rounds + AGAIN {
            if round > rounds.rounds && !told.iter().any(|(_, is_over)| *is_over) {
                break;
            }
            let counts = runtime(2)?.block_on(count(workloads, &program, credentials.path()))?;
            own.iter_mut().zip(counts).for_each(|(row, counts)| row.turns.push(counts.figures()));
            told = own.iter().flat_map(|row| budgets.iter().flat_map(|it| it.compare(row))).collect();
        }
        for (told, is_over) in told {
            writeln!(std::io::stderr(), "{told}")?;
            over += usize::from(is_over);
        }
        rows.extend(own);
    }
    if *set {
        let mut all = read().map(|it| it.budgets).unwrap_or_default();
        for row in &rows {
            let median = |name| Summary::of(row.values(name)).map(|it| it.median).context("no count");
            let (instructions, system_calls) = (median("instructions")?.round(), median("system_calls")?);
            let system_calls = (system_calls * 1e3).round() / 1e3;
            all.insert(row.name.clone(), Counts { instructions, system_calls });
        }
        let (rustc, profile) = (RUSTC.to_owned(), profile.into_owned());
        let budgets = Budgets { rustc, profile, rounds: rounds.rounds, budgets: all };
        let head = "# Budgets of `stickycas-bench instructions`, for each access; written by its --set.\n";
        std::fs::write(file, format!("{head}{}", toml::to_string(&budgets)?))?;
    }
    let conditions =
        json!({"budgets": budgets, "bound": INSTRUCTIONS, "bound_of_system_calls": SYSTEM_CALLS});
    let done = rounds.report("instructions", None, conditions, rows)?;
    if over == 0 {
        return Ok(done);
    }
    let how = "if that is the price of something wanted: stickycas-bench instructions --set --rounds 5, and say why in the commit";
    writeln!(std::io::stderr(), "{over} above budget; {how}")?;
    Ok(ExitCode::FAILURE)
}

/// Why counts cannot be compared with these budgets, or not be made.
fn lacks(budgets: Option<&Budgets>, profile: &str) -> Option<String> {
    if let Some(Budgets { rustc, profile: counted, .. }) = budgets
        && (rustc.as_str(), counted.as_str()) != (RUSTC, profile)
    {
        return Some(format!(
            "the budgets are for {rustc}, profile {counted}; this is {RUSTC}, profile {profile}"
        ));
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        return Some("there is no valgrind (Debian: apt-get install valgrind)".to_owned());
    }
    let mut libraries = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
    let is_there = libraries.any(|folder| folder.path().join(FAKETIME).exists());
    (!is_there).then(|| "there is no libfaketime (Debian: apt-get install libfaketime)".to_owned())
}

impl Budgets {
    /// What there is to tell of the least counts of a row beside its budget, and whether that is too much.
    fn compare(&self, row: &Row) -> Vec<(String, bool)> {
        let Some(budget) = self.budgets.get(&row.name) else {
            return vec![(format!("{}: there is no budget", row.name), true)];
        };
        let most = if row.name.contains("durable") { WITH_LOG } else { INSTRUCTIONS };
        let bounds = [("instructions", most), ("system_calls", SYSTEM_CALLS)];
        let one = |(name, tolerance): (&str, f64)| {
            let count = Summary::of(row.values(name))?.min;
            let budget = budget.figures().get(name)?;
            let off = count / budget - 1.0;
            let (percent, most) = (100.0 * off, 100.0 * tolerance);
            let told = format!(
                "{}: {count:.3} {name} for each access, {percent:+.1} % of its budget of {budget:.3} (within {most:.0} %)",
                row.name
            );
            (off.abs() > tolerance).then_some((told, off > 0.0))
        };
        bounds.into_iter().filter_map(one).collect()
    }
}

/// The counts of these workloads, for each access, on one server under callgrind.
#[allow(clippy::cast_precision_loss)]
async fn count(workloads: &[Workload], program: &Path, credentials: &Path) -> anyhow::Result<Vec<Counts>> {
    let folder = servers::folder(&std::env::temp_dir())?;
    let profile = folder.path().join("callgrind");
    let mut before: Vec<OsString> = [
        "env",
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1",
        "FAKETIME=+0 x0.02",
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-systime=yes",
        "--fair-sched=yes",
    ]
    .map(Into::into)
    .into();
    before.push(format!("--dump-before={MARK}").into());
    before.push(format!("--callgrind-out-file={}", profile.display()).into());
    let log = servers::folder(folder.path())?;
    let launch = launch(workloads[0].peer, program, log.path(), credentials);
    // So long that no instance is dropped meanwhile.
    let launch = Launch { before, retention: "1h", ..launch };
    let mut fixture = Fixture::start(&launch, Shape::WIRE, 0).await?;
    let (pid, operators) = (fixture.server.pid(), fixture.server.operators()?.to_owned());
    let mut part = 0;
    // The counts since the mark before.
    let mut mark = async || {
        steps::idle(pid, 0).await?;
        Metrics::read(&operators).await?;
        part += 1;
        Counts::read(&profile.with_extension(part.to_string()))
    };
    let mut streams = open_all(&fixture.principals).await?;
    let mut counts = Vec::new();
    for &Workload { name, work, instances, .. } in workloads {
        fixture.ids = fixture.create(FIRST, FIRST).await?;
        streams = play(&fixture, streams, work).await?;
        let accesses = if work == Work::Create {
            mark().await?;
            for _ in 0..instances {
                fixture.create(1, 1).await?;
            }
            instances
        } else {
            fixture.ids = fixture.create(instances, instances).await?;
            mark().await?;
            streams = play(&fixture, streams, work).await.context(name)?;
            instances * Shape::WIRE.accesses()
        } as f64;
        let (all, page) = (mark().await?, mark().await?);
        counts.push(Counts {
            instructions: (all.instructions - page.instructions) / accesses,
            system_calls: (all.system_calls - page.system_calls) / accesses,
        });
    }
    Ok(counts)
}

/// Plays the instances of the fixture, in step, and judges them.
async fn play(
    fixture: &Fixture,
    streams: Vec<AttachStream>,
    work: Work,
) -> anyhow::Result<Vec<AttachStream>> {
    let (pid, clients) = (fixture.server.pid(), fixture.principals.len());
    match work {
        Work::Create => Ok(streams),
        Work::Unary => {
            let clients = clients * UNARY_IN_FLIGHT.min(fixture.ids.len());
            let steps = Steps::new(pid, clients)?;
            fixture.judge(&unary::play_all(fixture, UNARY_IN_FLIGHT, Some(steps)).await?)?;
            Ok(streams)
        }
        Work::Attach(in_flight) => {
            let play = Play { in_flight, steps: Some(Steps::new(pid, clients)?), ..Play::default() };
            let played = play_these(streams, &fixture.ids, 0, &play).await?;
            let (seen, streams): (Vec<_>, _) =
                played.into_iter().map(|played| (played.observations, played.stream)).unzip();
            fixture.judge(&seen)?;
            Ok(streams)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_the_totals_without_readings_of_the_clock() {
        let text = "events: Ir sysCount sysTime\nfn=(1) main\n10 5 1 7\ncfn=(2) clock_gettime@@GLIBC_2.17\n\
            calls=1 0\n10 4 2 7\nfn=(2)\n20 3 2\n+1 2\nfn=(3) write\n30 1 4\nfn=(2)\n* 1 1\ntotals: 12 8 7\n";
        assert_eq!(Counts::parse(text), Some(Counts { instructions: 12.0, system_calls: 5.0 }));
        assert_eq!(Counts::parse("nothing"), None);
    }

    #[test]
    fn a_count_is_told_if_it_is_too_far_from_its_budget_and_fails_only_above() {
        let budget = Counts { instructions: 1_000.0, system_calls: 1.0 };
        let all = [("unary".to_owned(), budget)].into();
        let budgets = Budgets { rustc: String::new(), profile: String::new(), rounds: 1, budgets: all };
        let compared = |instructions, system_calls| {
            let row = Row::once("unary", Counts { instructions, system_calls }.figures());
            budgets.compare(&row).into_iter().map(|(_, is_over)| is_over).collect::<Vec<_>>()
        };
        assert!(compared(1_019.0, 1.09).is_empty());
        assert_eq!(compared(1_021.0, 1.0), [true]);
        assert_eq!(compared(979.0, 1.6), [false, true]);
    }
}
