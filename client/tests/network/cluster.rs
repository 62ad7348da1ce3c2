//! The client among several servers of which one owns each instance.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stickycas_client::{
    AccessNumber, Client, Error, InstanceId, MAX_REDIRECTS, ProcessSpec, RefusalReason, RetryPolicy,
    WaitMode, WatchFrom,
};

use crate::scripted_server::{Pausable, Reaction, Scripted, World, client_of};
use crate::support::{FOR_EVER, value};

const ONE: InstanceId = InstanceId::new(1);
const TWO: InstanceId = InstanceId::new(2);
/// Time for a few tries.
const SOON: Duration = Duration::from_millis(50);
/// Time for an answer on a slow machine.
const SOME_TIME: Duration = Duration::from_secs(3);

fn servers<const N: usize>() -> [Scripted; N] {
    let world = Arc::<World>::default();
    let mut servers = Vec::new();
    for _ in 0..N {
        servers.push(Scripted::start(&world));
    }
    servers.try_into().unwrap_or_else(|_| unreachable!("as many were started"))
}

async fn decides(client: &Client, instance: InstanceId, proposal: &str) {
    let played = client.play(instance, ProcessSpec::correct(value(proposal)), std::future::pending()).await;
    assert!(played.error.is_none(), "{played:?}");
    assert_eq!(played.report.unwrap().decision, Some(value(proposal)));
    assert_eq!(played.accesses, 2, "each access counts once, however often it was asked");
}

#[tokio::test]
async fn a_redirect_is_followed_by_sessions_calls_and_watches_and_remembered() {
    let [a, b] = servers();
    a.react_to_all(Reaction::NotOwner(b.owner(7)));
    let client = client_of(&[&a, &b], FOR_EVER);
    decides(&client, ONE, "x").await;
    client.decide(ONE, value("x")).await.unwrap();
    assert_eq!(a.asked(), [format!("hello {ONE}")], "the decision went to the owner at once");
    assert_eq!(b.times_asked("access"), 2);
    client.close(TWO).await.unwrap();
    assert_eq!((a.times_asked("close"), b.times_asked("close")), (1, 1));
    let three = InstanceId::new(3);
    assert!(client.watch(three, WatchFrom::Start).try_next().await.unwrap().is_none());
    assert_eq!((a.times_asked("watch"), b.times_asked("watch")), (1, 1));
}

#[tokio::test]
async fn a_connection_asks_its_own_server_alone() {
    let [a, b] = servers();
    a.react_to_all(Reaction::NotOwner(b.owner(7)));
    a.names(&[&a, &b]);
    let client = client_of(&[&a], FOR_EVER);
    // By now the client knows the owner.
    client.close(ONE).await.unwrap();
    for _ in 0..2 {
        let refused = client.connection().get(ONE).await.unwrap_err();
        assert_eq!(refused.reason(), Some(RefusalReason::NotOwner), "{refused}");
    }
    assert_eq!((a.times_asked("get"), b.times_asked("get")), (2, 0));
}

#[tokio::test]
async fn a_caller_that_does_not_wait_is_redirected_too() {
    let [a, b] = servers();
    a.react_to_all(Reaction::NotOwner(b.owner(7)));
    let client = client_of(&[&a, &b], FOR_EVER);
    let appended = client.append(ONE, AccessNumber::FIRST, value("x"), WaitMode::NoWait).await.unwrap();
    assert_eq!(appended.phase.get(), 1);
}

#[tokio::test]
async fn two_owners_are_two_servers_of_one_client() {
    let [a, b] = servers();
    a.react(TWO, Reaction::NotOwner(b.owner(3)));
    b.react(ONE, Reaction::NotOwner(a.owner(4)));
    let client = client_of(&[&a, &b], FOR_EVER);
    tokio::join!(decides(&client, ONE, "x"), decides(&client, TWO, "y"));
    for (owner, instance) in [(&a, ONE), (&b, TWO)] {
        for access in 1..=2 {
            assert_eq!(owner.times_asked(&format!("access {access} of {instance}")), 1);
        }
        assert_eq!(owner.times_asked("access"), 2, "{:?}", owner.asked());
    }
}

