//! Every delivered scenario shows what it promises, in the simulator and over the network.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_model::byzantine::{Strategy, WireAttack};
use stickycas_model::ground_truth::Role;
use stickycas_model::judge::{Observed, Outcome, Property};
use stickycas_model::params::Patience;
use stickycas_model::types::Value;
use stickycas_server::limits::Limits;
use tokio::task::JoinSet;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios")
}

/// The delivered scenario files.
fn delivered() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}

fn load(name: &str, seed: u64) -> Scenario {
    Scenario::load(&folder().join(format!("{name}.toml")), Some(seed)).unwrap()
}

/// Instances at a time: as many Attach streams has each principal open at the one server.
const AT_A_TIME: usize = 8;

/// What the issue and the paper ask for. There may be more.
const WANTED: [&str; 32] = [
    "absent",
    "adaptive",
    "all-correct",
    "at-the-bound",
    "case-a-empty",
    "case-b-all-differ",
    "case-b-distinct",
    "case-c-collude",
    "case-d-mimic",
    "case-e-mixed",
    "corollary-at-the-bound",
    "corollary-over-the-bound",
    "crash",
    "descending",
    "late-append",
    "late-append-open",
    "late-append-open-pairs",
    "late-correct",
    "late-over-the-bound",
    "liar",
    "mixed-plan",
    "one-warp",
    "over-the-bound",
    "quickstart",
    "reader",
    "remark-on-one",
    "repeat-append",
    "shuffled",
    "silent-minority",
    "singletons",
    "stall",
    "withheld-warp",
];

#[test]
fn all_are_there_each_named_like_its_file_and_with_a_promise() {
    let names: Vec<String> = delivered()
        .iter()
        .map(|path| {
            let scenario = Scenario::load(path, Some(1)).unwrap();
            assert_eq!(path.file_stem().unwrap(), scenario.name.as_str());
            assert!(scenario.expect.is_some(), "{} promises no verdict", scenario.name);
            assert!(!scenario.about.is_empty(), "{} does not say what it is about", scenario.name);
            scenario.name
        })
        .collect();
    for name in WANTED {
        assert!(names.iter().any(|delivered| delivered == name), "{name} is missing");
    }
}

#[test]
fn every_strategy_has_a_scenario() {
    let mut played = BTreeSet::new();
    for path in delivered() {
        let scenario = Scenario::load(&path, Some(1)).unwrap();
        played.extend(scenario.truth.assignments().filter_map(|(_, assignment)| match &assignment.role {
            Role::Byzantine(strategy) => Some(strategy.name()),
            Role::Correct | Role::Attacker(_) | Role::External => None,
        }));
    }
    assert_eq!(played, BTreeSet::from(Strategy::ALL_NAMES));
}

#[test]
fn only_the_weakest_value_turns_the_decision_of_the_proof() {
    for (name, decision) in
        [("case-a-empty", "a"), ("case-b-distinct", "a"), ("case-c-collude", "a"), ("case-d-mimic", "b")]
    {
        for seed in 0..10 {
            assert_eq!(simulate(&load(name, seed)).verdict.decision, Value::parse(decision), "{name}");
        }
    }
}

#[test]
fn the_decisions_beyond_the_bounds_are_the_adversarys() {
    for (name, decision) in [
        ("over-the-bound", "0"),
        ("case-b-all-differ", "a"),
        ("corollary-over-the-bound", "0"),
        ("remark-on-one", "0"),
        ("late-over-the-bound", "0"),
    ] {
        assert_eq!(simulate(&load(name, 3)).verdict.decision, Value::parse(decision), "{name}");
    }
}

fn keeps_its_promise(record: &Record) {
    let Record { scenario, verdict, how, .. } = record;
    assert_eq!(
        Some(verdict.verdict),
        scenario.expect,
        "{} {how} with seed {}: {:?}",
        scenario.name,
        scenario.seed,
        verdict.reasons
    );
    assert!(record.complete, "{} {how}: the history lacks something", scenario.name);
}

#[test]
fn every_scenario_keeps_its_promise_with_any_seed() {
    for path in delivered() {
        for seed in 0..50 {
            let scenario = Scenario::load(&path, Some(seed)).unwrap();
            if scenario.check_simulable().is_ok() {
                keeps_its_promise(&simulate(&scenario));
            }
        }
    }
}

