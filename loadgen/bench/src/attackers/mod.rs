//! Correct processes beside attackers at full speed: half of all principals attack.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- attackers --json attackers.json      every wire attack, all at once, newcomers
//! cargo run --release -p stickycas-bench -- attackers --attack flood --attack 'frame-flood(frames=100000)' --attack newcomers
//! ```
//!
//! **Who.** 16 correct processes and the coordinator that creates their instances; as many attackers and one
//! more, and the host, which creates the attackers' instances: of 36 principals 18 attack. Each proves by a
//! certificate who it is. The server has every bound at its default and enforces them. It and the correct
//! processes (this program) run on the first processor, the attackers in a program of their own on the
//! second.
//!
//! **Attackers are members of instances of their own** ([`mod@attack`]). Half of the members of one instance
//! would be too many for common-value validity (V3); and a Byzantine member may keep an instance waiting as
//! long as its patience lasts (F3), which is a matter of the protocol and not of the server that is measured
//! here. Attackers among the correct processes of one instance, within the bound on f, are in
//! `loadgen/harness/tests/wire_attacks.rs`.
//!
//! **What.** For each attack a fresh server, a quiet turn, the same turn beside a program that is as busy as
//! the attackers and never calls the server, which is what the machine itself costs, and then beside the
//! attackers: `--instances` that begin at a fixed rate, each from the beginning of its Create to the last of
//! its decisions ([`processes`]). All must decide alike, none later than D2 allows, and none be late; else
//! the exit code says so. The counts of the server prove an attack ([`WireAttack::is_shown_by`]), and for how
//! many of the attackers; an attack that they prove for none is a failure as well. Ratios (`p50_ratio`,
//! `p99_ratio`) are to the quiet turn and change no exit code. At last [`newcomer`].
//!
//! `detail` of a row: `reasons` of failures, `shown_by` (attackers by attack), `done` (the attackers' own
//! totals), `counted` (by the server meanwhile). `late`, `missed` and `wrong` count processes that began
//! late, that missed a later phase, and instances that are undecided or not valid; `server` and `attackers`
//! are shares of a processor.

mod attack;
mod newcomer;
mod processes;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{self, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::json;
use stickycas_client::{Client, Credentials};
use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;

pub(crate) use self::attack::{AttackerOptions, attack};
pub(crate) use self::newcomer::flood;
use self::processes::{Processes, Turn};
use crate::fixture::principal;
use crate::results::{Common, Figures, Results, Row, quantile};
use crate::servers::{self, COORDINATOR, HOST, Launch, make_credentials, peak_and_resident, runtime};
use crate::stopwatch::processor_time_of;

/// How long attackers attack before instances are measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Instances that are played before any are measured.
const FIRST: usize = 20;
/// Every attack at once.
const ALL: &str = "all";
const NEWCOMERS: &str = "newcomers";
/// The processor of the server and of the correct processes, and that of the attackers.
const OURS: &str = "0";
const THEIRS: &str = "1";

/// How to measure beside attackers.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Attacks, one after the other; by default each wire attack, then `all` at once, then `newcomers`.
    #[arg(long, value_name = "ATTACK")]
    attack: Vec<String>,
    /// Instances in each turn.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    instances: usize,
    /// Instances that begin in a second.
    #[arg(long, value_name = "N", default_value_t = 125.0)]
    rate: f64,
    /// Instances of attackers at a time, for each attack; one if all attack at once.
    #[arg(long, value_name = "N", default_value_t = 4)]
    lanes: usize,
    /// Correct processes.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(8..=16))]
    processes: u8,
    /// The patience of their instances; longer on a machine that has other work.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = stickycas_program::parse_duration)]
    patience: Duration,
    /// Newcomers, one after the other.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=125))]
    newcomers: u8,
    #[command(flatten)]
    common: Common,
}

impl Options {
    fn attackers(&self) -> usize {
        usize::from(self.processes) + 2
    }

    /// The attacks of each turn, with a name for them.
    fn attacks(&self) -> anyhow::Result<Vec<(String, Vec<WireAttack>)>> {
        let full = |kind| attack::at_full_speed(kind);
        let names: Vec<String> = if self.attack.is_empty() {
            let each = WireAttackKind::ALL.iter().map(|kind| kind.name());
            each.chain([ALL, NEWCOMERS]).map(str::to_owned).collect()
        } else {
            self.attack.clone()
        };
        let attacks = |name: &str| -> anyhow::Result<Vec<WireAttack>> {
            match name {
                ALL => return WireAttackKind::ALL.into_iter().map(full).collect(),
                NEWCOMERS => return Ok(Vec::new()),
                _ => {}
            }
            let given: WireAttack = name.parse()?;
            // A name alone is without an amount.
            let attack = if given.name() == name { full(given.kind())? } else { given };
            Ok(vec![attack])
        };
        names.into_iter().map(|name| Ok((name.clone(), attacks(&name)?))).collect()
    }
}

