//! A correct process sends ahead (SPEC F7): how few messages that takes, and what it comes to when they are
//! refused or lost, or when the process has acted before.

use std::sync::Arc;

use stickycas_client::{ProcessSpec, RefusalReason};
use stickycas_proto::names::InstanceRef;

use crate::scripted_server::{Reaction, Scripted, World, client_of};
use crate::support::{FOR_EVER, client, instance, server, value};

const ONE: stickycas_client::InstanceId = stickycas_client::InstanceId::new(1);

#[tokio::test]
async fn hello_append_and_read_are_one_message_and_the_decision_ends_the_stream() {
    let server = Scripted::start(&Arc::<World>::default());
    let client = client_of(&[&server], FOR_EVER);
    assert_eq!(client.propose("demo", "x").await.unwrap().value, value("x"));
    assert_eq!(server.messages(), [3, 1, 0]);
    // Another life: its hello waits for the welcome, which tells where to go on.
    assert_eq!(client.propose("demo", "x").await.unwrap().value, value("x"));
    assert_eq!(server.messages(), [1, 1, 1, 0]);
}

#[tokio::test]
async fn of_an_instance_that_was_not_looked_up_append_and_read_follow_the_welcome() {
    let server = Scripted::start(&Arc::<World>::default());
    client_of(&[&server], FOR_EVER).propose(ONE, "x").await.unwrap();
    assert_eq!(server.messages(), [1, 2, 1, 0]);
}

#[tokio::test]
async fn what_was_sent_ahead_and_refused_for_its_rate_is_sent_again_together() {
    let server = Scripted::start(&Arc::<World>::default());
    let client = client_of(&[&server], FOR_EVER);
    server.react(ONE, Reaction::Busy("access", 2));
    assert_eq!(client.propose("demo", "x").await.unwrap().value, value("x"));
    assert_eq!(server.messages(), [3, 2, 1, 0]);
}

#[tokio::test]
async fn a_decision_that_was_refused_for_its_rate_is_sent_on_another_stream() {
    let server = Scripted::start(&Arc::<World>::default());
    let client = client_of(&[&server], FOR_EVER);
    server.react(ONE, Reaction::Busy("decision", 1));
    assert_eq!(client.propose("demo", "x").await.unwrap().value, value("x"));
    assert_eq!(server.messages(), [3, 1, 0, 1, 1, 0]);
}

#[tokio::test]
async fn what_follows_a_refused_hello_is_sent_again_to_the_owner() {
    let world = Arc::<World>::default();
    let (a, b) = (Scripted::start(&world), Scripted::start(&world));
    a.react(ONE, Reaction::NotOwner(b.owner(7)));
    assert_eq!(client_of(&[&a, &b], FOR_EVER).propose("demo", "x").await.unwrap().value, value("x"));
    // It does not rely on that nothing happened: one after the other.
    assert_eq!((a.messages().first(), b.messages()), (Some(&3), vec![2, 1, 1, 0]));
    for server in [&a, &b] {
        assert!(server.times_asked("access") <= 2, "{:?}", server.asked());
    }
}

#[tokio::test]
async fn a_value_that_is_too_large_is_not_sent_ahead() {
    let server = server().await;
    let created = client(&server, "coordinator").create_instance().name("demo").processes(1).send().await;
    let id = created.unwrap().instance.id;
    let error = client(&server, "p1").propose("demo", "x".repeat(1025)).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::ValueTooLarge), "{error}");
    let view = client(&server, "coordinator").get(&InstanceRef::Id(id)).await.unwrap();
    assert!(view.status.offences.shown.is_empty());
}

#[tokio::test]
async fn a_process_that_has_acted_since_it_was_looked_up_is_told_so() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let process = client(&server, "p1");
    let view = process.get(instance).await.unwrap();
    process.propose(instance, "a").await.unwrap();
    let play = async |proposal: &str| {
        let spec = ProcessSpec::correct(value(proposal)).having_seen(&view);
        process.play(instance, spec, std::future::pending()).await
    };
    let same = play("a").await;
    assert_eq!(same.report.unwrap().decision, Some(value("a")), "{:?}", same.error);
    let other = play("b").await.error.expect("another append was made");
    assert_eq!(other.reason(), Some(RefusalReason::ProcessLeft), "{other}");
    let view = process.get(instance).await.unwrap();
    assert!(view.status.offences.shown.is_empty(), "{:?}", view.status.offences);
    assert_eq!(view.status.length, 1);
}
