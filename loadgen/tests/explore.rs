//! The exhaustive search as a program: what it reports, and that its witness splits real processes too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_loadgen::explore::{Options, explore, table};
use stickycas_loadgen::run::{self, OwnServer, Site};
use stickycas_loadgen::{Record, Scenario, simulate};
use stickycas_model::explore::Claim;
use stickycas_model::judge::{Observed, Outcome, Property};

fn options(claims: &[Claim], largest: u32) -> Options {
    Options { claims: claims.to_vec(), largest: Some(largest), jobs: 2 }
}

fn is_split(record: &Record) {
    let verdict = &record.verdict;
    assert_eq!(verdict.verdict, Outcome::Outside, "{:?}", verdict.reasons);
    for property in Property::ALL {
        let expected = if property == Property::Agreement { Observed::Violated } else { Observed::Held };
        assert_eq!(verdict.finding(property).0, expected, "{property}");
    }
    let decisions: Vec<String> =
        verdict.decisions.values().map(|decision| decision.value.to_string()).collect();
    assert_eq!(decisions, ["b", "a", "a"], "as the search found it");
    // Inside the bound: the paper promises agreement here.
    assert!(verdict.strong_validity_promised);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shortest_disagreement_is_a_scenario_that_splits_real_processes() {
    let report = explore(&options(&[Claim::A], 4), &AtomicBool::new(false), |_, _| {}).unwrap();
    assert!(report.holds());
    let text = report.witness.unwrap();
    let scenario = Scenario::parse("witness.toml", &text, Some(1)).unwrap();
    assert_eq!(scenario.expect, Some(Outcome::Outside));
    assert_eq!((scenario.params.processes(), scenario.params.read_size()), (4, 4));
    is_split(&simulate(&scenario));
    let server = OwnServer::start().await.unwrap();
    let site = Site::open(server.url(), run::COORDINATOR).await.unwrap();
    is_split(&run::run(&site, &scenario, &run::Options::in_process()).await.unwrap());
    drop(site);
    server.stop().await.unwrap();
}

#[test]
fn rows_come_by_claim_part_and_n_whichever_search_ends_first() {
    let report = explore(&options(&[Claim::C, Claim::B], 2), &AtomicBool::new(false), |_, _| {}).unwrap();
    assert!(report.holds());
    assert_eq!(report.witness, None);
    let rows: Vec<(&str, u32, u64)> =
        report.rows.iter().map(|row| (row.claim.as_str(), row.n, row.searches)).collect();
    let b = [("b", 1, 1), ("b", 2, 4), ("b", 1, 1), ("b", 1, 1), ("b", 1, 1), ("b", 2, 4)];
    let c = [("c", 1, 1), ("c", 2, 2), ("c", 1, 1), ("c", 2, 2)];
    assert_eq!(rows, [b.as_slice(), c.as_slice()].concat());
}

#[test]
fn an_interrupted_search_reports_what_was_searched() {
    let stop = AtomicBool::new(false);
    let look = |done, _| stop.store(done >= 3, Ordering::Relaxed);
    let report = explore(&options(&[Claim::B, Claim::C], 4), &stop, look).unwrap();
    let made: u64 = report.rows.iter().map(|row| row.searches).sum();
    assert!(report.interrupted && report.holds() && made >= 3, "{report:?}");
    assert!(
        made < report.planned && report.planned == report.rows.iter().map(|row| row.planned).sum::<u64>()
    );
    let text = table(&report);
    let left =
        format!("interrupted: {} of {} searches were not made\n", report.planned - made, report.planned);
    assert!(text.contains(&left) && !text.contains("every claim holds"), "{text}");
}

#[test]
fn the_program_writes_the_witness_and_says_by_its_exit_code_whether_the_claims_hold() {
    let folder = tempfile::tempdir().unwrap();
    let loadgen = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_stickycas-loadgen");
        Command::new(program).args(arguments).current_dir(folder.path()).output().unwrap()
    };
    let arguments = ["explore", "--claim", "a", "--max-n", "4", "--json", "--out", "witness.toml"];
    let output = loadgen(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = fs::read_to_string(folder.path().join("witness.toml")).unwrap();
    assert_eq!(report["witness"], written);
    assert!(report["rows"][0]["states"].as_u64().unwrap() > 0);
    let taken = loadgen(&arguments);
    assert_eq!(taken.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&taken.stderr).contains("exists already"));
    let output = loadgen(&["simulate", "witness.toml", "--expect", "outside", "--out", "run"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    for (arguments, why) in [
        (["explore", "--claim", "e", "--json"], "give a, b, c or d"),
        (["explore", "--claim", "c", "--max-n=40"], "too many to search"),
    ] {
        let output = loadgen(&arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{arguments:?}");
    }
}