#[tokio::test]
async fn servers_that_name_each_other_end_after_a_bounded_number_of_redirects() {
    let [a, b] = servers();
    let client = client_of(&[&a, &b], Duration::ZERO);
    // The same epoch: one of them contradicts what is known.
    a.react_to_all(Reaction::NotOwner(b.owner(5)));
    b.react_to_all(Reaction::NotOwner(a.owner(5)));
    let error = client.close(ONE).await.unwrap_err();
    assert!(matches!(error, Error::GaveUp { tries: 1, .. }), "{error}");
    assert_eq!(error.reason(), Some(RefusalReason::NotOwner));
    assert!(!error.may_retry());
    assert_eq!(a.asked().len() + b.asked().len(), 2);
}

#[tokio::test]
async fn a_chain_of_ever_newer_owners_is_left_after_its_bound() {
    let chain: [Scripted; 8] = servers();
    for (epoch, pair) in (1..).zip(chain.windows(2)) {
        pair[0].react_to_all(Reaction::NotOwner(pair[1].owner(epoch)));
    }
    let all: Vec<&Scripted> = chain.iter().collect();
    let error = client_of(&all, Duration::ZERO).close(ONE).await.unwrap_err();
    assert!(matches!(error, Error::GaveUp { tries: 1, .. }), "{error}");
    let asked: Vec<usize> = chain.iter().map(|server| server.asked().len()).collect();
    assert_eq!(asked.iter().sum::<usize>(), 1 + MAX_REDIRECTS as usize, "{asked:?}");
    // After a pause it goes on from there.
    client_of(&all, FOR_EVER).close(ONE).await.unwrap();
    assert_eq!(chain[7].times_asked("close"), 1);
}

#[tokio::test]
async fn an_older_epoch_is_ignored() {
    let [a, b, c] = servers();
    let client = client_of(&[&a, &b, &c], FOR_EVER);
    a.react_to_all(Reaction::NotOwner(b.owner(9)));
    client.close(ONE).await.unwrap();
    // The owner moves on, and one server after the other still names an older owner that would answer.
    a.react_to_all(Reaction::NotOwner(c.owner(8)));
    b.react_to_all(Reaction::NotOwner(c.owner(8)));
    let patient =
        client.clone().with_retry(RetryPolicy { give_up_after: Duration::ZERO, ..client.retry_policy() });
    let error = patient.close(ONE).await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::NotOwner), "{error}");
    assert_eq!(c.asked(), Vec::<String>::new());
    b.react_to_all(Reaction::NotOwner(c.owner(10)));
    client.close(ONE).await.unwrap();
    assert_eq!(c.times_asked("close"), 1);
}

#[tokio::test]
async fn an_access_whose_owner_was_deposed_is_asked_at_the_next_one_with_the_same_number() {
    let [a, b] = servers();
    a.react(ONE, Reaction::LoseAfterAccepting(b.owner(6)));
    let client = client_of(&[&a, &b], FOR_EVER);
    decides(&client, ONE, "x").await;
    for server in [&a, &b] {
        assert_eq!(server.times_asked(&format!("access 1 of {ONE}")), 1, "{:?}", server.asked());
    }
    // By unary calls, too.
    a.react(TWO, Reaction::LoseAfterAccepting(b.owner(6)));
    b.react(TWO, Reaction::Serve);
    let other = client_of(&[&a, &b], FOR_EVER);
    other.append(TWO, AccessNumber::FIRST, value("y"), WaitMode::UntilPhase).await.unwrap();
    assert_eq!(
        (a.times_asked(&format!("access 1 of {TWO}")), b.times_asked(&format!("access 1 of {TWO}"))),
        (1, 1)
    );
}

#[tokio::test]
async fn an_access_whose_owner_died_is_asked_at_the_next_one_with_the_same_number() {
    let [a, b, c] = servers();
    a.react(ONE, Reaction::DieAfterAccepting);
    // Until the lease has ended, the others name the dead server.
    b.react_to_all(Reaction::NotOwner(a.owner(6)));
    c.react_to_all(Reaction::NotOwner(a.owner(6)));
    let client = client_of(&[&a, &b, &c], FOR_EVER);
    let playing = {
        let client = client.clone();
        tokio::spawn(async move { decides(&client, ONE, "x").await })
    };
    while b.asked().len() + c.asked().len() < 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // For a while there is no owner at all.
    b.react_to_all(Reaction::NotOwner(None));
    c.react_to_all(Reaction::NotOwner(None));
    let before = b.asked().len() + c.asked().len();
    while b.asked().len() + c.asked().len() < before + 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    b.react_to_all(Reaction::NotOwner(c.owner(8)));
    c.react_to_all(Reaction::Serve);
    playing.await.unwrap();
    assert_eq!(a.times_asked("access 1"), 1);
    assert_eq!(c.times_asked("access 1"), 1, "{:?}", c.asked());
}

