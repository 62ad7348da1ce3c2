//! The attackers: a program that carries out wire attacks as fast as it can, over and over, until standard
//! input ends.
//!
//! All attackers are members of the same instances, and of none of the correct processes'. For each attack
//! there are some such instances at a time (`--lanes`); each attacker attacks in one of each lane, plays the
//! rest of its process as [`stickycas_attacks::play`] does, and goes on to the next instance without a pause.
//! An attacker has one connection for each lane of each attack, beside those that the attack opens by itself.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use stickycas_attacks::{AttackReport, Targets};
use stickycas_client::{Client, InstanceId, Patience};
use stickycas_model::byzantine::{WireAttack, WireAttackKind};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::{attacker, client};
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
#[derive(Clone, Debug, Args)]
pub(crate) struct AttackerOptions {
    #[arg(long)]
    pub(super) url: String,
    #[arg(long)]
    pub(super) token_url: String,
    /// The folder with a folder of credentials for each attacker and the host.
    #[arg(long)]
    pub(super) clients: PathBuf,
    #[arg(long)]
    pub(super) attackers: usize,
    #[arg(long)]
    pub(super) lanes: usize,
    /// All of these at once.
    #[arg(long)]
    pub(super) attack: Vec<WireAttack>,
}

impl AttackerOptions {
    /// As arguments of the program.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Self { url, token_url, clients, attackers, lanes, attack } = self;
        let clients = clients.display();
        let all = format!(
            "attack --url {url} --token-url {token_url} --clients {clients} --attackers {attackers} --lanes {lanes}"
        );
        let attacks = attack.iter().map(|attack| format!("--attack={attack}"));
        all.split(' ').map(str::to_owned).chain(attacks).collect()
    }
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

/// The totals of one attack over all attackers, by their own observations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// How often it was carried out to its end, or stopped at the end of the turn.
    pub(super) carried_out: u64,
    /// Calls, frames, streams and connections that were tried.
    pub(super) attempts: u64,
    /// Streams and connections that the server ended.
    pub(super) cut: u64,
    /// Refusals by reason.
    pub(super) refusals: BTreeMap<String, u64>,
    /// Why it did not go on to its end, and how often.
    pub(super) broke_off: BTreeMap<String, u64>,
    /// Answers that no attacker should have had.
    pub(super) surprises: BTreeMap<String, u64>,
}

impl Done {
    fn add(&mut self, report: AttackReport) {
        self.carried_out += 1;
        self.attempts += report.attempts;
        self.cut += report.cut;
        for (reason, count) in report.refusals {
            *self.refusals.entry(reason).or_default() += count;
        }
        report.broke_off.into_iter().for_each(|why| *self.broke_off.entry(why).or_default() += 1);
        report.surprises.into_iter().for_each(|what| *self.surprises.entry(what).or_default() += 1);
    }

    fn merge(&mut self, other: Self) {
        self.carried_out += other.carried_out;
        self.attempts += other.attempts;
        self.cut += other.cut;
        let maps = [
            (&mut self.refusals, other.refusals),
            (&mut self.broke_off, other.broke_off),
            (&mut self.surprises, other.surprises),
        ];
        for (mine, others) in maps {
            others.into_iter().for_each(|(key, count)| *mine.entry(key).or_default() += count);
        }
    }
}

/// The totals by the name of the attack.
pub(super) type AllDone = BTreeMap<String, Done>;

/// The subcommand: attacks until standard input ends, and then says what it did.
pub(crate) fn attack(options: AttackerOptions) -> anyhow::Result<()> {
    let _files = stickycas_server::allow_all_files();
    let runtime = runtime(1)?;
    let (stop, stopped) = watch::channel(false);
    let attacking = runtime.spawn(attack_all(options, stopped));
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    stop.send_replace(true);
    let done = runtime.block_on(attacking)??;
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&done)?)?;
    runtime.shutdown_background();
    Ok(())
}

async fn attack_all(options: AttackerOptions, stopped: watch::Receiver<bool>) -> anyhow::Result<AllDone> {
    let AttackerOptions { url, token_url, clients, attackers, lanes, attack } = options;
    let roster: Vec<String> = (0..attackers).map(attacker).collect();
    let host = client(&url, &clients, HOST)?;
    let done = Arc::new(std::sync::Mutex::new(AllDone::new()));
    let mut all = JoinSet::new();
    for attack in attack {
        for _ in 0..lanes {
            let lane = Arc::new(Lane::new(host.clone(), roster.clone()));
            for (number, name) in roster.iter().enumerate() {
                let token_server = client(&token_url, &clients, name)?;
                let client = client(&url, &clients, name)?;
                let (lane, done, stopped) = (lane.clone(), done.clone(), stopped.clone());
                all.spawn(async move {
                    let own =
                        attack_on([&client, &token_server], number as u64, attack, &lane, stopped).await;
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    done.entry(attack.name().to_owned()).or_default().merge(own);
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
    [client, token_server]: [&Client; 2],
    number: u64,
    attack: WireAttack,
    lane: &Lane,
    mut stopped: watch::Receiver<bool>,
) -> Done {
    let (mut done, mut last) = (Done::default(), 0);
    while !*stopped.borrow() {
        let mut stopping = stopped.clone();
        let stop = async move { drop(stopping.wait_for(|stop| *stop).await) };
        let id = tokio::select! {
            id = lane.after(last) => id,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        let failed = match id {
            Ok((place, id)) => {
                last = place;
                let targets = Targets { token_server: Some(token_server), ..Targets::default() };
                let seed = number ^ (place << 16);
                let attacked = stickycas_attacks::play(client, id, attack, seed, targets, stop).await;
                let failed = attacked.attack.attempts == 0;
                done.add(attacked.attack);
                failed
            }
            Err(error) => {
                *done.broke_off.entry(format!("no instance: {error:#}")).or_default() += 1;
                true
            }
        };
        if failed {
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }
    done
}

/// Instances of attackers, one after the other. One that is slow goes on in the latest.
struct Lane {
    host: Client,
    roster: Vec<String>,
    latest: Mutex<Option<(u64, InstanceId)>>,
}

impl Lane {
    fn new(host: Client, roster: Vec<String>) -> Self {
        Self { host, roster, latest: Mutex::new(None) }
    }

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
