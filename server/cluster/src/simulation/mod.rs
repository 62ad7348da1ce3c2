//! Three servers over the model of etcd, with faults that follow from a seed, and mistakes that must be
//! noticed.

mod checks;
mod pause;
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;
use tokio::time::sleep;

use self::checks::check;
use self::server::{Server, Setting, random, read, stored_names};
use crate::committer::{Fault, Outcome};
use crate::keys::{Epoch, Keys, Name};
use crate::model::{Faults, Model};
use crate::shard::ShardCount;
use crate::store::{Op, Store, Txn};

/// The result of a run.
#[derive(Debug, Default)]
struct Shown {
    wrong: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

/// Mistakes of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Planted {
    fault: Option<Fault>,
    confirmation: bool,
}

fn run(seed: u64, planted: Planted) -> Shown {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(simulate(seed, planted))
}

async fn simulate(seed: u64, planted: Planted) -> Shown {
    let mut random = random(seed);
    let faults = Faults {
        delay: Duration::from_millis(random.random_range(1..200)),
        lost: random.random_range(0..80),
        time_limit: Duration::from_secs(1),
        ..Faults::default()
    };
    let setting = Setting {
        keys: Keys::new(&Name::new("simulated").unwrap()),
        shards: ShardCount::new(4).unwrap(),
        model: Model::new(seed, faults),
        told: Arc::default(),
        fault: planted.fault,
        faulty_confirmation: planted.confirmation,
    };
    let mut servers: Vec<Server> =
        (0..3).map(|number| Server::start(&setting, number, seed * 1000 + number as u64)).collect();
    for round in 1..10 {
        sleep(Duration::from_millis(random.random_range(200..2000))).await;
        let number = random.random_range(0..3);
        let server = &servers[number];
        let lasts = Duration::from_millis(random.random_range(100..9000));
        match random.random_range(0..7) {
            0 | 1 => {
                server.store.cut_off(true);
                let server = server.clone();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    server.store.cut_off(false);
                });
            }
            2 | 3 => {
                server.process.stop();
                let server = server.clone();
                tokio::spawn(async move {
                    sleep(lasts).await;
                    server.process.go_on();
                });
            }
            4 => {
                // The next put crosses the quota; those behind it are refused until there is room again.
                setting.model.set_quota(Some(setting.model.used()));
                let model = setting.model.clone();
                tokio::spawn(async move {
                    sleep(lasts / 3).await;
                    model.set_quota(None);
                });
            }
            5 => {
                server.process.kill();
                servers[number] = Server::start(&setting, number, seed * 1000 + round * 10 + number as u64);
            }
            _ => {
                server.drain();
                sleep(Duration::from_secs(1)).await;
                server.process.kill();
                servers[number] = Server::start(&setting, number, seed * 1000 + round * 10 + number as u64);
                let _ = setting.model.connect().compact(setting.model.revision()).await;
            }
        }
    }
    sleep(Duration::from_secs(10)).await;
    let healed = setting.told.lock().unwrap().writes.len();
    sleep(Duration::from_secs(10)).await;
    for server in servers {
        server.process.kill();
    }
    finish(&setting, planted, healed).await
}

async fn finish(setting: &Setting, planted: Planted, healed: usize) -> Shown {
    sleep(Duration::from_secs(10)).await;
    let mut told = std::mem::take(&mut *setting.told.lock().unwrap());
    let late: BTreeSet<_> = told.writes[healed..]
        .iter()
        .filter(|write| write.4 == Outcome::Committed)
        .map(|write| write.0)
        .collect();
    if planted.fault.is_none() && late.len() < setting.shards.get() as usize {
        told.violations.push(format!("after all faults only {late:?} go on"));
    }
    let history = setting.model.history();
    let mut wrong = check(&setting.keys, setting.shards, &history, &told);
    if planted.fault.is_none() {
        wrong.extend(names_are_kept(setting).await);
    }
    let mut counts = BTreeMap::new();
    for (.., outcome) in &told.writes {
        let outcome = match outcome {
            Outcome::Committed => "committed",
            Outcome::Deposed(_) => "deposed",
            Outcome::NameTaken { .. } => "name taken",
            Outcome::Refused(_) => "refused",
            Outcome::NoSpace => "no space",
            Outcome::Closed => "closed",
        };
        *counts.entry(outcome).or_default() += 1;
    }
    counts.insert("confirmed", told.confirmed.len());
    counts.insert("confirmations of a deposed", told.deposed_confirmations);
    counts.insert("revisions", history.len());
    Shown { wrong, counts }
}