#[tokio::test]
async fn an_owner_that_is_silent_is_asked_again_after_all_others() {
    let [a, b, c] = servers();
    let connects = Arc::<Mutex<Vec<[usize; 2]>>>::default();
    let at_connect = {
        let (connects, b, c) = (connects.clone(), b.clone(), c.clone());
        move || connects.lock().unwrap().push([&b, &c].map(|server| server.asked().len()))
    };
    let paused = Pausable::start(&a, at_connect).await;
    a.react(ONE, Reaction::LeaveUnanswered);
    // Until the lease has ended, the others name the silent server.
    b.react_to_all(Reaction::NotOwner(paused.owner(6)));
    c.react_to_all(Reaction::NotOwner(paused.owner(6)));
    let url = |address: &str| format!("http://{address}");
    let builder = Client::builder(url(&b.address)).server(url(&c.address)).server(url(&paused.address));
    let retry =
        RetryPolicy { first: SOON / 50, longest: SOON, give_up_after: FOR_EVER, ..RetryPolicy::default() };
    let builder = builder.principal("p1").retry(retry).keep_alive(SOME_TIME);
    let client = builder.connect_lazy().unwrap();
    let playing = tokio::spawn(async move { decides(&client, ONE, "x").await });
    while a.times_asked("access 1") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!((b.asked().len(), c.asked().len()), (1, 0), "one redirect");
    paused.pause();
    while connects.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    b.react_to_all(Reaction::NotOwner(c.owner(8)));
    c.react_to_all(Reaction::Serve);
    playing.await.unwrap();
    let asked_before = connects.lock().unwrap()[0];
    assert!(asked_before[0] >= 2 && asked_before[1] >= 1, "{asked_before:?}");
    assert_eq!(c.times_asked("access 1"), 1, "{:?}", c.asked());
}

#[tokio::test]
async fn while_there_is_no_owner_each_request_comes_after_a_pause() {
    let [a, b] = servers();
    a.react_to_all(Reaction::NotOwner(None));
    b.react_to_all(Reaction::NotOwner(None));
    let client = client_of(&[&a, &b], SOME_TIME);
    let requests = |what: &str| a.times_asked(what) + b.times_asked(what);
    // As many tries as pauses, but for the last one, which gives up, and which may never come to a server.
    let assert_tries = |error: Error, what: &str| match error {
        Error::GaveUp { tries, .. } => {
            let tries = tries as usize;
            assert!(
                (tries - 1..=tries).contains(&requests(what)),
                "{tries} tries, {} {what}",
                requests(what)
            );
        }
        other => panic!("{other}"),
    };
    assert_tries(client.close(ONE).await.unwrap_err(), "close");
    assert!(requests("close") > 1 && a.times_asked("close").abs_diff(b.times_asked("close")) <= 1);
    let played = client.play(ONE, ProcessSpec::correct(value("x")), std::future::pending()).await;
    assert_tries(played.error.unwrap(), "hello");
    assert_tries(client.watch(ONE, WatchFrom::Start).try_next().await.unwrap_err(), "watch");
}

#[tokio::test]
async fn an_owner_that_reads_its_log_is_asked_again_after_pauses() {
    let [a, b] = servers();
    a.react(ONE, Reaction::Recovering(5));
    // A pause before each, and none is followed at once.
    let error = client_of(&[&a], Duration::ZERO).close(ONE).await.unwrap_err();
    assert!(matches!(error, Error::GaveUp { tries: 1, .. }), "{error}");
    assert_eq!((error.reason(), a.times_asked("close")), (Some(RefusalReason::Recovering), 1));
    // The other one names it all the time, in the same epoch.
    b.react_to_all(Reaction::NotOwner(a.owner(7)));
    let client = client_of(&[&a, &b], FOR_EVER);
    decides(&client, ONE, "x").await;
    assert_eq!(a.times_asked("hello"), 5, "{:?}", a.asked());
    assert_eq!((a.times_asked("access"), b.times_asked("access")), (2, 0));
}

