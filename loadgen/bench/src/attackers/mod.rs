//! Correct processes beside attackers at full speed, half of all principals: see
//! `docs/internals/performance.md`.
//!
//! The server has every bound at its default and enforces them. It and the correct processes (this program)
//! run on the first processor, the attackers in a program of their own on the second. Attackers are members
//! of instances of their own ([`mod@attack`]): half of the members of one instance would be too many (V3),
//! and a Byzantine member may keep an instance waiting as long as its patience lasts (F3).
//!
//! For each attack a fresh server, a quiet turn, and then the same beside the attackers: a load of
//! `--instances` that begin at a fixed rate ([`stickycas_load`]), each timed from its planned start to the
//! last of its decisions and judged. All must be valid and take less than the patience of a process, so that
//! none was late (F3), and the counts of the server must prove the attack ([`WireAttack::is_shown_by`]); else
//! the exit code says so. At last [`newcomer`].
//!
//! `detail` of a row: `reasons` of failures, `shown_by` (attackers by attack), `done` (the attackers' own
//! totals), `counted` (by the server meanwhile). `wrong` counts instances that did not end or are not valid;
//! `server` and `attackers` are shares of a processor.

mod attack;
mod newcomer;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::{self, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde_json::{Value, json};
use stickycas_client::Client;
use stickycas_harness::run::ServerHandle;
use stickycas_load::figures::Latency;
use stickycas_load::measure::Measure;
use stickycas_load::profile::Flags;
use stickycas_load::{LoadOutcome, Profile};
use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;
use tokio::sync::Notify;

use self::attack::Orders;
pub(crate) use self::attack::attack;
pub(crate) use self::newcomer::flood;
use crate::results::{Common, Figures, Row};
use crate::servers::{
    self, COORDINATOR, HOST, Launch, Program, make_credentials, peak_and_resident, runtime,
};
use crate::stopwatch::processor_time_of;

/// How long instances begin before any are measured. Attackers begin a second before.
const WARM_UP: Duration = Duration::from_secs(2);
const LEAD: Duration = Duration::from_secs(1);
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
    #[arg(long, value_name = "N", default_value_t = 600)]
    instances: usize,
    /// Instances that begin in a second: at most half of what the processor could do, since more would
    /// measure overload.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
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
/// ends, and then says on standard output what it did.
fn start(arguments: &[&str]) -> anyhow::Result<Program> {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", THEIRS]).arg(std::env::current_exe()?).args(arguments);
    Ok(Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("taskset")?))
}

/// Tells it to end, and returns what it says.
fn finish(mut program: Program) -> anyhow::Result<String> {
    drop(program.0.stdin.take());
    let mut said = String::new();
    program.0.stdout.take().context("no standard output")?.read_to_string(&mut said)?;
    let ended = program.0.wait()?;
    ensure!(ended.success(), "the attackers failed: {ended}");
    Ok(said)
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let attacks = options.attacks()?;
    let program = servers::find(options.common.server.as_deref())?;
    keep_to_ours()?;
    let credentials = tempfile::tempdir()?;
    let correct = (1..=options.processes).map(|number| format!("process-1-{number}"));
    let all = correct.chain((0..options.attackers()).map(attacker)).chain([HOST.to_owned()]);
    make_credentials(credentials.path(), all)?;
    let launch = Launch {
        lifted: false,
        credentials: Some(credentials.path().to_owned()),
        more: "--token-listen 127.0.0.1:0 --token-issuer bench --token-audience bench".to_owned(),
        ..Launch::new(&program)
    };
    let runtime = runtime(1)?;
    let mut rows = Vec::new();
    for (name, attacks) in attacks {
        let turn = async {
            match attacks.as_slice() {
                [] => newcomer::turn(&launch, options.newcomers).await,
                attacks => beside(&name, attacks, options, &launch).await,
            }
        };
        let row = runtime.block_on(turn).with_context(|| name.clone())?;
        // At once: a run takes minutes.
        writeln!(std::io::stderr(), "{name}: {}", row.turns[0])?;
        failures(&row).try_for_each(|reason| writeln!(std::io::stderr(), "  {reason}"))?;
        rows.push(row);
    }
    let Options { instances, rate, processes, lanes, .. } = options;
    let conditions = json!({
        "instances": instances, "rate_per_s": rate, "processes": processes,
        "attackers": options.attackers(), "lanes": lanes,
    });
    let are_clean = rows.iter().all(|row| failures(row).next().is_none());
    let done = options.common.report("attackers", None, conditions, rows)?;
    Ok(if are_clean { done } else { ExitCode::FAILURE })
}

/// What went wrong beside an attack.
fn failures(row: &Row) -> impl Iterator<Item = &Value> {
    row.detail.iter().filter_map(|detail| detail["reasons"].as_array()).flatten()
}

/// The results of a turn.
struct Turn {
    outcome: LoadOutcome,
    latency: Latency,
}

