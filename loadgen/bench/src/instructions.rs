//! Server instructions and system calls for each access, counted by `valgrind --tool=callgrind` and compared
//! with budgets.
//!
//! ```text
//! cargo run -p stickycas-bench -- instructions                 the counts
//! cargo run -p stickycas-bench -- instructions --check         fails when one is too far above its budget
//! cargo run -p stickycas-bench -- instructions --set           writes the counts as new budgets
//! ```
//!
//! The workloads are those of [`crate::wire`], on a server with one worker. Each is played with two numbers
//! of instances, each time on a server of its own under callgrind; what the larger one costs more, divided by
//! its accesses more, is the cost of an access: start, connections, handshakes and the end of a server fall
//! out; the creation of instances, their hellos and decisions are in it. Valgrind runs one thread of the
//! server at a time, some fifty times slower than without. So that counts repeat all the same, whatever else
//! the machine does, all clients send in step ([`crate::wire::steps`]), and the clock of the server goes
//! fifty times slower too, by libfaketime: else every client seems to take more than its share of the
//! processor, and waits for turns that the time decides. Readings of the clock are no system calls in use and
//! are not counted: valgrind hides the kernel's shared page from the program.
//!
//! Counts depend on the compiler, the profile and, by code that is chosen for it, on the processor. So
//! `budgets.toml` names the compiler and the profile, and with others `--check` skips (exit code 77), unless
//! `CI` is set, where it fails. A workload that is above a budget is counted twice more, and its least counts
//! decide.

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
use crate::results::{Common, Figures, Results, Row};
use crate::servers::{self, Launch, runtime};
use crate::wire::attach::{Play, play_all};
use crate::wire::codec::HandWritten;
use crate::wire::steps::Steps;
use crate::wire::{Server, UNARY_IN_FLIGHT, credentials, launch, unary};
use crate::workload::Shape;

/// What cannot be measured here.
const SKIPPED: u8 = 77;
/// How far counts may be above their budgets, if the file gives no other bound.
const INSTRUCTIONS: f64 = 0.02;
const SYSTEM_CALLS: f64 = 0.5;
/// The clock of the server, below `/usr/lib/ARCHITECTURE`.
const FAKETIME: &str = "faketime/libfaketimeMT.so.1";
const BUDGETS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/budgets.toml");

/// What to count.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Fails when a count is above its budget.
    #[arg(long)]
    check: bool,
    /// Writes the counts as new budgets.
    #[arg(long, conflicts_with = "check")]
    set: bool,
    /// The file of the budgets.
    #[arg(long, value_name = "FILE", default_value = BUDGETS)]
    budgets: PathBuf,
    /// How often each workload is counted.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only these workloads, by name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    #[command(flatten)]
    common: Common,
}

/// A workload: instances in flight, 0 over unary calls, and the fewer and the more instances.
#[derive(Clone, Copy)]
struct Workload {
    name: &'static str,
    server: Server,
    in_flight: usize,
    instances: [usize; 2],
}

const WORKLOADS: [Workload; 5] = [
    Workload { name: "unary", server: Server::Memory, in_flight: 0, instances: [16, 48] },
    Workload { name: "attach/16", server: Server::Memory, in_flight: 16, instances: [16, 80] },
    Workload { name: "attach/64", server: Server::Memory, in_flight: 64, instances: [64, 128] },
    Workload { name: "attach-durable/64", server: Server::Durable, in_flight: 64, instances: [64, 128] },
    Workload { name: "attach-tls/64", server: Server::Tls, in_flight: 64, instances: [64, 128] },
];

/// The file of the budgets.
#[derive(Debug, Serialize, Deserialize)]
struct Budgets {
    /// The compiler by whose code they were counted, as it prints its version.
    rustc: String,
    /// The profile of the server.
    profile: String,
    /// By workload: instructions and system calls for each access.
    budgets: BTreeMap<String, Budget>,
}

/// The counts of a workload, and how far its instructions may be above them if they spread more than those of
/// others.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Budget {
    #[serde(flatten)]
    counts: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<f64>,
}

