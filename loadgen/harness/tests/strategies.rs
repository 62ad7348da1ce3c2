//! Each strategy over the network: it is seen at work, its culprits and nobody else are blamed for what it
//! commits, and the correct processes decide the same. Where the culprits are correct in truth, the same
//! check finds that nothing was at work.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario};
use stickycas_model::byzantine::Strategy;
use stickycas_model::detection::detect;
use stickycas_model::ground_truth::Role;
use stickycas_model::history::OffenceKind;
use stickycas_model::judge::Outcome;
use stickycas_model::types::{ProcessId, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Every strategy, some of them with more than one set of arguments.
const ALL: [&str; 19] = [
    "absent",
    "silent",
    "crash@1",
    "crash(access=3)",
    "empty",
    "distinct",
    "collude(value=0)",
    "mimic(value=b)",
    "mixed(collude=0, mimic=b)",
    "late-append(access=2, value=0)",
    "repeat-append",
    "reader",
    "stall",
    "stall(conduct=reader)",
    "adaptive(phase=1, then=collude(value=0))",
    "adaptive(phase=8, then=silent)",
    "adaptive(phase=9, then=repeat-append)",
    "liar",
    "liar(value=b)",
];

/// Strategies at a time. With more of them, a busy machine may spend the patience of correct processes.
const AT_A_TIME: usize = 6;

/// Seven processes, a warp each, of which 2 and 5 play a strategy, if any: f*(|Vc|+1)*p = 2*(2+1)*1 = 6 < 7 =
/// n.
fn scenario(strategy: Option<&str>, seed: u64) -> Scenario {
    let faults =
        strategy.map(|strategy| format!("[[faults]]\nprocesses = [2, 5]\nstrategy = \"{strategy}\"\n"));
    let text = format!(
        "name = \"strategy\"\n\
         [instance]\nprocesses = 7\nwarp_size = 1\nread_size = 3\npatience = \"3s\"\njoin_timeout = \"3s\"\n\
         [proposals]\nvalues = [\"a\", \"c\", \"a\", \"b\", \"d\", \"a\", \"a\"]\n{}",
        faults.unwrap_or_default()
    );
    Scenario::parse("strategy.toml", &text, Some(seed)).unwrap()
}

/// What a run lacks to show what `claimed` says that it shows.
fn check(claimed: &Scenario, run: &Record) -> Result<(), String> {
    let culprits: BTreeSet<ProcessId> = claimed.truth.byzantine().collect();
    let detected = detect(&claimed.params, &claimed.truth, claimed.seed, &run.history, &run.counted);
    let at_work = detected.attackers;
    // Those who stall do so at the same time, from when they join on, so a phase may have to wait for one
    // only.
    let some_will_do = claimed
        .truth
        .assignments()
        .any(|(_, assignment)| matches!(assignment.role, Role::Byzantine(Strategy::Stall(_))));
    if at_work != culprits && (at_work.is_empty() || !some_will_do) {
        return Err(format!("not at work: {:?}", culprits.difference(&at_work)));
    }
    // The history and the reports as they are, judged by what is claimed.
    let Record { how, history, complete, counted, reports, .. } = run.clone();
    let verdict = Record::judged(claimed.clone(), how, history, complete, counted, reports).verdict;
    for (process, _) in claimed.truth.assignments() {
        let committed = detected.offences.get(&process).cloned().unwrap_or_default();
        let blamed = verdict.blame.get(&process).into_iter().flat_map(|kinds| kinds.keys().copied());
        let blamed: BTreeSet<OffenceKind> = blamed.collect();
        if blamed != committed {
            return Err(format!("process {process} commits {committed:?} and is blamed for {blamed:?}"));
        }
    }
    if verdict.decisions.len() != 5 || verdict.decision != Value::parse("a") {
        return Err(format!("the correct processes decided {:?}", verdict.decisions));
    }
    match verdict.verdict {
        Outcome::Valid => Ok(()),
        other => Err(format!("{other}: {:?}", verdict.reasons)),
    }
}

#[test]
fn all_names_are_among_them() {
    let tried: BTreeSet<&str> = ALL.iter().map(|text| text.parse::<Strategy>().unwrap().name()).collect();
    assert_eq!(tried, BTreeSet::from(Strategy::ALL_NAMES));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_strategy_is_seen_at_work_and_only_where_it_is() {
    let server = OwnServer::start().await.unwrap();
    let url = server.url().to_owned();
    let mut running = JoinSet::new();
    let turns = Arc::new(Semaphore::new(AT_A_TIME));
    // Several at a time, since most of the time they wait; on a connection of its own each, as principals are
    // the same.
    for (seed, text) in (1..).zip(ALL) {
        let (url, turns) = (url.clone(), turns.clone());
        running.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            let handle = ServerHandle::open(&url, run::COORDINATOR).await.unwrap();
            let claimed = scenario(Some(text), seed);
            let attacked = run::run(&handle, &claimed, &RunOptions::in_process()).await.unwrap();
            let correct = run::run(&handle, &scenario(None, seed), &RunOptions::in_process()).await.unwrap();
            (text, check(&claimed, &attacked), check(&claimed, &correct))
        });
    }
    while let Some(finished) = running.join_next().await {
        let (text, attacked, correct) = finished.unwrap();
        assert_eq!(attacked, Ok(()), "{text}");
        let lacks = correct.expect_err(text);
        assert!(lacks.starts_with("not at work"), "{text}: {lacks}");
    }
    server.stop().await.unwrap();
}
