//! Each quota and rate of a principal: one client reaches it, and others are unaffected (SPEC B1); and the
//! bounds on memory that all principals share.

use std::time::Duration;

use bytes::Bytes;
use stickycas_proto::v1::{
    CreateRequest, GetRequest, OffenceKind, Parameters, RefusalReason, WatchRequest, get_request,
    server_frame::Frame,
};
use stickycas_server::PRINCIPAL_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::harness::fixtures::{self, PROPOSAL, alone, create_request, parameters};
use crate::harness::raw::{RawClient, framed, prefixed};
use crate::harness::stream::{Stream, append, read};
use crate::harness::{COORDINATOR, OBSERVER, Server, assert_refused, assert_status, refusals, with_timeout};
use crate::limits::PREFACE;

/// Waits until the server closes the connection; bytes before that are skipped.
async fn closed(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    // A reset is as good as an end.
    let _ = with_timeout(stream.read_to_end(&mut bytes)).await;
}

#[tokio::test]
async fn calls_above_the_rate_are_refused_per_principal() {
    let server = Server::with(|config| config.limits.requests_per_second = 500).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let _stream = Stream::open(&mut p1, &id).await;
    let mut flood = server.client("p1").await;
    let status = with_timeout(async {
        loop {
            if let Err(status) = flood.get(&id).await {
                break status;
            }
        }
    })
    .await;
    assert_status(&status, Code::ResourceExhausted, "RATE_EXCEEDED");
    assert!(refusals(&server.counts_of("p1").await, RefusalReason::RateExceeded) > 0);
    assert_eq!(refusals(&server.counts_of("p2").await, RefusalReason::RateExceeded), 0);
    let offences = server.client(OBSERVER).await.status(&id).await.offences;
    let filed: Vec<_> = offences.iter().map(|row| (row.process, row.kind())).collect();
    assert_eq!(filed, [(1, OffenceKind::QuotaExceeded)]);
    // Calls are served again when the bucket is refilled.
    with_timeout(async { while flood.get(&id).await.is_err() {} }).await;
    for principal in ["p2", "p3"] {
        server.client(principal).await.own(&id).await;
    }
}