impl Turn {
    /// Plays the instances. `begun` is notified when the first of those that do not count have begun.
    async fn play(server: &ServerHandle, options: &Options, begun: &Notify) -> anyhow::Result<Self> {
        let Options { processes, rate, instances, patience, .. } = options;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let all = (rate * WARM_UP.as_secs_f64()) as usize + instances;
        let profile = format!(
            "name = 'correct'\n\
             instance = {{ processes = {processes}, warp_size = 2, read_size = 8, patience = '{patience:?}' }}\n\
             load = {{ rate = {rate:.3}, instances = {all}, warm_up = '{WARM_UP:?}', principal_prefix = 'process', \
             history_sample = 0.0, stall = '60s', drain = '60s' }}"
        );
        let profile = Profile::parse("the load", &profile, &Flags::default())?;
        let stop = std::future::pending();
        let outcome = stickycas_load::run(server, &profile, stop, |_| begun.notify_one()).await?;
        let latency = outcome.figures.latency(Measure::Instance).copied().unwrap_or_default();
        Ok(Self { outcome, latency })
    }

    /// Instances that did not end, or are not valid.
    fn wrong(&self) -> u64 {
        let judged = &self.outcome.judged;
        judged.started() - judged.valid
    }
}

/// A quiet turn on a fresh server, and one beside these attacks.
#[allow(clippy::cast_precision_loss)]
async fn beside(
    name: &str,
    attacks: &[WireAttack],
    options: &Options,
    launch: &Launch,
) -> anyhow::Result<Row> {
    let server = launch.start().await?;
    let handle = ServerHandle::open_with(&server.url, COORDINATOR, server.identities.clone()).await?;
    let quiet = Turn::play(&handle, options, &Notify::new()).await?;
    let (peak_quiet, _) = peak_and_resident(server.pid())?;

    let host = server.client(HOST)?;
    let before = counted(&host, options.attackers()).await?;
    let begun = Notify::new();
    let (attacked, attackers) = tokio::try_join!(Turn::play(&handle, options, &begun), async {
        // The correct processes are connected.
        begun.notified().await;
        let orders = Orders {
            url: server.url.clone(),
            token_url: server.token_url.clone().context("the server has two listeners")?,
            identities: server.identities.folder("").context("the server has TLS")?,
            attackers: options.attackers(),
            lanes: if attacks.len() > 1 { 1 } else { options.lanes },
            attacks: attacks.to_vec(),
        };
        let child = start(&["attack", &serde_json::to_string(&orders)?])?;
        tokio::time::sleep(LEAD).await;
        let times = [processor_time_of(server.pid())?, processor_time_of(child.0.id())?];
        anyhow::Ok((child, Instant::now(), times))
    })?;
    let (child, started, times_before) = attackers;
    let wall = started.elapsed().as_secs_f64();
    let times_after = [processor_time_of(server.pid())?, processor_time_of(child.0.id())?];
    let done = tokio::task::spawn_blocking(move || finish(child)).await??;
    let done: attack::AllDone = serde_json::from_str(done.trim()).context("what the attackers say")?;
    let counted = counted(&host, options.attackers()).await?.since(&before);
    let shown_by = shown(attacks, &counted);
    let [server_share, attackers_share] =
        [0, 1].map(|at| times_after[at].saturating_sub(times_before[at]).as_secs_f64() / wall);
    let ms = |nanos: u64| nanos as f64 / 1e6;
    let turns = [("quiet", &quiet), ("attacked", &attacked)];
    let figures = Figures::default()
        .with("quiet_p50_ms", ms(quiet.latency.p50))
        .with("p50_ms", ms(attacked.latency.p50))
        .with("p50_ratio", attacked.latency.p50 as f64 / quiet.latency.p50 as f64)
        .with("quiet_p99_ms", ms(quiet.latency.p99))
        .with("p99_ms", ms(attacked.latency.p99))
        .with("p99_ratio", attacked.latency.p99 as f64 / quiet.latency.p99 as f64)
        .with("quiet_longest_ms", ms(quiet.latency.max))
        .with("longest_ms", ms(attacked.latency.max))
        .count("wrong", turns.iter().map(|(_, turn)| turn.wrong()).sum())
        .count("shown_of", shown_by.values().min().copied().unwrap_or_default() as u64)
        .count("quiet_peak_bytes", peak_quiet)
        .count("peak_bytes", peak_and_resident(server.pid())?.0)
        .with("server", server_share)
        .with("attackers", attackers_share);
    let mut reasons = Vec::new();
    for (of, turn) in turns {
        reasons.extend(turn.outcome.judged.reasons.iter().map(|reason| format!("{of}: {reason}")));
        reasons.extend(turn.outcome.messages.values().map(|message| format!("{of}: {message}")));
        if turn.wrong() > 0 {
            reasons.push(format!("{of}: {}", turn.outcome.judged.line()));
        }
        if Duration::from_nanos(turn.latency.max) >= options.patience {
            reasons.push(format!("{of}: an instance took as long as the patience of a process"));
        }
    }
    let not_shown = shown_by.iter().filter(|(_, attackers)| **attackers == 0);
    reasons.extend(not_shown.map(|(attack, _)| format!("{attack}: the counts of the server do not show it")));
    let detail = json!({"reasons": reasons, "shown_by": shown_by, "done": done, "counted": counted.all});
    Ok(Row { detail: Some(detail), ..Row::once(name, figures) })
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
