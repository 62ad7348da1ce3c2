//! The client's driver against a real server: correct processes decide, Byzantine ones play their part, and a
//! process that was replaced, closed off or restarted does what SPEC F8 and F10 say.

use std::time::Duration;

use stickycas_client::{Error, InstanceEnd, ProcessSpec, RefusalReason, WaitMode};
use stickycas_model::access::Op;
use stickycas_model::byzantine::{Absent, Silent, Stall, Strategy};
use stickycas_model::history::Event;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::process::ProcessEnd;
use stickycas_model::types::{AccessNumber, Position, ProcessId};

use crate::support::{Watcher, client, instance, server, until_dropped, value};

#[tokio::test]
async fn correct_processes_decide_the_same_from_the_same_list() {
    let server = server().await;
    let params = Params::try_new(ParamsSpec::new(6, 2, 2)).unwrap();
    let coordinator = client(&server, "coordinator");
    let instance = coordinator.create_instance().params(&params).send().await.unwrap().instance.id;
    let proposals = ["a", "b", "c", "c", "c", "c"];
    let plays: Vec<_> = (1..)
        .zip(proposals)
        .map(|(number, proposal)| {
            let client = client(&server, &format!("p{number}"));
            tokio::spawn(async move { client.propose(instance, value(proposal)).await })
        })
        .collect();
    for (number, play) in (1..).zip(plays) {
        let decision = play.await.unwrap().unwrap();
        assert_eq!(decision.process.get(), number);
        assert_eq!(decision.value, value("c"), "warps 2 and 3 propose nothing else");
        assert_eq!(decision.from.len(), 3);
    }
    let counted = coordinator.counts(&[]).await.unwrap();
    assert_eq!(counted.all.streams_abandoned, 0, "each stream was ended by both sides");
}

#[tokio::test]
async fn a_process_that_was_restarted_goes_on_and_appends_once() {
    let server = server().await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let (stop, stopped) = until_dropped();
    let first_life = {
        let client = client(&server, "p1");
        tokio::spawn(async move { client.play(instance, ProcessSpec::correct(value("a")), stopped).await })
    };
    let append =
        |event: &Event| matches!(event, Event::Accepted { process: ProcessId::FIRST, op: Op::Append(_), .. });
    watcher.until(append).await;
    drop(stop);
    let report = first_life.await.unwrap().report.unwrap();
    assert!(matches!(report.ended, ProcessEnd::Failed(_)), "{report:?}");
    assert_eq!(report.unanswered, Some(AccessNumber::FIRST), "its session stood when it was stopped");

    let (first, second) = (client(&server, "p1"), client(&server, "p2"));
    // Another proposal: the append of the first life stands all the same.
    let (first, second) =
        tokio::join!(first.propose(instance, value("z")), second.propose(instance, value("a")));
    assert_eq!((first.unwrap().value, second.unwrap().value), (value("a"), value("a")));
    let history = watcher.until_the_end().await;
    assert_eq!(history.iter().filter(|event| append(event)).count(), 1);

    // A third life has nothing left to do.
    let again = client(&server, "p1").propose(instance, value("z")).await.unwrap();
    assert_eq!((again.value, again.from.len()), (value("a"), 0));
}

#[tokio::test]
async fn a_process_whose_session_was_replaced_stops_for_good() {
    let server = server().await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let older = {
        let client = client(&server, "p1");
        tokio::spawn(async move { client.propose(instance, value("a")).await })
    };
    watcher.until(|event| matches!(event, Event::Accepted { .. })).await;
    let newer = {
        let client = client(&server, "p1");
        tokio::spawn(async move { client.propose(instance, value("a")).await })
    };
    let error = older.await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::SessionReplaced), "{error}");

    let other = client(&server, "p2").propose(instance, value("a")).await.unwrap();
    assert_eq!(newer.await.unwrap().unwrap().value, other.value);
    let sessions = watcher.until_the_end().await.into_iter();
    let sessions = sessions.filter(|event| matches!(event, Event::Session { process: ProcessId::FIRST, .. }));
    assert_eq!(sessions.count(), 2, "the older one never came back");
}

