//! A lost reply or a broken connection never makes a correct process fail or append twice (SPEC F8), and a
//! server that lost its memory is found out at once (F11). Real server, real sockets, a proxy in between.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stickycas_client::raw::{ClientConfig, Connection, Told};
use stickycas_client::{
    Client, Error, InstanceId, Played, ProcessSpec, RefusalReason, RetryPolicy, WaitMode, WatchFrom, Watched,
};
use stickycas_model::access::{AppendAnswer, Op};
use stickycas_model::byzantine::{Silent, Strategy};
use stickycas_model::history::Event;
use stickycas_model::process::{ProcessEnd, Report};
use stickycas_model::types::{AccessNumber, Phase, Position, ProcessId};
use stickycas_proto::v1;
use tokio::net::TcpStream;

use crate::support::{
    self, Proxy, Watcher, Way, client, client_with, durable_server, instance, server, server_until,
    until_dropped, value,
};

fn play(client: Client, instance: InstanceId, proposal: &str) -> tokio::task::JoinHandle<Played> {
    let spec = ProcessSpec::correct(value(proposal));
    tokio::spawn(async move { client.play(instance, spec, std::future::pending()).await })
}

fn first_access_accepted(event: &Event) -> bool {
    matches!(event, Event::Accepted { process: ProcessId::FIRST, number: AccessNumber::FIRST, .. })
}

fn appends_of_process_1(history: &[Event]) -> usize {
    let append = |event: &&Event| {
        matches!(event, Event::Accepted { process: ProcessId::FIRST, op: Op::Append(_), .. })
    };
    history.iter().filter(append).count()
}

fn decision(played: &Played) -> String {
    match &played.report {
        Some(Report { decision: Some(decision), ended: ProcessEnd::Decided, .. }) => decision.to_string(),
        other => panic!("no decision: {other:?}, {:?}", played.error),
    }
}

#[tokio::test]
async fn a_broken_connection_costs_one_reconnection_only() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);

    let first = play(client(&proxy.address, "p1"), instance, "a");
    // Process 2 has not joined: the access waits, and its answer cannot come yet.
    watcher.until(first_access_accepted).await;
    proxy.cut();
    watcher.until(|event| matches!(event, Event::Session { session, .. } if session.get() == 2)).await;

    let second = client(&server, "p2").propose(instance, value("a")).await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((decision(&first), second.value), ("a".to_owned(), value("a")));
    assert_eq!((first.reconnections, first.accesses), (1, 2));
    assert_eq!(appends_of_process_1(&watcher.until_the_end().await), 1);
}

#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);

    let first = play(client(&proxy.address, "p1"), instance, "a");
    watcher.until(first_access_accepted).await;
    proxy.swallow_answers(true);
    let second = play(client(&server, "p2"), instance, "a");
    watcher
        .until(|event| {
            matches!(event, Event::Answered { process: ProcessId::FIRST, number: AccessNumber::FIRST, .. })
        })
        .await;
    proxy.swallow_answers(false);
    proxy.cut();

    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((decision(&first), decision(&second)), ("a".to_owned(), "a".to_owned()));
    assert_eq!((first.reconnections, first.accesses), (1, 2));
    assert_eq!(appends_of_process_1(&watcher.until_the_end().await), 1);
}

/// Loses the first piece of data of a play, in the next play the second, and so on until one gets by without
/// a loss: so each message and each answer is lost once. Found by its name, an instance is sent to ahead of
/// the welcome.
async fn every_piece_is_lost_once(way: Way, by_name: bool) {
    let server = server().await;
    for index in 0.. {
        let proxy = Proxy::to(&server).await;
        let name = format!("piece-{index}");
        let created = client(&server, "coordinator").create_instance().name(&name).processes(1).send();
        let instance = created.await.unwrap().instance.id;
        proxy.lose(way, index);
        let process = client(&proxy.address, "p1");
        let decision = if by_name {
            process.propose(&name, "a").await.unwrap().value
        } else {
            process.propose(instance, "a").await.unwrap().value
        };
        assert_eq!(decision, value("a"), "piece {index} {way:?}");
        let history = Watcher::new(&server, instance).until_the_end().await;
        // One life, in which nothing was forgotten: an append, and a read that returns all.
        let accepted = history.iter().filter(|event| matches!(event, Event::Accepted { .. })).count();
        assert_eq!((appends_of_process_1(&history), accepted), (1, 2), "piece {index} {way:?}");
        if proxy.lost() == 0 {
            assert!(index >= 3, "only {index} pieces went {way:?}");
            return;
        }
    }
}

#[tokio::test]
async fn no_single_loss_on_the_way_to_the_server_does_harm() {
    every_piece_is_lost_once(Way::ToServer, false).await;
    every_piece_is_lost_once(Way::ToServer, true).await;
}

