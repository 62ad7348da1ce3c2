//! The counts of the server: each wire attack of SPEC section 8 shows in them, for its principal wherever it
//! is known (B3).

use bytes::Bytes;
use stickycas_proto::v1::{GetCountsRequest, ReadRequest, RefusalReason};
use stickycas_server::PRINCIPAL_KEY;
use tokio::net::TcpStream;
use tonic::Code;

use crate::harness::fixtures::{self, PROPOSAL, parameters};
use crate::harness::raw::{RawClient, framed, prefixed};
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, OBSERVER, Server, assert_refused, refusals, with_timeout};

#[tokio::test]
async fn only_who_has_a_role_sees_the_counts_of_all() {
    let server = Server::start().await;
    for (principal, may) in [(COORDINATOR, true), (OBSERVER, true), ("p1", false)] {
        let mut client = server.client(principal).await;
        let counts = with_timeout(client.server.get_counts(GetCountsRequest::default())).await;
        let counts = counts.unwrap().into_inner();
        assert_eq!((counts.all.is_some(), counts.server.is_some()), (may, may), "{principal}");
    }
}

#[tokio::test]
async fn a_run_without_misbehaviour_counts_none() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let counts = server.counts().await;
    assert_eq!(counts.principals, []);
    assert_eq!(counts.all.unwrap(), stickycas_proto::v1::Counts::default());
}

#[tokio::test]
async fn refusals_are_counted_for_their_principal_alone() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    // impersonate: as another process, and without a name.
    let mut stranger = server.client("stranger").await;
    assert_refused(stranger.append(&id, 1, "x").await, Code::PermissionDenied, "NOT_A_MEMBER");
    let mut p2 = server.client("p2").await;
    p2.close(&id).await.unwrap_err();
    let reply =
        RawClient::connect(server.address).await.call("InstanceService/List", &[], prefixed(&[])).await;
    assert_eq!(reply.status.unwrap().code(), Code::Unauthenticated);
    // out-of-turn
    let now = ReadRequest { no_wait: true, ..fixtures::read(&id, 1) };
    assert_refused(with_timeout(p2.list.read(now)).await, Code::FailedPrecondition, "NOT_YOUR_PHASE");
    // double
    let mut stream = Stream::open(&mut p2, &id).await;
    stream.send([append(0, 1, PROPOSAL), append(0, 1, "no")]);
    stream.refusal(Code::InvalidArgument, "ACCESS_CONTENT_DIFFERS").await;

    let of_p2 = server.counts_of("p2").await;
    for (reason, count) in [
        (RefusalReason::NotCreator, 1),
        (RefusalReason::NotYourPhase, 1),
        (RefusalReason::AccessContentDiffers, 1),
        (RefusalReason::NotAMember, 0),
    ] {
        assert_eq!(refusals(&of_p2, reason), count, "{reason:?}");
    }
    assert_eq!(refusals(&server.counts_of("stranger").await, RefusalReason::NotAMember), 1);
    let counts = server.counts().await;
    let names: Vec<_> = counts.principals.iter().map(|row| row.principal.as_str()).collect();
    assert_eq!(names, ["p2", "stranger"]);
    let all = counts.all.unwrap();
    assert_eq!(refusals(&all, RefusalReason::NoIdentity), 1, "counted without a principal");
    assert_eq!(refusals(&all, RefusalReason::NotYourPhase), 1);
}

#[tokio::test]
async fn replays_are_counted_and_not_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    // A newer session, which takes over the waiting access; the same access again, on the stream and by a
    // call.
    stream.send([append(0, 1, PROPOSAL), hello(1, &id), append(1, 1, PROPOSAL), append(1, 1, PROPOSAL)]);
    let again = p1.append_and_wait(&id, PROPOSAL).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    with_timeout(again).await.unwrap().unwrap();
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    let counts = server.counts_of("p1").await;
    assert_eq!((counts.sessions_replaced, counts.accesses_repeated), (1, 4), "{counts:?}");
    assert_eq!(counts.refusals, []);
    assert!(p1.status(&id).await.offences.is_empty());
}

#[tokio::test]
async fn undecodable_and_oversized_messages_are_counted() {
    let server = Server::with(|config| config.limits.message_bytes = 1_000).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let large = framed(&fixtures::append(&id, 1, &"x".repeat(1_000)));
    for method in ["StickyCasService/Append", "StickyCasService/Attach"] {
        raw.call_as("p1", method, prefixed(&[0xff; 9])).await;
        raw.call_as("p1", method, large.clone()).await;
    }
    let counts = server.counts_of("p1").await;
    assert_eq!((counts.messages_undecodable, counts.messages_oversized), (2, 2), "{counts:?}");
    assert_eq!(refusals(&counts, RefusalReason::Malformed), 4);
}

#[tokio::test]
async fn an_unread_stream_is_counted_as_stalled() {
    let server = Server::with(|config| config.limits.unread_frames_to_pause = 8).await;
    let id = fixtures::instance(&server).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    for _ in 0..40 {
        stream.send((0..50).map(|_| read(0, 2)));
    }
    server.counts_until(|all| all.streams_stalled > 0).await;
    assert!(server.counts_of("p1").await.streams_stalled > 0);
    drop(stream);
    server.counts_until(|all| all.streams_abandoned == 1).await;
}

#[tokio::test]
async fn connections_above_the_limit_are_counted() {
    let server = Server::with(|config| config.limits.connections = 2).await;
    let mut observer = server.client(OBSERVER).await;
    with_timeout(async {
        loop {
            let _one_more = TcpStream::connect(server.address).await.unwrap();
            let _another = TcpStream::connect(server.address).await.unwrap();
            let counts = observer.server.get_counts(GetCountsRequest::default()).await.unwrap().into_inner();
            if counts.all.unwrap().connections_refused > 0 {
                break;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn abandoned_calls_are_counted() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, parameters()).await;
    let mut p1 = server.client("p1").await;
    let call = p1.append_and_wait(&id, PROPOSAL).await;
    call.abort();
    let mut raw = RawClient::connect(server.address).await;
    let (_response, mut send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p2")]).await;
    send.send_data(Bytes::from_static(&[0, 0, 0, 0, 9, 1]), false).unwrap();
    raw.call_as("p2", "InstanceService/List", prefixed(&[])).await;
    raw.connection.abort();
    server.counts_until(|all| all.calls_abandoned == 2).await;
    for principal in ["p1", "p2"] {
        let counts = server.counts_of(principal).await;
        assert_eq!((counts.calls_abandoned, counts.messages_undecodable), (1, 0), "{principal}: {counts:?}");
    }
}