/// The principal of the attacker with this number, from 0.
fn attacker(number: usize) -> String {
    format!("attacker-{}", number + 1)
}

/// A client of this principal, whose credentials are in its folder in `clients`. It connects when it is first
/// used.
fn client(url: &str, clients: &Path, principal: &str) -> anyhow::Result<Client> {
    let credentials = Credentials::read(&clients.join(principal))?;
    Ok(Client::builder(url).credentials(credentials).connect_lazy()?)
}

/// Puts this program, and what it starts, on one processor; fails if there is no other one for the attackers.
fn keep_to_ours() -> anyhow::Result<()> {
    let there_are = std::thread::available_parallelism()?.get();
    ensure!(
        there_are >= 2,
        "there is {there_are} processor, and attackers need one of their own: run this where there are two"
    );
    let own = process::id().to_string();
    let pinned = Command::new("taskset").args(["--all-tasks", "--cpu-list", "--pid", OURS, &own]).output();
    let pinned = pinned.context("taskset")?;
    let why = String::from_utf8_lossy(&pinned.stderr);
    ensure!(pinned.status.success(), "processor {OURS} cannot be chosen: {}", why.trim());
    Ok(())
}

/// This program with other arguments, on the processor of the attackers. It works until its standard input
/// ends, and then says on standard output what it did. Killed when this is dropped.
struct Child(process::Child);

