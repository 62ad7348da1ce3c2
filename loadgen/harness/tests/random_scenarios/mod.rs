//! The simulator and the network agree: of scenarios drawn from the whole space of parameters, each run over
//! the network replays event by event in the simulator's machine, and is judged the same from the replay.
//!
//! The same scenario in the simulator, under the same seed, is another run: what the network decides by
//! chance, the order of arrival, is drawn there. Where that order cannot matter ([`order_matters`]) the two
//! must come to the same list and the same decisions, each in the same phase if there is one append round;
//! everywhere they must come to the same promises.
//!
//! The scenario with number i has seed `STICKYCAS_RANDOM_SEED` + i (1 without that variable), and there are
//! `STICKYCAS_RANDOM_RUNS` (50). So the seed that a failure prints repeats it alone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

mod draw;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stickycas_harness::environment::Environment;
use stickycas_harness::replay::replay;
use stickycas_harness::report::folder::{self, Folder};
use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_model::ground_truth::Role;
use stickycas_model::judge::{Outcome, Property, Verdict};
use stickycas_model::params::{AppendWindow, Arbiter, Patience};
use tokio::task::JoinSet;

/// Runs at a time: enough to hide the waits for those who stay away, few enough that nobody correct is late.
const AT_A_TIME: usize = 12;

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("give a number"))
}