/// Of one server, or for each access.
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
    let program = servers::find(options.common.server.as_deref())?;
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
    let known = WORKLOADS.map(|workload| workload.name);
    for only in &options.only {
        ensure!(
            known.contains(&only.as_str()),
            "--only: no workload '{only}'; there are: {}",
            known.join(", ")
        );
    }
    let credentials = credentials()?;
    let count = |workload| runtime(2)?.block_on(per_access(workload, &program, credentials.path()));
    let (mut rows, mut over) = (Vec::new(), Vec::new());
    for workload in WORKLOADS
        .into_iter()
        .filter(|it| options.only.is_empty() || options.only.contains(&it.name.to_owned()))
    {
        let mut row = Row { name: workload.name.to_owned(), ..Row::default() };
        for _ in 0..options.rounds {
            row.turns.push(count(workload)?.figures());
        }
        if let Some(budgets) = &budgets {
            let budget = *budgets.budgets.get(workload.name).context("a workload without a budget")?;
            for _ in 0..2 {
                if !compare(&row, budget).iter().any(|(_, is_over)| *is_over) {
                    break;
                }
                row.turns.push(count(workload)?.figures());
            }
            for (told, is_over) in compare(&row, budget) {
                writeln!(std::io::stderr(), "{told}")?;
                over.extend(is_over.then_some(told));
            }
        }
        rows.push(row);
    }
    if options.set {
        let mut before = read(&options.budgets).map(|it| it.budgets).unwrap_or_default();
        let least = |row: &Row| {
            let least = |name| row.least(name).map(|value| (value * 1e3).round() / 1e3).context("no count");
            let counts =
                Counts { instructions: least("instructions")?.round(), system_calls: least("system_calls")? };
            let bound = before.get(&row.name).and_then(|budget| budget.bound);
            anyhow::Ok((row.name.clone(), Budget { counts, bound }))
        };
        let new = rows.iter().map(least).collect::<anyhow::Result<Vec<_>>>()?;
        before.extend(new);
        let budgets = before;
        let budgets = Budgets { rustc: rustc.to_owned(), profile: profile.into_owned(), budgets };
        let head = "# Budgets of `stickycas-bench instructions`, for each access; written by its --set.\n";
        std::fs::write(&options.budgets, format!("{head}{}", toml::to_string(&budgets)?))?;
    }
    let conditions =
        json!({"budgets": budgets, "bound": INSTRUCTIONS, "bound_of_system_calls": SYSTEM_CALLS});
    Results { measured: "instructions", programs: BTreeMap::new(), conditions, rows }
        .report(&options.common)?;
    if over.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let how = "if that is the price of something wanted: stickycas-bench instructions --set, and say why in the commit";
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
fn compare(row: &Row, budget: Budget) -> Vec<(String, bool)> {
    let figures = budget.counts.figures();
    let one = |(name, tolerance): (&str, f64)| {
        let (count, budget) = (row.least(name)?, figures.get(name)?);
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
    let bounds = [("instructions", budget.bound.unwrap_or(INSTRUCTIONS)), ("system_calls", SYSTEM_CALLS)];
    bounds.into_iter().filter_map(one).collect()
}

/// The counts of one access of a workload.
#[allow(clippy::cast_precision_loss)]
async fn per_access(workload: Workload, program: &Path, credentials: &Path) -> anyhow::Result<Counts> {
    let [fewer, more] = workload.instances;
    let (few, many) = (
        played(workload, fewer, program, credentials).await?,
        played(workload, more, program, credentials).await?,
    );
    let accesses = ((more - fewer) * Shape::WIRE.accesses()) as f64;
    Ok(Counts {
        instructions: (many.instructions - few.instructions) / accesses,
        system_calls: (many.system_calls - few.system_calls) / accesses,
    })
}

/// The counts of a server from its start to its end, which has served so many instances.
async fn played(
    workload: Workload,
    instances: usize,
    program: &Path,
    credentials: &Path,
) -> anyhow::Result<Counts> {
    let Workload { in_flight, server, name, .. } = workload;
    let folder = servers::folder(&std::env::temp_dir())?;
    let profile = folder.path().join("callgrind");
    let valgrind = [
        "env",
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketimeMT.so.1",
        "FAKETIME=+0 x0.02",
        "valgrind",
        "--quiet",
        "--tool=callgrind",
        "--collect-systime=yes",
        "--fair-sched=yes",
    ];
    let mut valgrind: Vec<OsString> = valgrind.iter().map(Into::into).collect();
    let mut out = OsString::from("--callgrind-out-file=");
    out.push(&profile);
    valgrind.push(out);
    let log = servers::folder(folder.path())?;
    let launch = launch(server, Launch::new(program), log.path(), credentials);
    let fixture = Fixture::start(&launch.under(valgrind), Shape::WIRE, instances).await?;
    let pid = fixture.server.pid();
    let seen = match in_flight {
        0 => {
            let steps = Steps::new(pid, UNARY_IN_FLIGHT * fixture.principals.len())?;
            unary::play_all(&fixture, UNARY_IN_FLIGHT, Some(&steps)).await
        }
        in_flight => {
            let steps = Some(Steps::new(pid, fixture.principals.len())?);
            play_all::<HandWritten>(&fixture, Play { in_flight, steps, ..Play::default() }).await
        }
    };
    fixture.judge(&seen.with_context(|| name.to_owned())?)?;
    let Fixture { server, principals, creator, .. } = fixture;
    // A server that is stopped waits for its clients.
    drop((principals, creator));
    tokio::task::block_in_place(|| server.stop())?;
    Counts::read(&profile)
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
        let counts = Counts { instructions: 1_000.0, system_calls: 1.0 };
        let compared = |instructions, system_calls, bound| {
            let row = Row::once("unary", Counts { instructions, system_calls }.figures());
            compare(&row, Budget { counts, bound })
                .into_iter()
                .map(|(_, is_over)| is_over)
                .collect::<Vec<_>>()
        };
        assert!(compared(1_019.0, 1.09, None).is_empty());
        assert_eq!(compared(1_021.0, 1.0, None), [true]);
        assert!(compared(1_021.0, 1.0, Some(0.05)).is_empty());
        assert_eq!(compared(979.0, 1.6, None), [false, true]);
    }
}