#[tokio::test]
async fn a_closed_instance_ends_the_play() {
    let server = server().await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let play = {
        let client = client(&server, "p1");
        let spec = ProcessSpec::correct(value("a"));
        tokio::spawn(async move { client.play(instance, spec, std::future::pending()).await })
    };
    watcher.until(|event| matches!(event, Event::Accepted { .. })).await;
    client(&server, "coordinator").close(instance).await.unwrap();
    let played = play.await.unwrap();
    let error = played.error.unwrap();
    assert_eq!(error.reason(), Some(RefusalReason::InstanceClosed), "{error}");
    let unanswered = played.report.unwrap().unanswered;
    assert_eq!(unanswered, Some(AccessNumber::FIRST), "its session stood, and it waited for this");
}

#[tokio::test]
async fn a_value_that_is_too_large_is_refused_before_it_is_sent() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let error = client(&server, "p1").propose(instance, value(&"x".repeat(1025))).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::ValueTooLarge), "{error}");
    let stalls = Strategy::Stall(Stall { conduct: None });
    let spec = ProcessSpec::byzantine(stalls, Some(value(&"x".repeat(1025))), 0);
    let stop = tokio::time::sleep(Duration::from_secs(10));
    let error = client(&server, "p1").play(instance, spec, stop).await.error.expect("it is refused");
    assert_eq!(error.reason(), Some(RefusalReason::ValueTooLarge), "{error}");
    let status = client(&server, "coordinator").get(&stickycas_proto::names::InstanceRef::Id(instance)).await;
    assert!(status.unwrap().status.offences.shown.is_empty());
}

#[tokio::test]
async fn a_stranger_is_refused() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let error = client(&server, "stranger").propose(instance, value("a")).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::NotAMember), "{error}");
}

#[tokio::test]
async fn a_silent_process_stays_and_an_absent_one_never_joins() {
    let server = server().await;
    let instance = instance(&server, 3).await;
    let mut watcher = Watcher::new(&server, instance);
    let (stop_silent, silent_stopped) = until_dropped();
    let (stop_absent, absent_stopped) = until_dropped();
    let play = |principal: &str, strategy, stop: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let client = client(&server, principal);
        tokio::spawn(
            async move { client.play(instance, ProcessSpec::byzantine(strategy, None, 0), stop).await },
        )
    };
    let silent = play("p2", Strategy::Silent(Silent), Box::pin(silent_stopped));
    let absent = play("p3", Strategy::Absent(Absent), Box::pin(absent_stopped));
    watcher.until(|event| matches!(event, Event::Joined { process } if process.get() == 2)).await;
    assert!(!silent.is_finished() && !absent.is_finished());
    drop((stop_silent, stop_absent));

    let silent = silent.await.unwrap();
    assert_eq!(silent.report.unwrap().ended, ProcessEnd::NothingToDecide);
    assert!(silent.error.is_none() && silent.accesses == 0);
    let absent = absent.await.unwrap();
    assert!(absent.report.is_none() && absent.error.is_none());

    client(&server, "coordinator").close(instance).await.unwrap();
    let history = watcher.until_the_end().await;
    assert!(!history.iter().any(|event| matches!(event, Event::Joined { process } if process.get() == 3)));
}

fn stall() -> ProcessSpec {
    ProcessSpec::byzantine(Strategy::Stall(Stall { conduct: None }), Some(value("a")), 0)
}

