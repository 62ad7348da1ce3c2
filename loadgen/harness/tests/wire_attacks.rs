//! Every wire attack of SPEC section 8, over the network and among correct processes: it is seen to fire,
//! only those who carry it out are blamed, all of them where B2 has an offence for it, and nobody else is
//! hurt (B1, B3). The same checks fail when the attack is switched off.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stickycas_attacks::{AttackReport, Targets};
use stickycas_harness::run::{self, Form, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario};
use stickycas_model::byzantine::WireAttack;
use stickycas_model::history::Event;
use stickycas_model::judge::Outcome;
use stickycas_model::machine::{OFFENCES_RECORDED, REFUSALS_RECORDED};
use stickycas_model::types::{ProcessId, Value};
use stickycas_server::limits::Limits;

/// Two of fourteen, in warps 2 and 7, so that the phases of others come before theirs. A pace makes phases
/// last, so that attacks fall into them. The bound (V3): f*(|Vc|+1)*p = 2*(2+1)*2 = 12 < 14 = n.
const ATTACKERS: &str = "[4, 13]";

pub(super) fn scenario(attack: Option<&str>) -> Scenario {
    let faults = attack.map_or_else(String::new, |attack| {
        format!("[[faults]]\nprocesses = {ATTACKERS}\nattack = \"{attack}\"\n")
    });
    let text = format!(
        "name = \"attacked\"\n\
         [instance]\nprocesses = 14\nwarp_size = 2\nread_size = 3\npace = \"10ms\"\npatience = \"20s\"\n\
         [proposals]\nvalues = [{}]\n{faults}",
        ["\"a\", \"b\""; 7].join(", ")
    );
    Scenario::parse("attacked.toml", &text, Some(1)).unwrap()
}

/// The attack with fewer repetitions, where it shows with few: for tests of what does not depend on how many
/// there are. With all of them each fires in a test of its own, and in its scenario.
pub(super) fn in_short(attack: &str) -> &str {
    match attack {
        "flood" => "flood(frames=600)",
        "bad-token-flood" => "bad-token-flood(calls=200)",
        other => other,
    }
}

fn limits() -> Limits {
    // A client of which nothing is heard is given up sooner than usual, so that no test waits for that.
    Limits { preface_timeout: Duration::from_millis(500), ..run::attacked_limits() }
}

/// What is missing of a run under attack.
fn check(record: &Record) -> Result<(), String> {
    let Record { scenario, verdict, .. } = record;
    let attackers: BTreeMap<ProcessId, WireAttack> = scenario.truth.attackers().collect();
    let attack = *attackers.values().next().unwrap();
    if verdict.fired.get(attack.name()) != Some(&(attackers.len() as u64)) {
        return Err(format!("fired: {:?}, counted: {:?}", verdict.fired, record.counted));
    }
    for (process, kinds) in &verdict.blame {
        if !attackers.contains_key(process) {
            return Err(format!("process {process} is correct and blamed for {kinds:?}"));
        }
        let own: BTreeSet<_> = attack.offences().iter().collect();
        if let Some(other) = kinds.keys().find(|kind| !own.contains(kind)) {
            return Err(format!("{attack} is blamed for {other:?}"));
        }
    }
    for process in attackers.keys() {
        let blamed = verdict.blame.get(process).cloned().unwrap_or_default();
        if let Some(kind) = attack.offences().iter().find(|kind| !blamed.contains_key(kind)) {
            return Err(format!("process {process} is not blamed for {kind:?}"));
        }
    }
    if verdict.verdict != Outcome::Valid {
        return Err(format!("{}: {:?}", verdict.verdict, verdict.reasons));
    }
    unharmed(record)
}

