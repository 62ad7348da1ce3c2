//! Who may report what, and what becomes of it.

use stickycas_harness::Record;
use stickycas_model::judge::Outcome;
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::Phase;
use stickycas_proto::convert::report::ProcessReport;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1::RefusalReason;

use super::client_support::value;
use super::external_run::{ExternalRun, JudgeAtWork, SCENARIO, assert_verdict};

fn coffee() -> ProcessReport {
    ProcessReport {
        decision: Some(value("coffee")),
        phase: Phase::new(9),
        from: vec![value("coffee")],
        ended: ProcessEnd::Decided,
        refusal: None,
        unanswered: None,
        proposal: None,
        reconnections: 0,
    }
}

/// A judge that waits for everybody.
async fn waiting() -> (ExternalRun, impl Drop, JudgeAtWork, InstanceId) {
    struct Kept<T>(#[allow(dead_code)] T);
    impl<T> Drop for Kept<T> {
        fn drop(&mut self) {}
    }
    let meeting = ExternalRun::new(SCENARIO).await;
    let server = meeting.start_server().await;
    let judge = meeting.start_judge(1).await;
    let instance = meeting.instance().await;
    (meeting, Kept(server), judge, instance)
}

#[tokio::test]
async fn a_stranger_cannot_report() {
    let (meeting, _server, _judge, instance) = waiting().await;
    for stranger in ["process-7", "process-0", "judge", "mallory"] {
        let error = meeting.at_the_desk(stranger).report(instance, &coffee()).await.unwrap_err();
        assert_eq!(error.reason(), Some(RefusalReason::NotAMember), "{stranger}: {error}");
    }
}

#[tokio::test]
async fn an_instance_that_is_not_judged_here_is_unknown_for_good() {
    let (meeting, _server, _judge, _) = waiting().await;
    let error = meeting.at_the_desk("process-1").report(InstanceId::new(1), &coffee()).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::InstanceUnknown), "{error}");
    assert!(!error.may_retry());
}

#[tokio::test]
async fn a_report_that_does_not_fit_the_instance_is_malformed() {
    let (meeting, _server, _judge, instance) = waiting().await;
    let too_much = ProcessReport { from: vec![value("coffee"); 7], ..coffee() };
    let error = meeting.at_the_desk("process-1").report(instance, &too_much).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::Malformed), "{error}");
    assert!(error.to_string().contains("entries are more than a list can hold"), "{error}");
}

#[tokio::test]
async fn reports_of_byzantine_processes_are_kept_and_not_judged() {
    let (mut meeting, _server, mut judge, instance) = waiting().await;
    let liar = meeting.at_the_desk("process-6");
    let lie = tokio::spawn(async move { liar.report(instance, &coffee()).await });
    for process in 1..=5 {
        meeting.start(process, "--value tea");
    }
    meeting.start_without_report(6, "--strategy silent");
    let (_, record) = judge.next().await;
    assert_verdict(&record, Outcome::Valid);
    assert_eq!(told_coffee(&record), [6]);
    assert_eq!(lie.await.unwrap().unwrap(), Outcome::Valid, "everybody is told");
}

#[tokio::test]
async fn a_newer_report_takes_the_place_of_the_older_one() {
    let (meeting, _server, _judge, instance) = waiting().await;
    let process = meeting.at_the_desk("process-1");
    let older = tokio::spawn({
        let process = process.clone();
        async move { process.report(instance, &coffee()).await }
    });
    let mut newer = tokio::spawn(async move {
        // Whichever comes second replaces the other.
        process.report(instance, &coffee()).await
    });
    let mut older = older;
    let refused = tokio::select! {
        refused = &mut older => refused,
        refused = &mut newer => refused,
    };
    assert_eq!(refused.unwrap().unwrap_err().reason(), Some(RefusalReason::SessionReplaced));
}

#[tokio::test]
async fn a_newer_report_replaces_the_older_one() {
    let meeting = ExternalRun::new(SCENARIO).await;
    let _judge = meeting.start_judge(1).await;
    let process = meeting.at_the_desk("process-1");
    let calls: [_; 2] = std::array::from_fn(|_| {
        let process = process.clone();
        tokio::spawn(async move { process.report(InstanceId::new(1), &coffee()).await })
    });
    let [mut one, mut other] = calls;
    let refused = tokio::select! {
        refused = &mut one => refused,
        refused = &mut other => refused,
    };
    assert_eq!(refused.unwrap().unwrap_err().reason(), Some(RefusalReason::SessionReplaced));
}

fn told_coffee(record: &Record) -> Vec<u32> {
    let coffee = value("coffee");
    let told = record.reports.iter().filter(|report| report.decision.as_ref() == Some(&coffee));
    told.map(|report| report.process.get()).collect()
}
