//! Watch: SPEC F13.

use stickycas_proto::v1::event::What;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::watch_response::Content;
use stickycas_proto::v1::{AppendWindow, Event, Parameters, Snapshot, WatchRequest, WatchResponse};
use stickycas_server::PRINCIPAL_KEY;
use tonic::{Code, Status, Streaming};

use crate::harness::fixtures::{self, PROPOSAL, alone, parameters};
use crate::harness::raw::{RawClient, framed};
use crate::harness::stream::{Stream, hello};
use crate::harness::{COORDINATOR, Client, OBSERVER, Server, assert_refused, assert_status, with_timeout};

async fn watch(client: &mut Client, id: &str, from_phase: u64) -> Streaming<WatchResponse> {
    let request = WatchRequest { instance_id: id.to_owned(), from_phase, snapshot_first: false };
    with_timeout(client.instances.watch(request)).await.unwrap().into_inner()
}

async fn events(stream: &mut Streaming<WatchResponse>) -> Result<Option<Vec<Event>>, Status> {
    let Some(response) = with_timeout(stream.message()).await? else { return Ok(None) };
    match response.content.expect("always present") {
        Content::Events(batch) => {
            assert!(!batch.events.is_empty());
            Ok(Some(batch.events))
        }
        Content::Snapshot(snapshot) => panic!("{snapshot:?} instead of events"),
    }
}

/// All events up to the end of the stream, without gaps from this index on.
async fn rest(stream: &mut Streaming<WatchResponse>, from: Option<u64>) -> Vec<Event> {
    let mut all = Vec::new();
    while let Some(events) = events(stream).await.unwrap() {
        all.extend(events);
    }
    let first = from.unwrap_or_else(|| all[0].index);
    for (index, event) in (first..).zip(&all) {
        assert_eq!(event.index, index);
    }
    all
}

async fn snapshot(client: &mut Client, id: &str) -> (Vec<Snapshot>, Streaming<WatchResponse>) {
    let request = WatchRequest { instance_id: id.to_owned(), from_phase: 0, snapshot_first: true };
    let mut stream = with_timeout(client.instances.watch(request)).await.unwrap().into_inner();
    let mut parts = Vec::new();
    loop {
        match with_timeout(stream.message()).await.unwrap().expect("the snapshot has a last part").content {
            Some(Content::Snapshot(part)) => parts.push(part),
            other => panic!("{other:?} instead of a snapshot"),
        }
        if parts.last().is_some_and(|part| part.last) {
            return (parts, stream);
        }
    }
}

fn what(events: &[Event]) -> Vec<&What> {
    events.iter().filter_map(|event| event.what.as_ref()).collect()
}

#[tokio::test]
async fn events_come_without_gaps_from_first_to_last() {
    let server = Server::with(|config| config.limits.events_per_message = 2).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut live = watch(&mut p1, &id, 0).await;
    let reading = tokio::spawn(async move { rest(&mut live, Some(0)).await });
    fixtures::play(&server, &id, PROPOSAL).await;
    let seen = with_timeout(reading).await.unwrap();
    assert!(matches!(what(&seen)[..], [What::Joined(_), .., What::Finished(_)]));
    let added = what(&seen).into_iter().filter(|it| matches!(it, What::Added(_))).count();
    assert_eq!(added, 3);
    let times: Vec<u64> = seen.iter().map(|event| event.at_nanos).collect();
    assert!(times.is_sorted());
    // A watch that begins after the end gets the same.
    assert_eq!(rest(&mut watch(&mut p1, &id, 0).await, Some(0)).await, seen);
}

#[tokio::test]
async fn a_watch_resumes_after_the_record_of_the_phase_before() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let mut p1 = server.client("p1").await;
    let all = rest(&mut watch(&mut p1, &id, 0).await, Some(0)).await;
    for phase in 1..=6 {
        let resumed = rest(&mut watch(&mut p1, &id, phase).await, None).await;
        assert!(all.ends_with(&resumed));
        let stepped = |events: &[Event]| {
            let steps = what(events).into_iter().filter_map(|it| match it {
                What::Stepped(stepped) => Some(stepped.phase),
                _ => None,
            });
            steps.filter(|it| *it >= phase).collect::<Vec<_>>()
        };
        assert_eq!(stepped(&resumed), stepped(&all), "from phase {phase}");
    }
}