#[tokio::test]
async fn a_dead_server_is_passed_over() {
    let [a, b] = servers();
    a.kill().await;
    let client = client_of(&[&a, &b], FOR_EVER);
    client.close(ONE).await.unwrap();
    client.close(TWO).await.unwrap();
    assert_eq!(b.times_asked("close"), 2);
    let builder = Client::builder(format!("http://{}", a.address)).server(format!("http://{}", b.address));
    let connected = builder.principal("p1").connect().await.unwrap();
    assert_eq!(connected.server(), format!("http://{}", b.address));
}

#[tokio::test]
async fn a_silent_server_leaves_time_for_the_others() {
    let [up] = servers();
    // Connections to it are accepted, and nobody answers on them.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    let client = || {
        let give_up_after = Duration::from_secs(10);
        let policy = RetryPolicy { give_up_after, ..RetryPolicy::of_cluster() };
        let builder = Client::builder(&silent_url).server(format!("http://{}", up.address));
        builder.principal("p1").retry(policy).connect_lazy().unwrap()
    };
    // Each for the first time.
    let (closes, appends, watches) = (client(), client(), client());
    let x = value("x");
    let (closed, appended, watched, ()) = tokio::join!(
        closes.close(ONE),
        appends.append(ONE, AccessNumber::FIRST, &x, WaitMode::UntilPhase),
        async { watches.watch(ONE, WatchFrom::Start).try_next().await },
        async { decides(&client(), TWO, "x").await },
    );
    closed.unwrap();
    appended.unwrap();
    watched.unwrap();
}

#[tokio::test]
async fn an_owner_is_dialled_if_a_given_server_names_it_and_not_otherwise() {
    let [a, b, stranger] = servers();
    a.react(ONE, Reaction::NotOwner(b.owner(2)));
    a.react(TWO, Reaction::NotOwner(stranger.owner(2)));
    a.names(&[&a, &b]);
    let client = client_of(&[&a], FOR_EVER);
    client.close(ONE).await.unwrap();
    assert_eq!((b.times_asked("close"), a.times_asked("cluster")), (1, 1));

    b.react(TWO, Reaction::NotOwner(stranger.owner(2)));
    let (hasty, begun) = (client_of(&[&a], Duration::ZERO), Instant::now());
    for _ in 0..8 {
        let error = hasty.close(TWO).await.unwrap_err().to_string();
        assert!(error.contains("not dialled") && error.contains("ClientBuilder::any_server"), "{error}");
    }
    assert_eq!(stranger.asked(), Vec::<String>::new());
    // A server that is wrong does not make it ask again and again, but at most once a second.
    let asked = a.times_asked("cluster") as u64;
    assert!((2..=2 + begun.elapsed().as_secs()).contains(&asked), "{asked}");

    let any = Client::builder(format!("http://{}", a.address)).any_server(true).principal("p1");
    any.connect().await.unwrap().close(TWO).await.unwrap();
    assert_eq!(stranger.times_asked("close"), 1);
}

#[tokio::test]
async fn lists_of_all_servers_are_merged_in_the_order_of_ids() {
    let [a, b, c] = servers();
    a.lists(&[&[1, 5], &[7]]);
    b.lists(&[&[2], &[], &[6, 9]]);
    // An instance that has moved meanwhile is listed twice.
    c.lists(&[&[3, 7, 8]]);
    for server in [&a, &b, &c] {
        server.names(&[&a, &b, &c]);
    }
    let client = client_of(&[&a], FOR_EVER);
    let listed = client.list().await.unwrap();
    assert_eq!(listed.shards_left_out, 0, "the servers are older");
    let listed: Vec<_> = listed.instances.into_iter().map(|summary| summary.id).collect();
    assert_eq!(listed, [1, 2, 3, 5, 6, 7, 8, 9].map(InstanceId::new));
    assert_eq!([&a, &b, &c].map(|server| server.times_asked("list")), [2, 3, 1]);
    assert_eq!(client.counts(&[]).await.unwrap().all.calls_abandoned, 9);
    let each = client.counts_of_servers(&[]).await.unwrap();
    assert_eq!(each.keys().map(String::as_str).collect::<Vec<_>>().len(), 3);
    let cluster = client.cluster().await.unwrap();
    assert_eq!((cluster.shards, cluster.servers.len()), (64, 3));
}