/// All correct processes decide the same, none has missed a phase, nothing was closed before that, and the
/// record has not grown beyond what each process may fill of it.
fn unharmed(record: &Record) -> Result<(), String> {
    let Record { scenario, verdict, history, .. } = record;
    let correct: BTreeSet<ProcessId> = scenario.truth.correct().collect();
    if verdict.decision.is_none() || verdict.decisions.len() != correct.len() {
        return Err(format!("decisions: {:?}", verdict.decisions));
    }
    if let Some((process, decision)) = verdict.decisions.iter().find(|(_, decision)| decision.missed > 0) {
        return Err(format!("process {process} missed {} phases", decision.missed));
    }
    let pipeline = scenario.params.spec().pipeline;
    let mut left = BTreeSet::new();
    let mut waiting: BTreeMap<ProcessId, u32> = BTreeMap::new();
    let mut refused: BTreeMap<ProcessId, u64> = BTreeMap::new();
    let mut offended: BTreeMap<_, u64> = BTreeMap::new();
    for recorded in history {
        match &recorded.event {
            Event::Accepted { process, .. } => *waiting.entry(*process).or_default() += 1,
            Event::Answered { process, .. } | Event::Withdrawn { process, .. } => {
                *waiting.entry(*process).or_default() -= 1;
            }
            Event::Refused { process, .. } => *refused.entry(*process).or_default() += 1,
            Event::Offence(offence) => *offended.entry((offence.process, offence.kind)).or_default() += 1,
            Event::Decided { process, .. } => drop(left.insert(*process)),
            Event::Closed if !left.is_superset(&correct) => return Err("closed too early".to_owned()),
            _ => {}
        }
        if waiting.values().any(|waiting| *waiting > pipeline) {
            return Err(format!("more than {pipeline} accesses wait: {waiting:?}"));
        }
    }
    let bounded = refused.values().all(|count| *count <= REFUSALS_RECORDED)
        && offended.values().all(|count| *count <= OFFENCES_RECORDED);
    if bounded { Ok(()) } else { Err(format!("refused {refused:?}, offended {offended:?}")) }
}

/// Over connections on which every process proves by a certificate who it is.
async fn fires(attack: &str) -> Record {
    let scenario = scenario(Some(attack));
    let server = OwnServer::start_for(&scenario.params, limits()).await.unwrap();
    let handle = server.connect().await.unwrap();
    assert!(handle.url().starts_with("https://"), "{}", handle.url());
    let record = run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap();
    check(&record).unwrap_or_else(|missing| panic!("{attack}: {missing}"));

    let off = switched_off(&handle, attack).await;
    let found = check(&off).expect_err(attack);
    assert!(found.starts_with("fired: "), "{attack}, switched off: {found}");
    assert_eq!(off.verdict.verdict, Outcome::Unknown, "{attack}: {:?}", off.verdict.reasons);
    unharmed(&off).unwrap_or_else(|missing| panic!("{attack}, switched off: {missing}"));
    drop(handle);
    server.stop().await.unwrap();
    record
}

