//! The exhaustive search: what it reports, and that its witness splits real processes too.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test helper fails the test")]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use stickycas_harness::run::{self, OwnServer, ServerHandle};
use stickycas_harness::{Record, Scenario, simulate};
use stickycas_lab::explore::{ExploreOptions, explore};
use stickycas_model::explore::Claim;
use stickycas_model::judge::{Observed, Outcome, Property};

fn options(claims: &[Claim], largest: u32) -> ExploreOptions {
    let (claims, jobs) = (claims.to_vec(), NonZeroUsize::new(2).unwrap());
    ExploreOptions { claims, largest: Some(largest), append_rounds: None, jobs }
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
async fn the_shortest_disagreement_splits_real_processes() {
    let report = explore(&options(&[Claim::A], 4), &AtomicBool::new(false), |_, _| {}).unwrap();
    assert!(report.holds());
    let text = report.witness.unwrap();
    let scenario = Scenario::parse("witness.toml", &text, Some(1)).unwrap();
    assert_eq!(scenario.expect, Some(Outcome::Outside));
    assert_eq!((scenario.params.processes(), scenario.params.read_size()), (4, 4));
    is_split(&simulate(&scenario));
    let server = OwnServer::start().await.unwrap();
    let handle = ServerHandle::open(server.url(), run::COORDINATOR).await.unwrap();
    is_split(&run::run(&handle, &scenario, &run::RunOptions::in_process()).await.unwrap());
    drop(handle);
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
    let text = report.to_string();
    let left =
        format!("interrupted: {} of {} searches were not made\n", report.planned - made, report.planned);
    assert!(text.contains(&left) && !text.contains("every claim holds"), "{text}");
}
