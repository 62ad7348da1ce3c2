//! The folder of a run holds everything that is needed to judge it again and to replay it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use stickycas_harness::environment::Environment;
use stickycas_harness::report::folder;
use stickycas_harness::run::{self, OwnServer, RunOptions, ServerHandle};
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_model::counts::RunCounts;
use stickycas_model::history::Recorded;
use stickycas_model::judge::Verdict;
use stickycas_model::process::Report;
use stickycas_model::sim;

fn scenario(name: &str) -> Scenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/scenarios/{name}.toml"));
    Scenario::load(&path, Some(3)).unwrap()
}

fn lines<T: DeserializeOwned>(path: &Path) -> Vec<T> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Reads a folder back, replays its history and judges it again.
fn is_enough(folder: &Path, record: &Record) {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let expected = [
        "counts.json",
        "environment.json",
        "harness.json",
        "history.ndjson",
        "report.txt",
        "reports.ndjson",
        "scenario.toml",
        "verdict.json",
    ];
    assert_eq!(names, expected);

    let scenario = Scenario::load(&folder.join("scenario.toml"), None).unwrap();
    assert_eq!(scenario, record.scenario);
    let history: Vec<Recorded> = lines(&folder.join("history.ndjson"));
    assert_eq!(history, record.history);
    let counted: RunCounts = serde_json::from_slice(&fs::read(folder.join("counts.json")).unwrap()).unwrap();
    assert_eq!(counted, record.counted);
    let reports: Vec<Report> = lines(&folder.join("reports.ndjson"));

    let machine = sim::replay(&scenario.params, &history).unwrap_or_else(|difference| panic!("{difference}"));
    let list: Vec<_> = machine.list().iter().map(|entry| entry.value.clone()).collect();
    let verdict: Verdict = serde_json::from_slice(&fs::read(folder.join("verdict.json")).unwrap()).unwrap();
    assert_eq!(list, verdict.list);
    let again = Record::judged(scenario, record.how, history, true, counted, reports).verdict;
    assert_eq!(again, verdict);

    let environment: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("environment.json")).unwrap()).unwrap();
    assert_eq!(environment["version"], env!("CARGO_PKG_VERSION"));
    let report = fs::read_to_string(folder.join("report.txt")).unwrap();
    assert!(report.contains("verdict: ") && report.contains("theorem: "), "{report}");
    assert!(!report.contains('\u{1b}'), "no colours in a file");
}

#[test]
fn a_simulated_run_can_be_read_back_replayed_and_judged_again() {
    let temporary = tempfile::tempdir().unwrap();
    for name in ["quickstart", "late-append-open", "silent-minority"] {
        let record = simulate(&scenario(name));
        let to = temporary.path().join("deeper").join(name);
        let written = folder::write(&record, &Environment::here(record.how, None), Some(&to)).unwrap();
        assert_eq!(written, to);
        is_enough(&to, &record);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_run_can_be_read_replayed_and_judged_again() {
    let temporary = tempfile::tempdir().unwrap();
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap();
    for name in ["quickstart", "late-append-open"] {
        let record = run::run(&handle, &scenario(name), &RunOptions::in_process()).await.unwrap();
        let to = temporary.path().join(name);
        folder::write(&record, &Environment::here(record.how, None), Some(&to)).unwrap();
        is_enough(&to, &record);
    }
    drop(handle);
    server.stop().await.unwrap();
}

#[test]
fn nothing_is_overwritten_or_left_half_written() {
    let temporary = tempfile::tempdir().unwrap();
    let record = simulate(&scenario("one-warp"));
    let environment = Environment::here(record.how, None);
    let to = temporary.path().join("taken");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "keep me").unwrap();
    let refused = folder::write(&record, &environment, Some(&to)).unwrap_err();
    assert!(refused.to_string().contains("exists already"), "{refused}");
    let file = temporary.path().join("file");
    fs::write(&file, "keep me").unwrap();
    assert!(folder::write(&record, &environment, Some(&file)).is_err());
    let left: Vec<_> =
        fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert_eq!(fs::read_to_string(to.join("mine")).unwrap(), "keep me");
}