#[tokio::test]
async fn a_process_at_the_last_moment_decides_like_the_others() {
    let server = server().await;
    let patience = Patience::Finite(Duration::from_millis(200));
    let params = Params::try_new(ParamsSpec { patience, ..ParamsSpec::new(2, 1, 2) }).unwrap();
    let coordinator = client(&server, "coordinator");
    let instance = coordinator.create_instance().params(&params).send().await.unwrap().instance.id;
    let (first, second) = (client(&server, "p1"), client(&server, "p2"));
    let (stalling, correct) = tokio::join!(
        first.play(instance, stall(), std::future::pending()),
        second.propose(instance, value("a"))
    );
    assert_eq!(correct.unwrap().value, value("a"));
    assert_eq!(stalling.report.unwrap().decision, Some(value("a")));
}

#[tokio::test]
async fn the_last_moment_of_an_endless_patience_never_comes() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let mut watcher = Watcher::new(&server, instance);
    let joined = watcher.until(|event| matches!(event, Event::GatheringEnded { .. }));
    let played = client(&server, "p1").play(instance, stall(), joined).await;
    assert_eq!(played.accesses, 0);
    assert!(played.error.is_none());
}

#[tokio::test]
async fn accesses_by_hand_are_answered_again_under_the_same_number() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let client = client(&server, "p1");
    let params = client.get(&stickycas_proto::names::InstanceRef::Id(instance)).await.unwrap();
    let params = params.instance.parameters;
    let number = AccessNumber::FIRST;
    let appended = client.append(instance, number, &value("a"), WaitMode::UntilPhase).await.unwrap();
    assert_eq!(client.append(instance, number, &value("a"), WaitMode::UntilPhase).await.unwrap(), appended);
    let other = client.append(instance, number, &value("b"), WaitMode::UntilPhase).await.unwrap_err();
    assert_eq!(other.reason(), Some(RefusalReason::AccessContentDiffers), "{other}");

    let read = client
        .read(instance, &params, number.next(), Position::default(), WaitMode::UntilPhase)
        .await
        .unwrap();
    assert_eq!((read.values, read.length, read.sealed), (vec![value("a")], 1, true));
    client.decide(instance, &value("a")).await.unwrap();
    client.decide(instance, &value("a")).await.unwrap();
    let other = client.decide(instance, &value("b")).await.unwrap_err();
    assert_eq!(other.reason(), Some(RefusalReason::DecisionDiffers), "{other}");
}

#[tokio::test]
async fn an_append_that_does_not_wait_uses_up_no_number() {
    let server = server().await;
    let instance = instance(&server, 2).await;
    let first = client(&server, "p1");
    let number = AccessNumber::FIRST;
    let error = first.append(instance, number, &value("a"), WaitMode::NoWait).await.unwrap_err();
    assert!(matches!(&error, Error::Refused(refused) if refused.reason == RefusalReason::NotYourPhase));
    let (second, a, b) = (client(&server, "p2"), value("a"), value("b"));
    let (first, second) = tokio::join!(
        first.append(instance, number, &a, WaitMode::UntilPhase),
        second.append(instance, number, &b, WaitMode::UntilPhase)
    );
    assert_eq!((first.unwrap().phase.get(), second.unwrap().phase.get()), (1, 2));
}

#[tokio::test]
async fn every_operation_takes_the_name_of_the_instance() {
    let server = server().await;
    let coordinator = client(&server, "coordinator");
    let created = coordinator.create_instance().name("demo").processes(1).send().await.unwrap();
    assert!(created.created && coordinator.get("demo").await.unwrap().own.is_none());
    let other = coordinator.create_instance().name("demo").processes(2).send().await.unwrap_err();
    assert_eq!(other.reason(), Some(RefusalReason::NameTaken), "{other}");
    let process = client(&server, "p1");
    assert!(matches!(process.propose("demo", "").await, Err(Error::InvalidArgument(_))));
    assert_eq!(process.propose("demo", vec![0xff]).await.unwrap().value.as_bytes(), [0xff]);
    let end = coordinator.wait_for_end("demo").await.unwrap();
    assert!(matches!(end, InstanceEnd::Finished), "{end:?}");
    coordinator.close("demo").await.unwrap();
}