impl Child {
    fn start(arguments: &[String]) -> anyhow::Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", THEIRS]).arg(std::env::current_exe()?).args(arguments);
        Ok(Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("taskset")?))
    }

    /// Tells it to end, and returns what it says.
    fn finish(mut self) -> anyhow::Result<String> {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().context("no standard output")?.read_to_string(&mut said)?;
        let ended = self.0.wait()?;
        ensure!(ended.success(), "the attackers failed: {ended}");
        Ok(said)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// The subcommand `busy`: works on nothing until standard input ends.
pub(crate) fn busy() -> anyhow::Result<()> {
    std::thread::spawn(|| {
        loop {
            std::hint::spin_loop();
        }
    });
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let attacks = options.attacks()?;
    let program = servers::find(options.common.server.as_deref())?;
    keep_to_ours()?;
    let credentials = tempfile::tempdir()?;
    let correct = (0..options.processes.into()).map(principal);
    let all = correct.chain((0..options.attackers()).map(attacker)).chain([HOST.to_owned()]);
    make_credentials(credentials.path(), all)?;
    let launch = Launch::by_default(&program).certified(credentials.path()).with_tokens();
    let runtime = runtime(1)?;
    let (mut rows, mut are_clean) = (Vec::new(), true);
    for (name, attacks) in attacks {
        let (options, launch, named) = (options.clone(), launch.clone(), name.clone());
        let turn = runtime.spawn(async move {
            if attacks.is_empty() {
                return Ok((newcomer::turn(&launch, options.newcomers).await?, true));
            }
            beside(named, &attacks, &options, &launch).await
        });
        let (row, is_clean) = runtime.block_on(turn)?.with_context(|| name.clone())?;
        // At once: a run takes minutes.
        writeln!(std::io::stderr(), "{name}: {}", row.turns[0])?;
        let reasons = row.detail.as_ref().and_then(|detail| detail["reasons"].as_array());
        for reason in reasons.into_iter().flatten() {
            writeln!(std::io::stderr(), "  {reason}")?;
        }
        rows.push(row);
        are_clean &= is_clean;
    }
    let Options { instances, rate, processes, lanes, .. } = options;
    let conditions = json!({
        "instances": instances, "rate_per_s": rate, "processes": processes,
        "attackers": options.attackers(), "lanes": lanes,
    });
    Results { measured: "attackers", programs: BTreeMap::new(), conditions, rows }.report(&options.common)?;
    Ok(if are_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A quiet turn on a fresh server, one beside a busy program, and one beside these attacks; and whether all
/// went well.
async fn beside(
    name: String,
    attacks: &[WireAttack],
    options: &Options,
    launch: &Launch,
) -> anyhow::Result<(Row, bool)> {
    let server = launch.start().await?;
    let clients = server.clients.clone().context("the server has TLS")?;
    let coordinator = client(&server.url, &clients, COORDINATOR)?;
    let mut processes = Processes::connect(&server, options.processes, coordinator, options.patience).await?;
    processes.turn(FIRST, options.rate).await?;
    let quiet = processes.turn(options.instances, options.rate).await?;
    let child = Child::start(&["busy".to_owned()])?;
    let busy = processes.turn(options.instances, options.rate).await?;
    child.finish()?;
    let (peak_quiet, _) = peak_and_resident(server.pid())?;

    let host = client(&server.url, &clients, HOST)?;
    let before = counted(&host, options.attackers()).await?;
    let attackers = AttackerOptions {
        url: server.url.clone(),
        token_url: server.token_url.clone().context("the server has two listeners")?,
        clients,
        attackers: options.attackers(),
        lanes: if attacks.len() > 1 { 1 } else { options.lanes },
        attack: attacks.to_vec(),
    };
    let attackers = Child::start(&attackers.arguments())?;
    tokio::time::sleep(WARM_UP).await;
    let times = || anyhow::Ok([processor_time_of(server.pid())?, processor_time_of(attackers.0.id())?]);
    let (started, times_before) = (Instant::now(), times()?);
    let attacked = processes.turn(options.instances, options.rate).await?;
    let (wall, times_after) = (started.elapsed().as_secs_f64(), times()?);
    let done = tokio::task::spawn_blocking(move || attackers.finish()).await??;
    let done: attack::AllDone = serde_json::from_str(done.trim()).context("what the attackers say")?;
    let counted = counted(&host, options.attackers()).await?.since(&before);
    let shown_by = shown(attacks, &counted);
    let [server_share, attackers_share] =
        [0, 1].map(|at| times_after[at].saturating_sub(times_before[at]).as_secs_f64() / wall);
    let ratio = |at| {
        let [ours, quiet] = [&attacked, &quiet].map(|turn| quantile(&turn.latencies, at));
        Some(ours?.as_secs_f64() / quiet?.as_secs_f64())
    };
    let figures = Figures::default()
        .quantile_ms("quiet_p50_ms", &quiet.latencies, 0.5)
        .quantile_ms("busy_p50_ms", &busy.latencies, 0.5)
        .quantile_ms("p50_ms", &attacked.latencies, 0.5)
        .maybe("p50_ratio", ratio(0.5))
        .quantile_ms("quiet_p99_ms", &quiet.latencies, 0.99)
        .quantile_ms("busy_p99_ms", &busy.latencies, 0.99)
        .quantile_ms("p99_ms", &attacked.latencies, 0.99)
        .maybe("p99_ratio", ratio(0.99))
        .quantile_ms("busy_longest_ms", &busy.latencies, 1.0)
        .quantile_ms("longest_ms", &attacked.latencies, 1.0)
        .count("late", attacked.late as u64)
        .count("missed", attacked.missed as u64)
        .count("wrong", (attacked.undecided + attacked.not_valid) as u64)
        .count("shown_of", shown_by.values().min().copied().unwrap_or_default() as u64)
        .count("quiet_peak_bytes", peak_quiet)
        .count("peak_bytes", peak_and_resident(server.pid())?.0)
        .with("server", server_share)
        .with("attackers", attackers_share);
    let turns = [("quiet", quiet), ("busy", busy), ("attacked", attacked)];
    let is_clean =
        turns.iter().all(|(_, turn)| turn.is_clean()) && shown_by.values().all(|attackers| *attackers > 0);
    let reasons = |(of, turn): (&str, Turn)| {
        turn.reasons.into_iter().map(move |reason| format!("{of}: {reason}")).collect::<Vec<_>>()
    };
    let reasons: Vec<String> = turns.into_iter().flat_map(reasons).collect();
    let mut row = Row::once(name, figures);
    row.detail =
        Some(json!({"reasons": reasons, "shown_by": shown_by, "done": done, "counted": counted.all}));
    Ok((row, is_clean))
}

/// For how many attackers the counts of the server show each attack.
fn shown(attacks: &[WireAttack], counted: &RunCounts) -> BTreeMap<String, usize> {
    let by =
        |attack: &WireAttack| counted.processes.keys().filter(|it| attack.is_shown_by(**it, counted)).count();
    attacks.iter().map(|attack| (attack.name().to_owned(), by(attack))).collect()
}

/// The server's counts, of everything and of each attacker: by its number, as if it were a process.
async fn counted(host: &Client, attackers: usize) -> anyhow::Result<RunCounts> {
    let named = |counts: &stickycas_client::counts::Counts| -> Counts {
        let refusals = counts.refusals.iter().map(|(reason, count)| (*reason, *count));
        refusals.chain(counts.others()).map(|(name, count)| (name.to_owned(), count)).collect()
    };
    let principals: Vec<String> = (0..attackers).map(attacker).collect();
    let counted = host.counts(&principals).await?;
    let processes = ProcessId::all(u32::try_from(attackers)?)
        .zip(&principals)
        .map(|(process, name)| (process, counted.principals.get(name).map(named).unwrap_or_default()));
    Ok(RunCounts { all: named(&counted.all), processes: processes.collect() })
}