#[tokio::test]
async fn no_single_loss_on_the_way_to_the_client_does_harm() {
    every_piece_is_lost_once(Way::ToClient, false).await;
    every_piece_is_lost_once(Way::ToClient, true).await;
}

#[tokio::test]
async fn a_server_that_lost_its_memory_ends_the_play_at_once() {
    let (server, restarted) = (server().await, server().await);
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let played = play(client(&proxy.address, "p1"), instance, "a");
    watcher.until(first_access_accepted).await;

    proxy.redirect(Some(&restarted));
    proxy.cut();

    // The client would retry for a day: that this ends shows that it does not.
    let played = played.await.unwrap();
    let error = played.error.unwrap();
    assert!(matches!(error, Error::Refused(_)), "{error}");
    assert_eq!(error.reason(), Some(RefusalReason::InstanceUnknown));
    assert!(!error.may_have_happened());
    let report = played.report.unwrap();
    assert!(matches!(report.ended, ProcessEnd::Failed(_)));
    assert_eq!(report.unanswered, None, "its session was lost");
}

#[tokio::test]
async fn a_draining_server_is_asked_until_another_one_answers() {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let server = server_until(async move { drop(stopped.await) }).await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let played = play(client(&proxy.address, "p1"), instance, "a");
    watcher.until(first_access_accepted).await;

    proxy.redirect(Some(&support::server().await));
    stop.send(()).unwrap();

    let error = played.await.unwrap().error.unwrap();
    assert_eq!(error.reason(), Some(RefusalReason::InstanceUnknown), "the new server knows nothing: {error}");
}

#[tokio::test]
async fn an_append_by_hand_survives_a_broken_connection_too() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let (first, second) = (client(&proxy.address, "p1"), client(&server, "p2"));
    let (a, number) = (value("a"), AccessNumber::FIRST);
    let append = tokio::spawn(async move { first.append(instance, number, &a, WaitMode::UntilPhase).await });
    watcher.until(first_access_accepted).await;
    proxy.cut();
    second.append(instance, number, &value("b"), WaitMode::UntilPhase).await.unwrap();
    let appended = append.await.unwrap().unwrap();
    assert_eq!((appended.phase, appended.answer), (Phase::FIRST, AppendAnswer::Success(Position::new(0))));
}

#[tokio::test]
async fn a_server_that_does_not_come_back_is_given_up() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let played = play(client_with(&proxy.address, "p1", Duration::from_secs(5)), instance, "a");
    watcher.until(first_access_accepted).await;

    proxy.redirect(None);
    proxy.cut();

    let error = played.await.unwrap().error.unwrap();
    assert!(matches!(error, Error::GaveUp { tries: 2.., .. }), "{error}");
    assert!(error.may_have_happened());
}

#[tokio::test]
async fn a_watch_resumes_without_a_gap_or_a_repetition() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 2).await;
    let direct = Watcher::new(&server, instance);
    let mut through_proxy = Watcher::new(&proxy.address, instance);

    let first = play(client(&server, "p1"), instance, "a");
    through_proxy.until(first_access_accepted).await;
    proxy.cut();
    let second = play(client(&server, "p2"), instance, "b");
    through_proxy.until(|event| matches!(event, Event::Stepped { phase, .. } if phase.get() == 3)).await;
    proxy.cut();

    let (seen, happened) = (through_proxy.until_the_end().await, direct.until_the_end().await);
    assert_eq!(seen, happened);
    assert_eq!(decision(&first.await.unwrap()), decision(&second.await.unwrap()));
}

#[tokio::test]
async fn a_watch_on_which_nothing_has_come_is_opened_again() {
    let server = server().await;
    let proxy = Proxy::to(&server).await;
    let instance = instance(&server, 1).await;
    let give_up_after = Duration::from_secs(2);
    let client_of_watch = client_with(&proxy.address, "coordinator", give_up_after);
    let policy = RetryPolicy { longest: Duration::from_millis(20), ..client_of_watch.retry_policy() };
    let mut watch = client_of_watch.with_retry(policy).watch(instance, WatchFrom::Start);
    let first = tokio::spawn(async move { watch.try_next().await });
    // The stream stands for longer than a watch without a server goes on.
    tokio::time::sleep(give_up_after + give_up_after / 2).await;
    proxy.cut();
    client(&server, "p1").propose(instance, value("a")).await.unwrap();
    let first = first.await.unwrap();
    assert!(matches!(first, Ok(Some(Watched::Event(0, _)))), "{first:?}");
}

