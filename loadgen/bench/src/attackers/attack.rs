//! The attackers: a program that carries out wire attacks as fast as it can, over and over, until standard
//! input ends.
//!
//! For each attack there are some instances of attackers at a time (`--lanes`); each attacker attacks in one
//! of each lane, on a connection of its own, plays the rest of its process as [`stickycas_attacks::play`]
//! does, and goes on to the next instance without a pause.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use stickycas_attacks::{AttackReport, Targets};
use stickycas_client::{Client, InstanceId, Patience};
use stickycas_harness::run::Identities;
use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::attacker;
use crate::servers::{HOST, runtime};

/// How long an attacker that stays away keeps the others of its instance waiting.
const PATIENCE: Duration = Duration::from_millis(100);
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after an attack that could not even begin: an attacker whose connections are refused has nothing
/// else to do.
const AFTER_FAILURE: Duration = Duration::from_millis(5);
/// How long attackers may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(20);

/// Whom to attack, and how.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) url: String,
    pub(super) token_url: String,
    /// The folder with a folder of credentials for each attacker and the host.
    pub(super) identities: PathBuf,
    pub(super) attackers: usize,
    pub(super) lanes: usize,
    /// All of these at once.
    pub(super) attacks: Vec<WireAttack>,
}

/// The attack, large enough to keep an attacker busy: an attack beside the rest of its process lasts longer
/// than a turn, and an attack that opens connections opens more of them.
pub(super) fn at_full_speed(kind: WireAttackKind) -> anyhow::Result<WireAttack> {
    Ok(match kind {
        WireAttackKind::FrameFlood => "frame-flood(frames=100000000)".parse()?,
        WireAttackKind::ResetFlood => "reset-flood(streams=100000)".parse()?,
        WireAttackKind::SlowOpen => "slow-open(connections=256)".parse()?,
        WireAttackKind::BadTokenFlood => "bad-token-flood(calls=100000)".parse()?,
        WireAttackKind::HandshakeFlood => "handshake-flood(connections=256)".parse()?,
        kind => WireAttack::new(kind),
    })
}

/// By the name of an attack, the totals over all attackers, by their own observations: how often it was
/// `carried out` to its end or stopped at the end of the turn, `attempts`, streams and connections that the
/// server `cut`; refusals by their reasons, and with `broke off: ` and `unexpected: ` why it ended early and
/// which answers it should not have had.
pub(super) type AllDone = BTreeMap<String, BTreeMap<String, u64>>;

/// Adds a report to the totals of its attack.
fn add(done: &mut BTreeMap<String, u64>, report: AttackReport) {
    let AttackReport { attempts, refusals, cut, surprises, broke_off } = report;
    let counts = [("carried out", 1), ("attempts", attempts), ("cut", cut)];
    let counts = counts.into_iter().map(|(name, count)| (name.to_owned(), count)).chain(refusals);
    let surprises = surprises.into_iter().map(|what| (format!("unexpected: {what}"), 1));
    let broke_off = broke_off.into_iter().map(|why| (format!("broke off: {why}"), 1));
    for (name, count) in counts.chain(surprises).chain(broke_off) {
        *done.entry(name).or_default() += count;
    }
}

/// The subcommand: attacks until standard input ends, and then says what it did.
pub(crate) fn attack(orders: &str) -> anyhow::Result<()> {
    let orders = serde_json::from_str(orders)?;
    let runtime = runtime(1)?;
    let (stop, stopped) = watch::channel(false);
    let attacking = runtime.spawn(attack_all(orders, stopped));
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    stop.send_replace(true);
    let done = runtime.block_on(attacking)??;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&done)?)?;
    runtime.shutdown_background();
    Ok(())
}

async fn attack_all(orders: Orders, stopped: watch::Receiver<bool>) -> anyhow::Result<AllDone> {
    let Orders { url, token_url, identities, attackers, lanes, attacks } = orders;
    let roster: Vec<String> = (0..attackers).map(attacker).collect();
    let identities = Identities::Folders(identities);
    let client = |url: &str, name: &str| anyhow::Ok(identities.client(url, name)?.connect_lazy()?);
    let host = client(&url, HOST)?;
    let done = Arc::new(std::sync::Mutex::new(AllDone::new()));
    let mut all = JoinSet::new();
    for attack in attacks {
        for _ in 0..lanes {
            let lane =
                Arc::new(Lane { host: host.clone(), roster: roster.clone(), latest: Mutex::new(None) });
            for (number, name) in roster.iter().enumerate() {
                let clients = [client(&url, name)?, client(&token_url, name)?];
                let (lane, stopped, done) = (lane.clone(), stopped.clone(), done.clone());
                all.spawn(async move {
                    let add = |report| {
                        let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        add(done.entry(attack.name().to_owned()).or_default(), report);
                    };
                    attack_on(&clients, number as u64, attack, &lane, stopped, add).await;
                });
            }
        }
    }
    let mut stopping = stopped;
    // Without a sender it is time to stop as well.
    let _ = stopping.wait_for(|stop| *stop).await;
    let ended = async { while all.join_next().await.is_some() {} };
    tokio::time::timeout(STOP_WITHIN, ended).await.context("attackers do not stop")?;
    let done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Ok(done.clone())
}

/// One attack by one attacker, in one instance after the other.
async fn attack_on(
    [client, token_server]: &[Client; 2],
    number: u64,
    attack: WireAttack,
    lane: &Lane,
    mut stopped: watch::Receiver<bool>,
    add: impl Fn(AttackReport),
) {
    let mut last = 0;
    while !*stopped.borrow() {
        let mut stopping = stopped.clone();
        let stop = async move { drop(stopping.wait_for(|stop| *stop).await) };
        let id = tokio::select! {
            id = lane.after(last) => id,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        let report = match id {
            Ok((place, id)) => {
                last = place;
                let targets = Targets { token_server: Some(token_server), ..Targets::default() };
                let seed = number ^ (place << 16);
                stickycas_attacks::play(client, id, attack, seed, targets, stop).await.attack
            }
            Err(error) => {
                AttackReport { broke_off: Some(format!("no instance: {error:#}")), ..Default::default() }
            }
        };
        let failed = report.attempts == 0;
        add(report);
        if failed {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
}

/// Instances of attackers, one after the other. One that is slow goes on in the latest.
struct Lane {
    host: Client,
    roster: Vec<String>,
    latest: Mutex<Option<(u64, InstanceId)>>,
}

impl Lane {
    /// The latest instance behind the one with this number, which is made if there is none.
    async fn after(&self, last: u64) -> anyhow::Result<(u64, InstanceId)> {
        let mut latest = self.latest.lock().await;
        if let Some((place, id)) = *latest
            && place > last
        {
            return Ok((place, id));
        }
        let create = self.host.create_instance().roster(self.roster.clone()).read_size(8);
        let create = create.patience(Patience::Finite(PATIENCE)).join_timeout(JOIN_TIMEOUT);
        let made = (last + 1, create.send().await?.instance.id);
        *latest = Some(made);
        Ok(made)
    }
}