/// A new owner of all shards reads the names that are stored.
async fn names_are_kept(setting: &Setting) -> Vec<String> {
    setting.model.lose_nothing();
    let store = setting.model.connect();
    let claims: Vec<_> = setting.shards.shards().map(|shard| setting.keys.owner(shard)).collect();
    let then =
        claims.iter().map(|key| Op::Put { key: key.clone(), value: "x".into(), lease: None }).collect();
    let epochs = store.txn(Txn { then, ..Txn::default() }).await.expect("nothing is lost");
    let mut wrong = Vec::new();
    let mut names = BTreeMap::new();
    for shard in setting.shards.shards() {
        let epoch = Epoch(epochs.revision);
        match read(&store, &setting.keys, shard, epoch).await {
            Ok((_, of_shard)) => names.extend(of_shard),
            Err(error) => wrong.push(format!("shard {shard}: {error}")),
        }
    }
    let stored = stored_names(&store, &setting.keys).await;
    if names != stored {
        wrong.push(format!("the logs hold the names {names:?}, the store {stored:?}"));
    }
    wrong
}

/// Runs these seeds, all cores together.
fn run_all(seeds: std::ops::Range<u64>, planted: Planted) -> BTreeMap<u64, Shown> {
    let (next, shown) = (Mutex::new(seeds), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(seed) = { next.lock().unwrap().next() } {
                    let one = run(seed, planted);
                    shown.lock().unwrap().insert(seed, one);
                }
            });
        }
    });
    shown.into_inner().unwrap()
}

fn caught(seeds: u64, planted: Planted, how: &str) {
    let shown = run_all(0..seeds, planted);
    let caught = shown.values().filter(|shown| shown.wrong.iter().any(|wrong| wrong.contains(how))).count();
    println!("{planted:?}: {caught} of {seeds} seeds show \"{how}\"");
    assert!(caught > 0, "{planted:?} is not noticed");
}

/// 100 seeds in some seconds. The long form: `STICKYCAS_SEEDS=3000 cargo test -p stickycas-cluster --lib
/// simulation`.
#[test]
fn servers_share_the_logs_whatever_fails() {
    let seeds = std::env::var("STICKYCAS_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    let shown = run_all(0..seeds, Planted::default());
    let mut counts = BTreeMap::<_, usize>::new();
    for (seed, shown) in &shown {
        assert!(shown.wrong.is_empty(), "seed {seed}: {:#?}", shown.wrong);
        for (&what, count) in &shown.counts {
            *counts.entry(what).or_default() += count;
        }
    }
    println!("{} seeds: {counts:?}", shown.len());
    for what in ["committed", "deposed", "name taken", "closed", "confirmed", "confirmations of a deposed"] {
        assert!(counts.get(what).is_some_and(|&count| count > 0), "no seed shows: {what}");
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let counts = |seed| run(seed, Planted::default()).counts;
    assert_eq!(counts(3), counts(3));
    assert_ne!(counts(3), counts(4));
}

#[test]
fn writing_without_the_compare_of_the_owner_is_noticed() {
    caught(20, Planted { fault: Some(Fault::NoOwnerCompare), ..Planted::default() }, "was no owner");
}

#[test]
fn an_unknown_outcome_told_as_a_success_is_noticed() {
    caught(
        30,
        Planted { fault: Some(Fault::UnknownIsCommitted), ..Planted::default() },
        "told committed, but",
    );
}

#[test]
fn an_unknown_outcome_told_as_a_failure_is_noticed() {
    caught(
        30,
        Planted { fault: Some(Fault::UnknownIsRefused), ..Planted::default() },
        "but it is in the log",
    );
}

#[test]
fn a_confirmation_by_an_earlier_read_is_noticed() {
    caught(60, Planted { confirmation: true, ..Planted::default() }, "confirmed at");
}