#[tokio::test]
async fn a_list_of_a_server_that_was_started_anew_meanwhile_is_begun_again() {
    let [server] = servers();
    server.lists(&[&[1, 5], &[7]]);
    server.forgets_page_tokens(2);
    let client = client_of(&[&server], FOR_EVER);
    let listed: Vec<_> = client.list().await.unwrap().instances.into_iter().map(|it| it.id).collect();
    assert_eq!(listed, [1, 5, 7].map(InstanceId::new), "each once");
    assert_eq!(server.times_asked("list"), 6);
    server.forgets_page_tokens(1_000);
    let error = client_of(&[&server], SOME_TIME).list().await.unwrap_err();
    assert_eq!(error.reason(), Some(RefusalReason::Malformed));
}

#[tokio::test]
async fn a_given_server_that_belongs_to_no_cluster_tells_its_counts_too() {
    let [a, b, c] = servers();
    a.names(&[&a]);
    c.kill().await;
    let counted = client_of(&[&a, &b, &c], FOR_EVER).counts_of_servers(&[]).await.unwrap();
    assert_eq!(counted.len(), 2, "{counted:?}");
    assert!(counted.contains_key(&a.address) && counted.contains_key(&b.address), "{counted:?}");

    // Named by another address than the given one it is still one server.
    a.names(&[&a, &b]);
    let given = Pausable::start(&b, || {}).await;
    let client = Client::builder(format!("http://{}", a.address)).server(format!("http://{}", given.address));
    let counted = client.principal("p1").connect().await.unwrap().counts_of_servers(&[]).await.unwrap();
    assert_eq!(counted.keys().collect::<BTreeSet<_>>(), BTreeSet::from([&a.address, &b.address]));
    assert_eq!(client_of(&[&a], FOR_EVER).counts(&[]).await.unwrap().all.calls_abandoned, 6);
}

#[tokio::test]
async fn a_server_that_is_given_and_named_by_different_addresses_counts_once() {
    let [a, b] = servers();
    a.names(&[&a]);
    b.names(&[&a, &b]);
    // It is asked first, and another one names it.
    let given = Pausable::start(&a, || {}).await;
    let client = Client::builder(format!("http://{}", given.address)).server(format!("http://{}", b.address));
    let client = client.principal("p1").connect().await.unwrap();
    let counted = client.counts_of_servers(&[]).await.unwrap();
    assert_eq!(counted.keys().collect::<BTreeSet<_>>(), BTreeSet::from([&given.address, &b.address]));
}

#[tokio::test]
async fn a_server_that_names_nobody_hides_no_others() {
    let [a, b, c] = servers();
    // It has just started, and is asked first.
    a.names(&[&a]);
    b.names(&[&b, &c]);
    let counted = client_of(&[&a, &b], FOR_EVER).counts_of_servers(&[]).await.unwrap();
    assert_eq!(counted.len(), 3, "{counted:?}");
    c.kill().await;
    let error = client_of(&[&a, &b], SOME_TIME).counts_of_servers(&[]).await.unwrap_err();
    assert!(error.to_string().contains(&c.address), "{error}");
}

#[tokio::test]
async fn a_list_is_not_given_without_a_server_that_is_named() {
    let [a, b] = servers();
    a.lists(&[&[1]]);
    a.names(&[&a, &b]);
    b.kill().await;
    let error = client_of(&[&a], SOME_TIME).list().await.unwrap_err();
    assert!(matches!(error, Error::GaveUp { .. }), "{error}");
    assert!(error.to_string().contains(&b.address), "{error}");
    // Its lease has ended.
    a.names(&[&a]);
    assert_eq!(client_of(&[&a], FOR_EVER).list().await.unwrap().instances.len(), 1);
}

#[tokio::test]
async fn a_list_tells_how_many_shards_it_leaves_out() {
    let [a, b] = servers();
    for server in [&a, &b] {
        server.names(&[&a, &b]);
    }
    a.lists(&[&[1], &[3]]);
    b.lists(&[&[2]]);
    let client = client_of(&[&a], FOR_EVER);
    for (of_pages, of_other, left_out) in [
        // Shard 0 is on the first page only.
        ([&[0, 1, 2][..], &[1, 2]], &[3][..], 1),
        // It has moved to the other server meanwhile.
        ([&[0, 1], &[1]], &[0, 2, 3], 0),
        // Nobody tells of 1 and 3; of 0 both do.
        ([&[0], &[0]], &[0, 2], 2),
    ] {
        a.lists_of(&of_pages, 4);
        b.lists_of(&[of_other], 4);
        let listed = client.list().await.unwrap();
        assert_eq!((listed.instances.len(), listed.shards_left_out), (3, left_out));
    }
}