#[tokio::test]
async fn frames_above_the_rate_are_refused_in_band() {
    let server = Server::with(|config| config.limits.requests_per_second = 500).await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    // The first is executed, those within the rate get its answer again, and the last one is new and above
    // the rate.
    stream.send((0..1_000).map(|_| append(0, 1, PROPOSAL)).chain([read(0, 2)]));
    let (mut answers, mut refusals) = (0, 0);
    while answers + refusals < 1_001 {
        match stream.frame().await {
            Frame::Answer(_) => answers += 1,
            Frame::Refusal(refusal) => {
                assert_eq!(refusal.reason(), RefusalReason::RateExceeded, "{refusal:?}");
                assert!(refusal.retry_after.is_some());
                refusals += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(answers >= 1 && refusals >= 1, "{answers} answers, {refusals} refusals");
    // Its number is too high, since the access before it was refused.
    stream.send([read(0, 3)]);
    with_timeout(async {
        loop {
            match stream.frame().await {
                Frame::Answer(answer) => break assert_eq!(answer.number, 2),
                Frame::Refusal(_) => stream.send([read(0, 2)]),
                other => panic!("{other:?}"),
            }
        }
    })
    .await;
    let offences = server.client(OBSERVER).await.status(&id).await.offences;
    let filed: Vec<_> = offences.iter().map(|row| (row.process, row.kind())).collect();
    assert_eq!(filed, [(1, OffenceKind::QuotaExceeded)]);
    assert!(server.counts_of("p1").await.accesses_repeated > 0);
}

#[tokio::test]
async fn repeated_refusals_are_counted_and_filed_at_a_rate() {
    let server = Server::with(|config| {
        (config.limits.requests_per_second, config.limits.offences_per_second) = (500, 1);
    })
    .await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut stream = Stream::open(&mut server.client("p1").await, &id).await;
    // One message is charged at once, so half of its frames are above the rate on any machine.
    stream.send((0..1_000).map(|_| append(0, 1, PROPOSAL)));
    for _ in 0..1_000 {
        stream.frame().await;
    }
    let refused = refusals(&server.counts_of("p1").await, RefusalReason::RateExceeded);
    assert!(refused >= 500, "{refused}");
    let offences = server.client(OBSERVER).await.status(&id).await.offences;
    assert_eq!((offences.len(), offences[0].kind()), (1, OffenceKind::QuotaExceeded));
    assert!(offences[0].count < refused / 2, "{} of {refused}", offences[0].count);
}

#[tokio::test]
async fn calls_on_a_connection_above_the_limit_are_charged_too() {
    let server = Server::with(|config| {
        (config.limits.connections_per_principal, config.limits.requests_per_second) = (1, 100);
    })
    .await;
    let id = fixtures::instance(&server).await;
    let mut first = server.client("p1").await;
    first.own(&id).await;
    let mut second = server.client("p1").await;
    assert_status(&second.get(&id).await.unwrap_err(), Code::ResourceExhausted, "TOO_MANY_CONNECTIONS");
    with_timeout(async {
        loop {
            let refused = second.get(&id).await.unwrap_err();
            if refused.get_details_error_info().is_some_and(|info| info.reason == "RATE_EXCEEDED") {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn connections_are_limited_per_principal() {
    let server = Server::with(|config| config.limits.connections_per_principal = 2).await;
    let id = fixtures::instance(&server).await;
    let mut first = server.client("p1").await;
    let _stream = Stream::open(&mut first, &id).await;
    let second = server.connect().await;
    crate::harness::Client::on(second.clone(), "p1").own(&id).await;
    let mut third = server.client("p1").await;
    assert_status(&third.get(&id).await.unwrap_err(), Code::ResourceExhausted, "TOO_MANY_CONNECTIONS");
    assert_eq!(refusals(&server.counts_of("p1").await, RefusalReason::TooManyConnections), 1);
    let offences = first.status(&id).await.offences;
    assert_eq!((offences[0].process, offences[0].kind()), (1, OffenceKind::QuotaExceeded));
    server.client("p2").await.own(&id).await;
    drop(second);
    with_timeout(async { while third.get(&id).await.is_err() {} }).await;
}

#[tokio::test]
async fn the_oldest_unclaimed_connection_makes_room() {
    let server = Server::with(|config| config.limits.unclaimed_connections = 3).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    p1.own(&id).await;
    let mut unclaimed = Vec::new();
    for _ in 0..10 {
        let mut next = with_timeout(TcpStream::connect(server.address)).await.unwrap();
        next.write_all(PREFACE).await.unwrap();
        unclaimed.push(next);
    }
    for old in &mut unclaimed[..7] {
        closed(old).await;
    }
    assert!(server.counts().await.all.unwrap().connections_silent >= 7);
    fixtures::play(&server, &id, PROPOSAL).await;
    p1.own(&id).await;
}

#[tokio::test]
async fn a_connection_without_a_first_call_in_time_is_closed() {
    let server = Server::with(|config| config.limits.first_call_timeout = Duration::from_millis(100)).await;
    let id = fixtures::instance(&server).await;
    let mut idle = RawClient::connect(server.address).await;
    idle.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    let mut unclaimed = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    unclaimed.write_all(PREFACE).await.unwrap();
    closed(&mut unclaimed).await;
    // The deadline of the claimed connection would have been the first to pass.
    let reply = idle.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    assert_eq!(reply.status.unwrap().code(), Code::Ok);
    assert!(server.counts().await.all.unwrap().connections_silent >= 1);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn unanswered_calls_are_limited_per_principal() {
    let server = Server::with(|config| config.limits.calls_per_principal = 2).await;
    let id = fixtures::instance(&server).await;
    let mut observer = server.client(OBSERVER).await;
    let p2 = server.client("p2").await;
    let mut waiting = Vec::new();
    for number in 1..=2 {
        let (mut p2, at) = (p2.clone(), id.clone());
        waiting.push(tokio::spawn(async move { p2.read(&at, number).await }));
        observer
            .until(&id, |state| {
                let waits = state.status.iter().flat_map(|status| &status.waiting);
                waits.flat_map(|row| &row.read_numbers).any(|it| *it == number)
            })
            .await;
    }
    assert_status(&p2.clone().get(&id).await.unwrap_err(), Code::ResourceExhausted, "TOO_MANY_STREAMS");
    server.client("p1").await.own(&id).await;
    waiting.into_iter().for_each(|call| call.abort());
    with_timeout(async { while p2.clone().get(&id).await.is_err() {} }).await;
    assert_eq!(server.counts_until(|all| all.calls_abandoned == 2).await.calls_abandoned, 2);
}

#[tokio::test]
async fn unread_responses_hold_the_permits_of_their_calls() {
    let server = Server::with(|config| config.limits.calls_per_principal = 4).await;
    let id = fixtures::instance(&server).await;
    let request = framed(&GetRequest { instance: Some(get_request::Instance::InstanceId(id.clone())) });
    let mut slow_reader = RawClient::connect_with_window(server.address, 0).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let (response, mut send) = slow_reader.begin("InstanceService/Get", &[(PRINCIPAL_KEY, "p2")]).await;
        send.send_data(request.clone(), true).unwrap();
        // The headers come, and the data waits for a window.
        unread.push(with_timeout(response).await.unwrap());
    }
    for _ in 0..100 {
        let reply = slow_reader.call_as("p2", "InstanceService/Get", request.clone()).await;
        assert_status(&reply.status.unwrap(), Code::ResourceExhausted, "TOO_MANY_STREAMS");
    }
    server.client("p1").await.own(&id).await;
    let mut p2 = server.client("p2").await;
    assert_status(&p2.get(&id).await.unwrap_err(), Code::ResourceExhausted, "TOO_MANY_STREAMS");
    // A dropped response gives its permit back.
    unread.pop();
    with_timeout(async { while p2.get(&id).await.is_err() {} }).await;
}

#[tokio::test]
async fn unread_streams_hold_no_permits_of_calls() {
    let server = Server::with(|config| config.limits.calls_per_principal = 1).await;
    let id = fixtures::instance(&server).await;
    let mut slow_reader = RawClient::connect_with_window(server.address, 0).await;
    let watch = WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: true };
    let (response, mut send) = slow_reader.begin("InstanceService/Watch", &[(PRINCIPAL_KEY, "p2")]).await;
    send.send_data(framed(&watch), true).unwrap();
    let _watching = with_timeout(response).await.unwrap();
    let (response, _saying) = slow_reader.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, "p2")]).await;
    let _attached = with_timeout(response).await.unwrap();
    server.client("p2").await.own(&id).await;
}

#[tokio::test]
async fn call_bytes_are_limited_except_in_creates_of_coordinators() {
    let server = Server::with(|config| config.limits.call_bytes = 300).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let large = framed(&fixtures::append(&id, 1, &"x".repeat(400)));
    let reply = raw.call_as("p1", "StickyCasService/Append", large).await;
    assert_status(&reply.status.unwrap(), Code::InvalidArgument, "MALFORMED");
    assert_eq!(server.counts_of("p1").await.messages_oversized, 1);
    let roster = ["a", "b", "c"].map(|name| name.repeat(120)).to_vec();
    let create = CreateRequest { roster, ..create_request(parameters()) };
    let mut p1 = server.client("p1").await;
    assert_refused(p1.create(create.clone()).await, Code::InvalidArgument, "MALFORMED");
    server.client(COORDINATOR).await.create(create).await.unwrap();
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_client_that_reads_no_answers_loses_its_connection() {
    let server = Server::with(|config| config.limits.unread_for = Duration::from_millis(200)).await;
    let many = Parameters { max_value_bytes: 65_536, ..parameters() };
    let id = fixtures::instance_with(&server, many).await;
    let value = "v".repeat(65_536);
    let mut slow_reader = server.client("p1").await;
    let mut stream = Stream::open(&mut slow_reader, &id).await;
    stream.send([append(0, 1, &value)]);
    fixtures::play(&server, &id, PROPOSAL).await;
    let mut reading = server.client("p2").await;
    let mut other = Stream::open(&mut reading, &id).await;
    // Its answers fill every window long before all of them are sent.
    for _ in 0..100 {
        stream.send((0..100).map(|_| read(0, 2)));
    }
    server.counts_until(|all| all.connections_unread == 1).await;
    assert_eq!(server.counts_of("p1").await.connections_unread, 1);
    other.send([read(0, 2)]);
    other.answer().await;
    assert!(reading.status(&id).await.offences.is_empty(), "a slow reader commits no offence");
}

#[tokio::test]
async fn records_above_the_budget_drop_their_oldest_events() {
    let server = Server::with(|config| config.limits.event_bytes = 4_000).await;
    let [short, long] =
        [fixtures::instance_with(&server, alone()).await, fixtures::instance_with(&server, alone()).await];
    let mut p1 = server.client("p1").await;
    p1.append(&short, 1, PROPOSAL).await.unwrap();
    p1.append(&long, 1, PROPOSAL).await.unwrap();
    let mut stream = Stream::open(&mut p1, &long).await;
    for number in 2..500 {
        stream.send([read(0, number)]);
        stream.answer().await;
    }
    let watch = |id: &str| WatchRequest { instance_id: id.to_owned(), from_phase: 1, snapshot_first: false };
    let metadata = assert_refused(
        with_timeout(p1.instances.watch(watch(&long))).await,
        Code::OutOfRange,
        "PHASE_NOT_KEPT",
    );
    assert!(metadata.number("oldest_phase") > 1);
    with_timeout(p1.instances.watch(watch(&short))).await.unwrap();
}

#[tokio::test]
async fn an_instance_above_the_memory_limit_is_not_created() {
    let server = Server::with(|config| config.limits.instance_bytes = 1_000_000).await;
    let mut coordinator = server.client(COORDINATOR).await;
    let large = Parameters { max_value_bytes: 65_536, pipeline: 16, ..parameters() };
    assert_refused(coordinator.create(create_request(large)).await, Code::InvalidArgument, "BAD_PARAMETERS");
    let id = fixtures::instance(&server).await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn principals_above_the_limit_are_refused() {
    let server = Server::with(|config| config.limits.principals = 3).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    let streams = [Stream::open(&mut p1, &id).await, Stream::open(&mut p2, &id).await];
    let mut third = RawClient::connect(server.address).await;
    let reply = with_timeout(async {
        loop {
            // The account of the coordinator is closed once its connection is gone, which makes room for this
            // one.
            let reply = third.call_as("p3", "InstanceService/List", Bytes::from_static(&[0; 5])).await;
            if reply.status.as_ref().is_some_and(|status| status.code() == Code::Ok) {
                break third.call_as("p4", "InstanceService/List", Bytes::from_static(&[0; 5])).await;
            }
        }
    })
    .await;
    assert_status(&reply.status.unwrap(), Code::ResourceExhausted, "TOO_MANY_CONNECTIONS");
    p1.own(&id).await;
    drop(streams);
}
