//! What is judged when everybody stays.

use std::time::Duration;

use stickycas_faults::Plan;
use stickycas_model::judge::{Observed, Outcome};
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::AccessNumber;

use super::external_run::{ExternalRun, SCENARIO, assert_says, assert_verdict};

#[tokio::test]
async fn processes_server_and_judge_start_in_any_order() {
    let mut meeting = ExternalRun::new(SCENARIO).await;
    let mut printed = vec![meeting.start(1, "--value tea"), meeting.start(6, "--strategy silent")];
    let _server = meeting.start_server().await;
    printed.push(meeting.start(2, "--value tea"));
    let mut judge = meeting.start_judge(2).await;
    let first_instance = meeting.instance().await;
    for process in 3..=5 {
        printed.push(meeting.start(process, "--value tea"));
    }
    let (first, record) = judge.next().await;
    assert_eq!(first, first_instance);
    assert_verdict(&record, Outcome::Valid);
    assert_eq!(record.scenario.seed, 7);
    // The silent one may have heard that the instance was closed, and have reported too.
    let correct = record.reports.iter().filter(|report| report.process.get() != 6);
    assert_eq!(correct.filter(|report| !report.from.is_empty()).count(), 5, "{:?}", record.reports);
    let (second, record) = judge.next().await;
    assert_ne!(second, first);
    assert_verdict(&record, Outcome::Valid);
    assert_eq!(record.scenario.seed, 8);
    judge.end().await;

    let instances = |printed: &super::external_run::Printed| -> Vec<String> {
        printed.records().into_iter().map(|record| record.instance).collect()
    };
    for correct in printed.iter().filter(|printed| printed.records()[0].strategy == "correct") {
        assert_eq!(instances(correct), [first.to_string(), second.to_string()]);
        assert!(correct.records().iter().all(|record| record.ended == ProcessEnd::Decided));
    }
    let silent = printed[1].records();
    assert_eq!(silent[0].strategy, "silent");
    assert_eq!(silent[0].instance, first.to_string(), "it was noticed that the instance was over");
}

#[tokio::test]
async fn who_decides_and_never_reports_is_taken_by_its_decision() {
    let mut meeting = ExternalRun::new(SCENARIO).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    for process in [1, 3, 4, 5] {
        meeting.start(process, "--value tea");
    }
    meeting.start_without_report(2, "--value tea");
    meeting.start_without_report(6, "--strategy silent");
    let (_, record) = judge.next().await;
    assert_verdict(&record, Outcome::Valid);
    let without_from: Vec<u32> = record
        .reports
        .iter()
        .filter(|report| report.from.is_empty())
        .map(|report| report.process.get())
        .collect();
    assert_eq!(without_from, [2]);
    assert_eq!(record.reports.len(), 5);
}

#[tokio::test]
async fn a_process_of_others_is_not_awaited_and_may_do_anything() {
    let mut meeting = ExternalRun::new(&SCENARIO.replace("silent", "external")).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    for process in 1..=5 {
        meeting.start(process, "--value tea");
    }
    meeting.start(6, "--strategy repeat-append");
    let (_, record) = judge.next().await;
    assert_verdict(&record, Outcome::Valid);
    let verdict = record.verdict;
    assert_eq!(verdict.f, 1);
    assert_eq!(verdict.byzantine.into_values().collect::<Vec<_>>(), ["external"]);
    assert!(verdict.fired.is_empty(), "{:?}", verdict.fired);
    assert_eq!(verdict.named, verdict.culprits, "its offences are on record like any other's");
}

#[tokio::test]
async fn a_process_of_others_need_not_come() {
    let scenario =
        SCENARIO.replace("silent", "external").replace("patience", "join_timeout = \"5s\"\npatience");
    let mut meeting = ExternalRun::new(&scenario).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    for process in 1..=5 {
        meeting.start(process, "--value tea");
    }
    assert_verdict(&judge.next().await.1, Outcome::Valid);
}

#[tokio::test]
async fn a_correct_process_with_another_proposal_makes_it_unknown() {
    let mut meeting = ExternalRun::new(SCENARIO).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    for process in [1, 2, 4, 5] {
        meeting.start(process, "--value tea");
    }
    meeting.start(3, "--value coffee");
    meeting.start(6, "--strategy silent");
    let (_, record) = judge.next().await;
    assert_verdict(&record, Outcome::Unknown);
    assert_says(&record, "process 3 is correct and proposed coffee, where the scenario has tea");
}

#[tokio::test]
async fn other_proposals_of_all_correct_processes_are_no_violation() {
    let mut meeting = ExternalRun::new(SCENARIO).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    for process in 1..=5 {
        meeting.start(process, "--value coffee");
    }
    meeting.start(6, "--strategy silent");
    let (_, record) = judge.next().await;
    assert_says(&record, "strong validity was promised and broke");
    assert_says(&record, "process 5 is correct and proposed coffee, where the scenario has tea");
    assert_verdict(&record, Outcome::Unknown);
}

#[tokio::test]
async fn an_attack_on_the_wire_is_awaited_and_seen_to_fire() {
    let scenario = SCENARIO.replace("strategy = \"silent\"", "attack = \"flood(frames=400)\"");
    let mut meeting = ExternalRun::new(&scenario).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(2).await;
    for process in 1..=5 {
        meeting.start(process, "--value tea");
    }
    meeting.start(6, "--attack flood(frames=400)");
    for _ in 0..2 {
        let (_, record) = judge.next().await;
        assert_verdict(&record, Outcome::Valid);
        assert!(record.verdict.fired.values().all(|fired| *fired > 0), "{:?}", record.verdict.fired);
        assert_eq!(record.verdict.fired.len(), 1);
    }
}

#[tokio::test]
async fn a_process_that_a_plan_kills_is_faulty_and_not_awaited() {
    let plan = r#"
        name = "killed"
        expect = "valid"
        faulty = [5]
        [instance]
        join_timeout = "5s"
        [[steps]]
        when = "before"
        do = "kill"
        services = ["process-5"]
    "#;
    let plan = Plan::parse("killed.toml", plan).unwrap();
    let mut meeting = ExternalRun::new(SCENARIO).await;
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge_with(1, Some(plan)).await;
    for process in 1..=4 {
        meeting.start(process, "--value tea");
    }
    meeting.start(6, "--strategy silent");
    let (_, record) = judge.next().await;
    assert_verdict(&record, Outcome::Valid);
    assert_eq!(record.verdict.f, 2);
    assert!(!record.verdict.strong_validity_promised);
    assert_eq!(record.scenario.truth.faulty().len(), 1);
}

#[tokio::test]
async fn an_access_that_is_never_answered_breaks_termination() {
    let scenario = SCENARIO.replace("patience = \"100ms\"", "patience = \"none\"\njoin_timeout = \"5s\"");
    let mut meeting = ExternalRun::new(&scenario).await;
    meeting.stall = Duration::from_secs(5);
    let _server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    meeting.start_all();
    let (_, record) = judge.next().await;
    let fifth = record.reports.iter().find(|report| report.process.get() == 5).unwrap();
    assert_eq!(
        fifth.unanswered,
        Some(AccessNumber::FIRST),
        "it waits for process 6, which stays silent for ever"
    );
    assert_eq!(
        (record.verdict.termination, record.verdict.termination_promised),
        (Observed::Violated, false)
    );
    let answerless = "process 5 has not decided: its access 1 was accepted and never answered";
    assert!(format!("{:?}", record.verdict).contains(answerless), "{:#?}", record.verdict);
    assert_verdict(&record, Outcome::Outside);
}