#[tokio::test]
async fn a_snapshot_comes_in_parts_and_the_events_after_it() {
    let server = Server::with(|config| config.limits.events_per_message = 1).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let (empty, mut stream) = snapshot(&mut p1, &id).await;
    assert_eq!((empty.len(), empty[0].next_index, empty[0].entries.len()), (1, 0, 0));
    let reading = tokio::spawn(async move { rest(&mut stream, Some(0)).await });
    fixtures::play(&server, &id, PROPOSAL).await;
    let seen = with_timeout(reading).await.unwrap();

    let (parts, mut stream) = snapshot(&mut p1, &id).await;
    assert!(parts[0].status.as_ref().is_some_and(|status| status.list_length == 3));
    assert!(parts[1..].iter().all(|part| part.status.is_none()));
    let positions: Vec<u32> = parts.iter().map(|part| part.first_position).collect();
    assert_eq!(positions, [0, 1, 2]);
    assert!(parts.iter().all(|part| part.next_index == seen.len() as u64));
    assert!(parts.iter().flat_map(|part| &part.entries).all(|entry| entry.value == PROPOSAL.as_bytes()));
    assert_eq!(events(&mut stream).await.unwrap(), None);
}

/// A Watch of p1 with a snapshot first, on a connection whose streams have this window; or why it is refused.
async fn watch_raw(server: &Server, id: &str, window: u32) -> Result<(RawClient, h2::RecvStream), Status> {
    let mut raw = RawClient::connect_with_window(server.address, window).await;
    let (response, mut body) = raw.begin("InstanceService/Watch", &[(PRINCIPAL_KEY, "p1")]).await;
    let request = WatchRequest { instance_id: id.to_owned(), from_phase: 0, snapshot_first: true };
    body.send_data(framed(&request), true).unwrap();
    let response = with_timeout(response).await.unwrap();
    match Status::from_header_map(response.headers()) {
        Some(refused) => Err(refused),
        None => Ok((raw, response.into_body())),
    }
}

#[tokio::test]
async fn lists_that_only_watches_hold_share_a_bound() {
    const VALUE: usize = 60_000;
    let server = Server::with(|config| config.limits.unread_answer_bytes = 200_000).await;
    let large = Parameters { max_value_bytes: 65_536, ..alone() };
    let id = fixtures::instance_with(&server, large).await;
    let (mut p1, value) = (server.client("p1").await, "x".repeat(VALUE));
    p1.append(&id, 1, &value).await.unwrap();
    p1.read(&id, 2).await.unwrap();
    p1.decide(&id, &value).await.unwrap();
    let mut held = Vec::new();
    let refused = loop {
        // Nothing of the snapshot is taken.
        match watch_raw(&server, &id, 0).await {
            Ok(watch) => held.push(watch),
            Err(refused) => break refused,
        }
        assert!(server.limit_used("unread_answer_bytes").await >= held.len() * VALUE);
    };
    assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_BYTES");
    assert!(!held.is_empty(), "there was room for one at first");
    drop(held);
    with_timeout(async { while server.limit_used("unread_answer_bytes").await > 0 {} }).await;
    assert!(watch_raw(&server, &id, 0).await.is_ok());
}

#[tokio::test]
async fn large_events_are_split_below_the_client_message_limit() {
    let server = Server::start().await;
    let large = Parameters { processes: 100, read_size: 100, max_value_bytes: 65_536, ..parameters() };
    let mut coordinator = server.client(COORDINATOR).await;
    let id = coordinator
        .create(fixtures::create_request(large))
        .await
        .unwrap()
        .into_inner()
        .instance
        .unwrap()
        .instance_id;
    let value = "v".repeat(65_536);
    let channel = server.connect().await;
    let mut appending = tokio::task::JoinSet::new();
    for process in 1..=100 {
        let mut client = Client::on(channel.clone(), &fixtures::principal(process));
        let (id, value) = (id.clone(), value.clone());
        appending.spawn(async move { client.append(&id, 1, &value).await.unwrap() });
    }
    with_timeout(appending.join_all()).await;
    let (parts, _stream) = snapshot(&mut coordinator, &id).await;
    assert_eq!(parts.iter().map(|part| part.entries.len()).sum::<usize>(), 100);
    let mut all = watch(&mut coordinator, &id, 0).await;
    let mut added = 0;
    while added < 100 {
        let events = events(&mut all).await.unwrap().unwrap();
        added += what(&events).into_iter().filter(|it| matches!(it, What::Added(_))).count();
    }
}