/// Hellos of one client overtake each other when they are sent on two connections.
#[tokio::test]
async fn a_hello_of_its_own_that_came_late_does_not_stop_a_client() {
    let server = server().await;
    let instance = instance(&server, 2).await;
    let mut watcher = Watcher::new(&server, instance);
    let first = play(client(&server, "p1"), instance, "a");
    watcher.until(first_access_accepted).await;
    let incarnation = watcher.1.iter().find_map(|event| match event {
        Event::Session { incarnation, .. } => Some(*incarnation),
        _ => None,
    });
    let hello = v1::Hello {
        channel: 0,
        instance_id: instance.to_string(),
        incarnation: incarnation.expect("a session comes before its accesses"),
    };
    let earlier = Connection::lazy(ClientConfig::new(&format!("http://{server}"), "p1").unwrap());
    let frames = tokio_stream::iter([v1::AttachRequest { frames: vec![hello.into()] }]);
    let late = earlier.list().attach(frames).await.unwrap();
    watcher.until(|event| matches!(event, Event::Session { session, .. } if session.get() == 3)).await;
    drop(late);

    let second = client(&server, "p2").propose(instance, value("a")).await.unwrap();
    let first = first.await.unwrap();
    assert_eq!((decision(&first), second.value), ("a".to_owned(), value("a")));
    assert_eq!(first.reconnections, 1);
}

/// A log with an instance of two processes, and a copy that will know nothing of what comes.
async fn log_and_copy(folder: &Path) -> (PathBuf, PathBuf, InstanceId) {
    let (log, copy) = (folder.join("log"), folder.join("copy"));
    let (stop, stopped) = until_dropped();
    let (address, server) = durable_server(&log, stopped).await;
    let instance = instance(&address, 2).await;
    drop(stop);
    server.await.unwrap();
    copy_files(&log, &copy);
    (log, copy, instance)
}

/// An old copy of a log tells less than clients know (SPEC A3), so none goes on with it.
#[tokio::test]
async fn a_server_whose_log_was_put_back_is_found_out() {
    let folder = tempfile::tempdir().unwrap();
    let (log, copy, instance) = log_and_copy(folder.path()).await;

    let (stop, stopped) = until_dropped();
    let (address, server) = durable_server(&log, stopped).await;
    let proxy = Proxy::to(&address).await;
    let (told, mut facts) = tokio::sync::mpsc::unbounded_channel();
    let spec = ProcessSpec::correct(value("a")).observed(move |fact| drop(told.send(fact)));
    let first = client(&proxy.address, "p1");
    let first = tokio::spawn(async move { first.play(instance, spec, std::future::pending()).await });
    let silent = ProcessSpec::byzantine(Strategy::Silent(Silent), None, 0);
    let second = client(&address, "p2");
    let second = tokio::spawn(async move { second.play(instance, silent, std::future::pending()).await });
    while !matches!(facts.recv().await, Some(Told::Answered { .. })) {}
    proxy.redirect(None);
    drop(stop);
    server.await.unwrap();
    second.abort();

    let (_stop, stopped) = until_dropped();
    let (address, _server) = durable_server(&copy, stopped).await;
    proxy.redirect(Some(&address));
    let played = first.await.unwrap();
    let error = played.error.unwrap();
    assert!(matches!(&error, Error::Lost(_)), "{error}");
    assert!(error.to_string().contains("access 1 was accepted"), "{error}");
}

/// Nothing happens at the instance afterwards, so no event tells.
#[tokio::test]
async fn a_watch_that_knows_more_than_an_old_copy_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (log, copy, instance) = log_and_copy(folder.path()).await;

    let (stop, stopped) = until_dropped();
    let (address, server) = durable_server(&log, stopped).await;
    let proxy = Proxy::to(&address).await;
    let mut watch = client(&proxy.address, "coordinator").watch(instance, WatchFrom::Start);
    let first = play(client(&address, "p1"), instance, "a");
    loop {
        let Some(Watched::Event(_, recorded)) = watch.try_next().await.unwrap() else { panic!("it goes on") };
        // The last that happens: both accesses wait for process 2.
        if matches!(recorded.event, Event::Accepted { number, .. } if number.get() == 2) {
            break;
        }
    }
    proxy.redirect(None);
    first.abort();
    drop(stop);
    server.await.unwrap();

    let (_stop, stopped) = until_dropped();
    let (address, _server) = durable_server(&copy, stopped).await;
    proxy.redirect(Some(&address));
    let next = tokio::time::timeout(Duration::from_secs(60), watch.try_next()).await;
    let error = next.expect("the watch is told at once").unwrap_err();
    assert!(matches!(&error, Error::Lost(_)), "{error}");
}

fn copy_files(from: &Path, to: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir(to).unwrap();
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o700)).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        // And not the socket.
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
        }
    }
}

#[tokio::test]
async fn a_client_may_open_its_connections_itself() {
    let server = server().await;
    let instance = instance(&server, 1).await;
    let opened = Arc::<AtomicU64>::default();
    let (address, count) = (server.clone(), opened.clone());
    let builder = Client::builder("http://of-no-such-host:1").principal("p1");
    let client = builder.connect_lazy_over(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        TcpStream::connect(address.clone())
    });
    assert_eq!(client.unwrap().propose(instance, value("a")).await.unwrap().value, value("a"));
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}
