//! Server instructions and system calls for each access, counted by `valgrind --tool=callgrind` and compared
//! with budgets.
//!
//! The workloads are those of [`crate::wire`], with the hellos and decisions of the instances, and the
//! creation of instances, one after the other. Those with the same server are counted on one, which has one
//! worker; a few instances are played first, for all that is made once. Callgrind writes the counts down
//! whenever the server is asked for its metrics, and begins anew; so the counts of a workload lie between two
//! such calls, less the cost of a call.
//!
//! Valgrind runs one thread of the server at a time, some fifty times slower than without. So that counts
//! repeat all the same, whatever else the machine does, all clients send in step ([`crate::wire::steps`]),
//! and the clock of the server goes fifty times slower too, by libfaketime: else every client seems to take
//! more than its share of the processor, and waits for turns that the time decides. Readings of the clock are
//! no system calls in use and are not counted: valgrind hides the kernel's shared page from the program.
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
/// How far counts may be above their budgets.
const INSTRUCTIONS: f64 = 0.02;
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
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let program = servers::find(options.rounds.common.server.as_deref())?;
    let profile = program.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let rustc = env!("STICKYCAS_BENCH_RUSTC");
    let budgets = if options.check { Some(read(&options.budgets)?) } else { None };
    if let Some(Budgets { rustc: theirs, profile: counted, .. }) = &budgets
        && (theirs, counted.as_str()) != (&rustc.to_owned(), &*profile)
    {
        let why = format!(
            "{} is for {theirs}, profile {counted}; this is {rustc}, profile {profile}",
            options.budgets.display()
        );
        return skip(&why);
    }
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        return skip("there is no valgrind (Debian: apt-get install valgrind)");
    }
    let libraries = std::fs::read_dir("/usr/lib")?;
    if !libraries.flatten().any(|folder| folder.path().join(FAKETIME).exists()) {
        return skip("there is no libfaketime (Debian: apt-get install libfaketime)");
    }
    let wanted = options.rounds.wanted(WORKLOADS)?;
    let credentials = credentials()?;
    let (mut rows, mut over) = (Vec::new(), Vec::new());
    for workloads in wanted.chunk_by(|one, next| one.peer == next.peer) {
        let mut own: Vec<Row> =
            workloads.iter().map(|it| Row { name: it.name.to_owned(), ..Row::default() }).collect();
        let add = |rows: &mut [Row]| {
            let counts = runtime(2)?.block_on(count(workloads, &program, credentials.path()))?;
            rows.iter_mut().zip(counts).for_each(|(row, counts)| row.turns.push(counts.figures()));
            anyhow::Ok(())
        };
        for _ in 0..options.rounds.rounds {
            add(&mut own)?;
        }
        if let Some(Budgets { budgets, .. }) = &budgets {
            let budget = |row: &Row| budgets.get(&row.name).copied().context("a workload without a budget");
            let compared = |rows: &[Row]| {
                let all = rows.iter().map(|row| anyhow::Ok(compare(row, budget(row)?)));
                anyhow::Ok(all.collect::<anyhow::Result<Vec<_>>>()?.concat())
            };
            for _ in 0..2 {
                if compared(&own)?.iter().any(|(_, is_over)| *is_over) {
                    add(&mut own)?;
                }
            }
            for (told, is_over) in compared(&own)? {
                writeln!(std::io::stderr(), "{told}")?;
                over.extend(is_over.then_some(told));
            }
        }
        rows.extend(own);
    }
    if options.set {
        let mut all = read(&options.budgets).map(|it| it.budgets).unwrap_or_default();
        for row in &rows {
            let median = |name| Summary::of(row.values(name)).map(|it| it.median).context("no count");
            let (instructions, system_calls) = (median("instructions")?.round(), median("system_calls")?);
            let system_calls = (system_calls * 1e3).round() / 1e3;
            all.insert(row.name.clone(), Counts { instructions, system_calls });
        }
        let (rustc, rounds) = (rustc.to_owned(), options.rounds.rounds);
        let budgets = Budgets { rustc, profile: profile.into_owned(), rounds, budgets: all };
        let head = "# Budgets of `stickycas-bench instructions`, for each access; written by its --set.\n";
        std::fs::write(&options.budgets, format!("{head}{}", toml::to_string(&budgets)?))?;
    }
    let conditions =
        json!({"budgets": budgets, "bound": INSTRUCTIONS, "bound_of_system_calls": SYSTEM_CALLS});
    let done = options.rounds.report("instructions", None, conditions, rows)?;
    if over.is_empty() {
        return Ok(done);
    }
    let how = "if that is the price of something wanted: stickycas-bench instructions --set --rounds 5, and say why in the commit";
    writeln!(std::io::stderr(), "{} above budget; {how}", over.len())?;
    Ok(ExitCode::FAILURE)
}

fn read(path: &Path) -> anyhow::Result<Budgets> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    toml::from_str(&text).with_context(|| path.display().to_string())
}

/// Nothing can be compared: a failure where all that it needs is given.
fn skip(why: &str) -> anyhow::Result<ExitCode> {
    ensure!(std::env::var_os("CI").is_none(), "{why}");
    writeln!(std::io::stderr(), "skipped: {why}")?;
    Ok(SKIPPED.into())
}

/// What there is to tell of the least counts of a row beside its budget, and whether that is too much.
fn compare(row: &Row, budget: Counts) -> Vec<(String, bool)> {
    let bounds = [("instructions", INSTRUCTIONS), ("system_calls", SYSTEM_CALLS)];
    let one = |(name, tolerance): (&str, f64)| {
        let count = Summary::of(row.values(name))?.min;
        let budget = budget.figures().get(name)?;
        let off = count / budget - 1.0;
        if off.abs() <= tolerance {
            return None;
        }
        let (percent, most) = (100.0 * off, 100.0 * tolerance);
        let told = format!(
            "{}: {count:.3} {name} for each access, {percent:+.1} % of its budget of {budget:.3} (within {most:.0} %)",
            row.name
        );
        Some((told, off > 0.0))
    };
    bounds.into_iter().filter_map(one).collect()
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
        steps::idle(pid).await?;
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
        let compared = |instructions, system_calls| {
            let row = Row::once("unary", Counts { instructions, system_calls }.figures());
            compare(&row, budget).into_iter().map(|(_, is_over)| is_over).collect::<Vec<_>>()
        };
        assert!(compared(1_019.0, 1.09).is_empty());
        assert_eq!(compared(1_021.0, 1.0), [true]);
        assert_eq!(compared(979.0, 1.6), [false, true]);
    }
}
