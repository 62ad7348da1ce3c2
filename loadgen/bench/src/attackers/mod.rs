//! Correct processes beside attackers at full speed: half of all principals attack.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- attackers                       every wire attack, and then all at once
//! cargo run --release -p stickycas-bench -- attackers --attack flood --attack all
//! cargo run --release -p stickycas-bench -- attackers --attack 'flood(frames=100000)' --json attackers.json
//! ```
//!
//! **Who.** 16 correct processes and the coordinator that creates their instances; as many attackers and one
//! more, and the host, which creates the attackers' instances: of 36 principals 18 attack. Each proves by a
//! certificate who it is. The server has every bound at its default and enforces them. It is a program of its
//! own, arranged as `stickycas-server` is. It and the correct processes (this program) run on the first
//! processor, the attackers in a program of their own on the second.
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
//! many of the attackers; an attack that they prove for none is a failure as well. Ratios are to the quiet
//! turn and change no exit code.
//!
//! In the raw results: `instances`, `rate_per_s`, `processes`, `attackers`, `lanes`, `bound_bytes` (see
//! [`server::shared_bytes_bound`]), and for each of `attacks` its `name`, `quiet_us`, `busy_us` and
//! `attacked_us` by instance, `p50_ratio`, `p99_ratio`, the counts `undecided`, `late`, `missed` and
//! `not_valid` with `reasons`; `shown_by` (attackers by attack), `done` (the attackers' own totals),
//! `counted` (by the server meanwhile), `peak_quiet_bytes`, `peak_bytes`, and the shares of a processor that
//! the `server` and the `attackers` took in the attacked turn.

mod attack;
mod child;
mod newcomer;
mod processes;
mod processors;
mod report;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use stickycas_client::Client;
use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use stickycas_model::counts::{Counts, RunCounts};
use stickycas_model::types::ProcessId;

pub(crate) use self::attack::{AttackerOptions, attack};
use self::child::Child;
pub(crate) use self::newcomer::{FloodOptions, Options as NewcomerOptions, flood, run as newcomer};
use self::processes::Processes;
pub(crate) use self::processors::busy;
use self::report::{Attacked, Results};
pub(crate) use self::server::serve as serve_attacked;
use self::server::{AllCredentials, AttackedServer, HOST, attacker, client};
use crate::fixture::principal;
use crate::serve::{self, COORDINATOR};
use crate::stopwatch::processor_time_of;

/// How long attackers attack before instances are measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Instances that are played before any are measured.
const FIRST: usize = 20;
/// Every attack at once.
const ALL: &str = "all";

/// How to measure beside attackers.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Attacks, one after the other; by default each wire attack, and then `all` at once.
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
    /// Write every sample there, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Options {
    fn attackers(&self) -> usize {
        usize::from(self.processes) + 2
    }

    /// The attacks of each pair of turns, with a name for them.
    fn pairs(&self) -> anyhow::Result<Vec<(String, Vec<WireAttack>)>> {
        let full = |kind| attack::at_full_speed(kind);
        let names: Vec<String> = if self.attack.is_empty() {
            WireAttackKind::ALL.iter().map(|kind| kind.name().to_owned()).chain([ALL.to_owned()]).collect()
        } else {
            self.attack.clone()
        };
        let attacks = |name: &str| -> anyhow::Result<Vec<WireAttack>> {
            if name == ALL {
                return WireAttackKind::ALL.into_iter().map(full).collect();
            }
            let given: WireAttack = name.parse()?;
            // A name alone is without an amount.
            let attack = if given.name() == name { full(given.kind())? } else { given };
            Ok(vec![attack])
        };
        names.into_iter().map(|name| Ok((name.clone(), attacks(&name)?))).collect()
    }
}

/// Measures, and prints the results.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let pairs = options.pairs()?;
    processors::keep_to_ours()?;
    let correct = (0..usize::from(options.processes)).map(principal);
    let credentials = AllCredentials::make(correct.chain((0..options.attackers()).map(attacker)))?;
    let runtime = serve::runtime(1)?;
    let mut results =
        Results::new(options.instances, options.rate, options.processes, options.attackers(), options.lanes);
    let credentials = std::sync::Arc::new(credentials);
    for (name, attacks) in pairs {
        let (options, credentials) = (options.clone(), credentials.clone());
        let named = name.clone();
        let pair = runtime.spawn(async move { pair(named, &attacks, &options, &credentials).await });
        let attacked = runtime.block_on(pair)?.with_context(|| name.clone())?;
        attacked.tell()?;
        results.attacks.push(attacked);
    }
    results.print()?;
    let written = |json: &PathBuf| crate::results::write(json, "attackers", &BTreeMap::new(), &results);
    options.json.as_ref().map_or(Ok(()), written)?;
    Ok(if results.are_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A quiet turn on a fresh server, one beside a busy program, and one beside these attacks.
async fn pair(
    name: String,
    attacks: &[WireAttack],
    options: &Options,
    credentials: &AllCredentials,
) -> anyhow::Result<Attacked> {
    let server = AttackedServer::start(credentials)?;
    let clients = credentials.clients();
    let roster = (0..usize::from(options.processes)).map(principal).collect();
    let coordinator = client(&server.url, &clients, COORDINATOR)?;
    let mut processes =
        Processes::connect(&server.url, &clients, roster, coordinator, options.patience).await?;
    processes.turn(FIRST, options.rate).await?;
    let quiet = processes.turn(options.instances, options.rate).await?;
    let mut command = processors::attackers_program()?;
    let busy = Child::start(command.arg("busy").stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    let beside_busy = processes.turn(options.instances, options.rate).await?;
    busy.finish()?;
    let peak_quiet = server.peak()?;

    let host = client(&server.url, &clients, HOST)?;
    let before = counted(&host, options.attackers()).await?;
    let lanes = if attacks.len() > 1 { 1 } else { options.lanes };
    let mut command = processors::attackers_program()?;
    command.args(attack::arguments(&server, &clients, options.attackers(), lanes, attacks));
    let attackers = Child::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    tokio::time::sleep(WARM_UP).await;
    let times = || anyhow::Ok((server.processor_time()?, processor_time_of(attackers.pid())?));
    let (started, times_before) = (Instant::now(), times()?);
    let attacked = processes.turn(options.instances, options.rate).await?;
    let (wall, times_after) = (started.elapsed(), times()?);
    let done = tokio::task::spawn_blocking(move || attackers.finish()).await??;
    let done: attack::AllDone = serde_json::from_str(done.trim()).context("what the attackers say")?;
    let counted = counted(&host, options.attackers()).await?.since(&before);
    let share =
        |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / wall.as_secs_f64();
    Ok(Attacked::new(
        name,
        [quiet, beside_busy, attacked],
        shown(attacks, &counted),
        done,
        &counted,
        [peak_quiet, server.peak()?],
        [share(times_before.0, times_after.0), share(times_before.1, times_after.1)],
    ))
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
