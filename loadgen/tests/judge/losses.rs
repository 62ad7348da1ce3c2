//! A judge that is restarted, a server that loses its memory.

use stickycas_model::history::Event;
use stickycas_model::judge::Outcome;
use stickycas_model::process::ProcessEnd;

use super::external_run::{ExternalRun, SCENARIO, assert_says, assert_verdict};

#[tokio::test]
async fn a_restarted_judge_goes_on_with_the_same_instance() {
    // Process 5 comes late, so that the others have decided and reported when the judge is dropped.
    let late = SCENARIO
        .replace("name =", "late = [5]\nname =")
        .replace("[instance]", "[instance]\njoin_timeout = \"5s\"");
    let mut meeting = ExternalRun::new(&late).await;
    let _server = meeting.start_server().await;
    let judge = meeting.start_judge(1).await;
    for process in 1..=4 {
        meeting.start(process, "--value tea");
    }
    meeting.start(6, "--strategy silent");
    let instance = meeting.instance().await;
    meeting.until(4, |event| matches!(event, Event::Decided { .. })).await;
    meeting.judge.redirect(None);
    meeting.judge.cut();
    judge.drop().await;

    let mut judge = meeting.start_judge(1).await;
    meeting.start(5, "--value tea");
    let (again, record) = judge.next().await;
    assert_eq!(again, instance);
    assert_verdict(&record, Outcome::Valid);
    assert!(record.complete, "it was followed from its first event");
    // The silent one may have heard that the instance was closed, and have reported too.
    let correct = record.reports.iter().filter(|report| report.process.get() != 6);
    assert_eq!(correct.filter(|report| !report.from.is_empty()).count(), 5, "each has reported again");
}

#[tokio::test]
async fn a_server_that_loses_its_memory_ends_the_instance() {
    let standing = SCENARIO.replace("[instance]", "[instance]\npace = \"1h\"");
    let mut meeting = ExternalRun::new(&standing).await;
    let server = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    let printed = meeting.start_all();
    meeting.until(6, |event| matches!(event, Event::Joined { .. })).await;
    meeting.server.redirect(None);
    meeting.server.cut();
    server.stop().await.unwrap();

    let _without_memory = meeting.start_server().await;
    let (instance, record) = judge.next().await;
    assert_verdict(&record, Outcome::Unknown);
    assert_says(&record, &format!("the server does not know instance {instance} any more"));
    assert_eq!(record.told_unknown, 6);
    assert_says(&record, "6 of 6 processes were told that the instance is unknown");
    judge.end().await;
    for client in printed {
        let records = client.records();
        assert_eq!(records.len(), 1);
        assert!(matches!(records[0].ended, ProcessEnd::Failed(_)), "{:?}", records[0]);
        assert_eq!(records[0].error.as_ref().unwrap().reason.as_deref(), Some("INSTANCE_UNKNOWN"));
    }
}

#[tokio::test]
async fn a_series_goes_on_after_the_server_has_lost_its_memory() {
    let slow = SCENARIO.replace("[instance]", "[instance]\npace = \"40ms\"");
    let mut meeting = ExternalRun::new(&slow).await;
    let server = meeting.start_server().await;
    let mut judge = meeting.start_judge(2).await;
    let _printed = meeting.start_all();
    meeting.until(1, |event| matches!(event, Event::Stepped { .. })).await;
    meeting.server.redirect(None);
    meeting.server.cut();
    server.stop().await.unwrap();

    let _without_memory = meeting.start_server().await;
    assert_verdict(&judge.next().await.1, Outcome::Unknown);
    assert_verdict(&judge.next().await.1, Outcome::Valid);
}

#[tokio::test]
async fn a_judge_that_comes_back_to_a_server_without_memory_says_so() {
    let standing = SCENARIO.replace("[instance]", "[instance]\npace = \"1h\"");
    let mut meeting = ExternalRun::new(&standing).await;
    let server = meeting.start_server().await;
    let judge = meeting.start_judge(1).await;
    let _printed = meeting.start_all();
    let instance = meeting.instance().await;
    meeting.until(6, |event| matches!(event, Event::Joined { .. })).await;
    judge.drop().await;
    meeting.server.redirect(None);
    meeting.server.cut();
    server.stop().await.unwrap();

    let _without_memory = meeting.start_server().await;
    let mut judge = meeting.start_judge(1).await;
    let (again, record) = judge.next().await;
    assert_eq!(again, instance);
    assert_verdict(&record, Outcome::Unknown);
    assert_says(&record, &format!("the server does not know instance {instance} any more"));
    assert_eq!(record.told_unknown, 6);
    assert_says(&record, "6 of 6 processes were told");
}

#[tokio::test]
async fn a_judge_with_another_request_closes_the_old_instance() {
    let standing = SCENARIO.replace("[instance]", "[instance]\npace = \"1h\"");
    let mut meeting = ExternalRun::new(&standing).await;
    let _server = meeting.start_server().await;
    let judge = meeting.start_judge(1).await;
    let printed = meeting.start_all();
    let left = meeting.instance().await;
    meeting.until(6, |event| matches!(event, Event::Joined { .. })).await;
    judge.drop().await;

    meeting.ask_for(SCENARIO);
    let mut judge = meeting.start_judge(1).await;
    let (instance, record) = judge.next().await;
    assert_ne!(instance, left);
    assert_verdict(&record, Outcome::Valid);
    judge.end().await;
    for client in printed {
        assert_eq!(client.records()[0].instance, left.to_string(), "it went on from there");
    }
}