/// A run in which everybody is correct, judged as if the attack had been made in it.
async fn switched_off(handle: &ServerHandle, attack: &str) -> Record {
    let claimed = scenario(Some(attack));
    let before = run::counted(handle, &claimed).await.unwrap();
    let counts = run::CountsObserver::start(handle, &claimed, before);
    let record = run::run(handle, &scenario(None), &RunOptions::in_process()).await.unwrap();
    let counted = counts.finish().await.unwrap();
    assert_eq!(record.verdict.verdict, Outcome::Valid, "{:?}", record.verdict.reasons);
    Record::judged(claimed, record.how, record.history, record.complete, counted, record.reports)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impersonation_is_refused_and_blamed_on_its_author() {
    fires("impersonate").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_out_of_turn_are_refused_and_no_offence() {
    fires("out-of-turn").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_contents_for_one_number_are_blamed_and_the_first_counts() {
    fires("double").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_messages_again_change_nothing_and_are_no_offence() {
    fires("replay").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_refused_and_makes_nobody_miss_a_phase() {
    fires("flood").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_large_is_refused_and_blamed() {
    fires("oversize").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_message_are_refused_and_blamed() {
    fires("garbage").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_never_read_hurts_no_other_process() {
    fires("slow-read").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_connections_are_ended_and_hurt_nobody_else() {
    fires("slow-open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_resets_is_paced_and_hurts_nobody_else() {
    fires("reset-flood").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handshakes_that_halt_are_ended_and_hurt_nobody_else() {
    fires("handshake-flood").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_frames_is_paced_and_hurts_nobody_else() {
    fires("frame-flood").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_bad_tokens_is_refused_and_blamed_on_nobody() {
    let record = fires("bad-token-flood").await;
    // They were verified, and not refused because of a certificate beside them.
    assert!(record.counted.all.get("tokens_refused") > 0, "{:?}", record.counted);
    assert!(record.verdict.blame.is_empty(), "{:?}", record.verdict.blame);
}

/// As `stickycas-loadgen run` does with more processes than it makes certificates for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attackers_with_tokens_fire_too() {
    for attack in ["impersonate", "flood", "frame-flood", "bad-token-flood"] {
        let scenario = scenario(Some(in_short(attack)));
        let principals = ProcessId::all(scenario.params.processes()).map(run::principal);
        let server = OwnServer::start_knowing(Form::Tokens, principals, limits()).await.unwrap();
        let handle = server.connect().await.unwrap();
        let record = run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap();
        check(&record).unwrap_or_else(|missing| panic!("{attack}: {missing}"));
        drop(handle);
        server.stop().await.unwrap();
    }
}

const NAMES: [&str; 3] = ["p1", "p2", "p3"];

/// Process 1 of three carries out the attack, the others are correct: what it says that it did.
async fn done(server: &OwnServer, attack: &str) -> AttackReport {
    let client = |principal: &str| {
        let client = server.identities().client(server.url(), principal).unwrap();
        client.connect_lazy().unwrap()
    };
    let create = client(run::COORDINATOR).create_instance().roster(NAMES).read_size(3);
    let id = create.pace(Duration::from_millis(10)).send().await.unwrap().instance.id;
    let correct = NAMES[1..].iter().map(|name| {
        let client = client(name);
        tokio::spawn(async move { client.propose(id, "a").await.unwrap().value })
    });
    let correct: Vec<_> = correct.collect();
    let attack: WireAttack = attack.parse().unwrap();
    // Those without a listener for tokens attack the one that there is.
    let targets = Targets::default();
    let attacked =
        stickycas_attacks::play(&client("p1"), id, attack, 1, targets, std::future::pending()).await;
    for decision in correct {
        assert_eq!(decision.await.unwrap(), Value::parse("a").unwrap(), "{attack}");
    }
    assert!(attacked.played.error.is_none(), "{attack}: {:?}", attacked.played.error);
    assert!(attacked.played.report.is_some_and(|report| report.decision.is_some()), "{attack}");
    attacked.attack
}

/// Attacks and what they are told whoever they are known by; what impersonation is told is not among it.
const TOLD: [(&str, &[&str]); 10] = [
    ("out-of-turn(calls=20)", &["NOT_YOUR_PHASE"]),
    ("double(times=4)", &["ACCESS_CONTENT_DIFFERS"]),
    ("replay(times=3)", &["SESSION_REPLACED"]),
    ("flood(frames=600)", &["TOO_MANY_WAITING"]),
    ("oversize(messages=2)", &["VALUE_TOO_LARGE"]),
    ("garbage(messages=2)", &["MALFORMED"]),
    ("slow-read(frames=2000)", &[]),
    ("slow-open(connections=8)", &[]),
    ("reset-flood(streams=2000)", &[]),
    ("bad-token-flood(calls=200)", &["NO_IDENTITY"]),
];

/// Each attack is told these refusals and gets no answer that it should not have.
async fn is_told(server: &OwnServer, impersonate: &[&str]) {
    for (attack, reasons) in TOLD.into_iter().chain([("impersonate(rounds=2)", impersonate)]) {
        let done = done(server, attack).await;
        assert!(done.attempts > 0, "{attack}: {done}");
        assert!(done.surprises.is_empty() && done.broke_off.is_none(), "{attack}: {done}");
        for reason in reasons {
            assert!(done.refusals.contains_key(*reason), "{attack} was never told {reason}: {done}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_sees_the_right_refusals_and_nothing_else() {
    let server =
        OwnServer::start_knowing(Form::Certificates, NAMES.map(str::to_owned), limits()).await.unwrap();
    is_told(&server, &["NO_IDENTITY", "NOT_CREATOR", "NOT_COORDINATOR"]).await;
    server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attacker_sees_the_same_where_names_are_believed() {
    let server = OwnServer::start_with(limits()).await.unwrap();
    is_told(&server, &["NO_IDENTITY", "NOT_A_MEMBER", "NOT_CREATOR", "NOT_COORDINATOR"]).await;
    server.stop().await.unwrap();
}