fn drawn(seed: u64) -> Scenario {
    let text = draw::scenario(seed);
    Scenario::parse("drawn.toml", &text, None).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// What is printed with every failure.
fn told(seed: u64) -> String {
    format!(
        "\nseed {seed}; to repeat it: STICKYCAS_RANDOM_SEED={seed} STICKYCAS_RANDOM_RUNS=1 cargo test -p \
         stickycas-harness --test random_scenarios\n{}",
        draw::scenario(seed)
    )
}

/// Whether the list and the decisions may depend on the order in which messages arrive: under `first_come`,
/// where members of a warp compete; and where processes race with the end of their patience.
fn order_matters(scenario: &Scenario) -> bool {
    let competing = scenario.params.warp_size() > 1;
    let first_come = scenario.params.spec().arbiter == Arbiter::FirstCome;
    let racing = |role: &Role| role.to_string().contains("stall");
    (first_come && competing) || scenario.truth.assignments().any(|(_, assignment)| racing(&assignment.role))
}

/// Whether every process is waited for longer than any machine that runs tests may keep it. In the other
/// scenarios somebody stays away, and the wait is short: there a slow machine may make a correct process
/// late.
fn is_patient(scenario: &Scenario) -> bool {
    match scenario.params.spec().patience {
        Patience::Finite(patience) => patience >= Duration::from_secs(20),
        Patience::Endless => true,
    }
}

/// Whether no correct process was late or missed a phase, and nothing else happened that no scenario asks
/// for.
fn undisturbed(record: &Record) -> bool {
    let verdict = &record.verdict;
    record.anomalies.is_empty()
        && verdict.late.is_empty()
        && verdict.decisions.values().all(|decision| decision.missed == 0)
}

/// The history replays event by event, and the folder follows from its inputs in every field of the verdict.
fn replays(record: &Record, folders: &Path, seed: u64) {
    let place = folders.join(seed.to_string());
    folder::write(record, &Environment::here(record.how, None), Some(&place)).unwrap();
    let replayed = replay(&Folder::read(&place).unwrap_or_else(|error| panic!("{error}{}", told(seed))));
    assert!(replayed.same, "{replayed}{}{:#?}", told(seed), record.history);
}

fn no_promise_broke(record: &Record, seed: u64) {
    let Verdict { verdict, reasons, .. } = &record.verdict;
    assert_ne!(*verdict, Outcome::Violation, "{}: {reasons:#?}{}", record.how, told(seed));
}

/// What the two runs of a scenario must have in common.
fn agree(network: &Record, simulated: &Record, seed: u64) {
    let (one, other) = (&network.verdict, &simulated.verdict);
    assert_eq!((one.f, one.distinct_correct_proposals), (other.f, other.distinct_correct_proposals));
    for property in [Property::Agreement, Property::CommonValidity, Property::StrongValidity] {
        assert_eq!(one.finding(property).1, other.finding(property).1, "{property}{}", told(seed));
    }
    let scenario = &network.scenario;
    if order_matters(scenario) {
        return;
    }
    if scenario.params.append_rounds() == 1 {
        assert_eq!(one.decisions, other.decisions, "{}", told(seed));
    }
    // A client sends its appends ahead and then reads; a simulated process that has won reads at once (K2).
    let values = |verdict: &Verdict| -> Vec<_> {
        verdict.decisions.iter().map(|(process, decision)| (*process, decision.value.clone())).collect()
    };
    assert_eq!(values(one), values(other), "{}", told(seed));
    for property in Property::ALL {
        assert_eq!(one.finding(property).0, other.finding(property).0, "{property}{}", told(seed));
    }
    // An open list goes on growing for as long as somebody is there, which is not the same in both.
    if scenario.params.spec().append_window == AppendWindow::FirstAccess {
        assert_eq!(one.list, other.list, "{}", told(seed));
    }
    // Nor may be, for the same reason, who had the time to do his worst.
    if one.fired == other.fired {
        assert_eq!(one.verdict, other.verdict, "{:?} {:?}{}", one.reasons, other.reasons, told(seed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_random_scenarios_replay_and_agree_with_simulation() {
    let first = from_environment("STICKYCAS_RANDOM_SEED", 1);
    let runs = from_environment("STICKYCAS_RANDOM_RUNS", 50);
    println!("random scenarios {first} to {}", first + runs - 1);
    let folders = tempfile::tempdir().unwrap();
    let server = OwnServer::start().await.unwrap();
    let handle = Arc::new(ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap());
    let mut waiting = first..first + runs;
    let mut running = JoinSet::new();
    let (mut replayed, mut compared, mut in_full) = (0, 0, 0);
    loop {
        while running.len() < AT_A_TIME
            && let Some(seed) = waiting.next()
        {
            let handle = Arc::clone(&handle);
            running.spawn(async move {
                let scenario = drawn(seed);
                let record = run::run(&handle, &scenario, &RunOptions::in_process()).await;
                (seed, record.unwrap_or_else(|error| panic!("{error:#}{}", told(seed))))
            });
        }
        let Some(ended) = running.join_next().await else { break };
        let (seed, network) = ended.unwrap();
        assert!(network.complete, "the history lacks something{}", told(seed));
        replays(&network, folders.path(), seed);
        no_promise_broke(&network, seed);
        replayed += 1;
        let simulated = simulate(&network.scenario);
        no_promise_broke(&simulated, seed);
        let patient = is_patient(&network.scenario);
        if undisturbed(&simulated) {
            assert!(undisturbed(&network) || !patient, "{:?}{}", network.anomalies, told(seed));
        }
        if undisturbed(&network) && undisturbed(&simulated) {
            agree(&network, &simulated, seed);
            // Only those count that no machine is too slow for.
            compared += u64::from(patient);
            in_full += u64::from(patient && !order_matters(&network.scenario));
        }
    }
    println!("{replayed} replayed, {compared} compared with their simulation, {in_full} of them in full");
    assert_eq!(replayed, runs);
    assert!(runs < 50 || (compared >= 25 && in_full >= 10), "compared {compared}, in full {in_full}");
    drop(handle);
    server.stop().await.unwrap();
}

#[test]
fn what_is_drawn_covers_the_space_of_parameters() {
    let scenarios: Vec<Scenario> = (1..=200).map(drawn).collect();
    let seen = |what: &dyn Fn(&Scenario) -> Vec<String>| -> BTreeSet<String> {
        scenarios.iter().flat_map(what).collect()
    };
    let strategies = seen(&|scenario| {
        let roles = scenario.truth.assignments().map(|(_, assignment)| assignment.role.to_string());
        roles.map(|role| role.split('(').next().unwrap_or_default().to_owned()).collect()
    });
    for name in stickycas_model::byzantine::Strategy::ALL_NAMES {
        assert!(strategies.contains(name), "{name} is never drawn: {strategies:?}");
    }
    let spec = |scenario: &Scenario| scenario.params.spec().clone();
    assert_eq!(seen(&|scenario| vec![format!("{:?}", spec(scenario).order)]).len(), 3);
    assert_eq!(seen(&|scenario| vec![format!("{:?}", spec(scenario).append_window)]).len(), 2);
    assert_eq!(seen(&|scenario| vec![spec(scenario).append_rounds.to_string()]).len(), 3);
    assert!(seen(&|scenario| vec![format!("{:?}", spec(scenario).patience)]).len() >= 4);
    assert_eq!(seen(&|scenario| vec![format!("{:?}", spec(scenario).pace)]).len(), 4);
    assert!(seen(&|scenario| vec![format!("{:?}", spec(scenario).arbiter)]).len() > 10);
    assert!(seen(&|scenario| vec![scenario.params.processes().to_string()]).len() >= 12);
    assert!(seen(&|scenario| vec![scenario.params.warps().to_string()]).len() >= 10);
    assert!(seen(&|scenario| vec![scenario.params.reads().to_string()]).len() >= 6);
    assert!(scenarios.iter().filter(|scenario| !order_matters(scenario)).count() > 60);
}

#[test]
fn the_same_seed_draws_the_same_scenario() {
    assert_eq!(draw::scenario(7), draw::scenario(7));
    assert_ne!(draw::scenario(7), draw::scenario(8));
}