#[tokio::test]
async fn a_watch_of_a_closed_instance_ends() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut coordinator = server.client(COORDINATOR).await;
    let mut stream = watch(&mut coordinator, &id, 0).await;
    let reading = tokio::spawn(async move { rest(&mut stream, Some(0)).await });
    coordinator.close(&id).await.unwrap();
    assert!(matches!(what(&with_timeout(reading).await.unwrap())[..], [What::Closed(_)]));
}

#[tokio::test]
async fn a_slow_watcher_is_told_where_to_resume() {
    let server = Server::with(|config| {
        (config.limits.events, config.limits.events_per_process, config.limits.events_per_message) =
            (8, 0, 1);
    })
    .await;
    let large = Parameters {
        max_value_bytes: 65_536,
        pipeline: 1,
        append_window: AppendWindow::Open.into(),
        ..alone()
    };
    let id = fixtures::instance_with(&server, large).await;
    let mut p1 = server.client("p1").await;
    let mut stream = watch(&mut p1, &id, 0).await;
    // Far more than the windows of a connection hold, none of it read.
    let value = "v".repeat(65_536);
    for number in 1..=200 {
        p1.append(&id, number, &value).await.unwrap();
    }
    let status = loop {
        match events(&mut stream).await {
            Ok(events) => assert!(events.is_some(), "it was too slow"),
            Err(status) => break status,
        }
    };
    let resume = assert_status(&status, Code::ResourceExhausted, "WATCHER_TOO_SLOW").number("resume_phase");
    let mut resumed = watch(&mut p1, &id, resume).await;
    assert!(events(&mut resumed).await.unwrap().is_some());
    fixtures::play(&server, &id, &value).await;
}

#[tokio::test]
async fn a_phase_not_kept_is_refused_with_the_oldest_one_kept() {
    let server = Server::with(|config| {
        (config.limits.events, config.limits.events_per_process) = (8, 0);
    })
    .await;
    let id = fixtures::instance(&server).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let mut p1 = server.client("p1").await;
    let request = |from_phase| WatchRequest { instance_id: id.clone(), from_phase, snapshot_first: false };
    let outcome = with_timeout(p1.instances.watch(request(1))).await;
    let oldest = assert_refused(outcome, Code::OutOfRange, "PHASE_NOT_KEPT").number("oldest_phase");
    assert!(oldest > 1);
    let outcome = with_timeout(p1.instances.watch(request(oldest - 1))).await;
    assert_refused(outcome, Code::OutOfRange, "PHASE_NOT_KEPT");
    rest(&mut watch(&mut p1, &id, oldest).await, None).await;
    rest(&mut watch(&mut p1, &id, 0).await, None).await;
    let (parts, _stream) = snapshot(&mut p1, &id).await;
    assert_eq!(parts[0].entries.len(), 3);
}

#[tokio::test]
async fn a_watch_can_start_at_the_oldest_phase_of_an_empty_record() {
    let server = Server::with(|config| {
        (config.limits.events, config.limits.events_per_process) = (4, 0);
    })
    .await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    let mut stream = Stream::new(&mut p1).await;
    stream.send((0..9).map(|channel| hello(channel, &id)));
    while !matches!(stream.frame().await, Frame::Welcome(welcome) if welcome.session == 9) {}
    let request = |from_phase| WatchRequest { instance_id: id.clone(), from_phase, snapshot_first: false };
    let outcome = with_timeout(p1.instances.watch(request(1))).await;
    let oldest = assert_refused(outcome, Code::OutOfRange, "PHASE_NOT_KEPT").number("oldest_phase");
    with_timeout(p1.instances.watch(request(oldest))).await.unwrap();
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn only_members_creator_and_observers_may_watch() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    for principal in ["p1", COORDINATOR, OBSERVER] {
        let mut client = server.client(principal).await;
        watch(&mut client, &id, 0).await;
        client.get(&id).await.unwrap();
    }
    let mut stranger = server.client("stranger").await;
    let request = WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: true };
    let outcome = with_timeout(stranger.instances.watch(request)).await;
    assert_refused(outcome, Code::PermissionDenied, "NOT_A_MEMBER");
    let mut observer = server.client(OBSERVER).await;
    assert_refused(observer.append(&id, 1, "x").await, Code::PermissionDenied, "NOT_A_MEMBER");
    fixtures::play(&server, &id, PROPOSAL).await;
}