#[test]
fn the_same_seed_repeats_a_simulated_run_event_by_event() {
    for path in delivered() {
        let scenario = Scenario::load(&path, Some(11)).unwrap();
        let (first, second) = (simulate(&scenario), simulate(&scenario));
        assert_eq!(first.history, second.history, "{}", scenario.name);
        assert_eq!(first.verdict, second.verdict, "{}", scenario.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_keeps_its_promise_over_the_network() {
    // A client of which nothing is heard is given up sooner than usual, so that nobody waits for that.
    let limits = Limits { preface_timeout: Duration::from_millis(500), ..run::attacked_limits() };
    let scenarios = delivered().into_iter().map(|path| Scenario::load(&path, Some(5)).unwrap());
    let attacked = |scenario: &Scenario| scenario.truth.attackers().next().is_some();
    let (attacked, others): (Vec<Scenario>, Vec<Scenario>) = scenarios.partition(attacked);
    // Both at once, since most of the time they wait.
    tokio::join!(run_at_one_server(others, limits.clone()), run_one_by_one(attacked, limits));
}

async fn run_at_one_server(scenarios: Vec<Scenario>, limits: Limits) {
    let server = OwnServer::start_with(limits).await.unwrap();
    let handle = Arc::new(server.connect().await.unwrap());
    let mut waiting = scenarios.into_iter();
    let mut running = JoinSet::new();
    loop {
        for scenario in waiting.by_ref().take(AT_A_TIME - running.len()) {
            let handle = Arc::clone(&handle);
            running
                .spawn(async move { run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap() });
        }
        let Some(record) = running.join_next().await else { break };
        keeps_its_promise(&record.unwrap());
    }
    drop(handle);
    server.stop().await.unwrap();
}

/// What the server counts of an attack must be of one run. Attackers have certificates, as in
/// `stickycas-loadgen run`.
async fn run_one_by_one(scenarios: Vec<Scenario>, limits: Limits) {
    for scenario in scenarios {
        let server = OwnServer::start_for(&scenario.params, limits.clone()).await.unwrap();
        let handle = server.connect().await.unwrap();
        keeps_its_promise(&run::run(&handle, &scenario, &RunOptions::in_process()).await.unwrap());
        drop(handle);
        server.stop().await.unwrap();
    }
}

#[test]
fn every_wire_attack_has_a_scenario_for_the_network_only() {
    for name in WireAttack::ALL_NAMES {
        let scenario = load(&format!("wire-{name}"), 1);
        let refused = scenario.check_simulable().unwrap_err().to_string();
        assert!(refused.contains("need the network") && refused.contains(name), "{refused}");
        assert_eq!(simulate(&scenario).verdict.verdict, Outcome::Unknown, "{name} did not fire");
    }
}

#[test]
fn the_late_append_splits_the_algorithm_as_printed() {
    let verdict = simulate(&load("late-append-open", 0)).verdict;
    assert_eq!(verdict.finding(Property::Agreement).0, Observed::Violated);
    assert!(
        verdict.witness.iter().any(|line| line.contains("decided a from [a a b b]")),
        "{:?}",
        verdict.witness
    );
    assert!(
        verdict.witness.iter().any(|line| line.contains("decided b from [a a b b b]")),
        "{:?}",
        verdict.witness
    );
}

#[test]
fn warps_of_two_split_it_too_unless_the_window_closes() {
    let file = std::fs::read_to_string(folder().join("late-append-open-pairs.toml")).unwrap();
    for (window, order, observed) in [
        ("open", "ascending", Observed::Violated),
        ("open", "descending", Observed::Violated),
        ("first_access", "ascending", Observed::Held),
        ("first_access", "shuffled", Observed::Held),
    ] {
        let text = file.replace("\"open\"", &format!("\"{window}\"\norder = \"{order}\""));
        for seed in 0..50 {
            let scenario = Scenario::parse("pairs.toml", &text, Some(seed)).unwrap();
            let verdict = simulate(&scenario).verdict;
            let at = format!("{window}, {order}, seed {seed}");
            assert_eq!(verdict.finding(Property::Agreement).0, observed, "{at}: {:?}", verdict.reasons);
            assert!(verdict.strong_validity_promised, "{at}: it is inside the bound");
        }
    }
}

#[test]
fn over_the_bound_breaks_strong_validity_and_nothing_else() {
    let verdict = simulate(&load("over-the-bound", 0)).verdict;
    for property in Property::ALL {
        let expected = if property == Property::StrongValidity { Observed::Violated } else { Observed::Held };
        assert_eq!(verdict.finding(property).0, expected, "{property}");
    }
}

/// Only the liveness of the harness itself rests on this timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_run_is_given_up_and_shows_what_was_missing() {
    let endless = r#"
        name = "stuck"
        [instance]
        processes = 3
        warp_size = 3
        read_size = 1
        patience = "none"
        join_timeout = "3s"
        [proposals]
        distinct = 1
        [[faults]]
        processes = [2]
        strategy = "silent"
    "#;
    let scenario = Scenario::parse("stuck.toml", endless, Some(1)).unwrap();
    assert_eq!(scenario.params.spec().patience, Patience::Endless);
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap();
    let options = RunOptions { stall: Duration::from_millis(300), ..RunOptions::in_process() };
    let record = run::run(&handle, &scenario, &options).await.unwrap();
    assert_eq!(record.verdict.verdict, Outcome::Outside, "{:?}", record.verdict.reasons);
    let (observed, missing) = record.verdict.finding(Property::Termination);
    assert_eq!(observed, Observed::Violated);
    assert!(missing.is_some_and(|premise| premise.contains("process 2 joined but neither acts nor left")));
    assert!(record.verdict.reasons.iter().any(|reason| reason.starts_with("nothing happened any more")));
    assert!(record.complete, "the history goes to the close");
    drop(handle);
    server.stop().await.unwrap();
}
