//! The offences that the server files, and for which process (SPEC B2), and that no legal call is one. The
//! offences that the machine files are tested in the model.

use bytes::Bytes;
use h2::Reason;
use stickycas_proto::v1::{OffenceKind, OffenceSummary, ReadRequest, WatchRequest};
use stickycas_server::PRINCIPAL_KEY;
use tokio::task::JoinSet;
use tonic::Code;

use crate::harness::fixtures::{self, PROPOSAL, create_request, parameters};
use crate::harness::raw::{RawClient, framed, prefixed};
use crate::harness::stream::{Stream, append, decision, hello, read};
use crate::harness::{Client, OBSERVER, Server, assert_refused, assert_status, with_timeout};

/// Bytes with which no message begins.
const GARBAGE: [u8; 9] = [0xff; 9];

/// The offences on record at the instance.
async fn offences(server: &Server, id: &str) -> Vec<OffenceSummary> {
    server.client(OBSERVER).await.status(id).await.offences
}

/// The process, kind and count of each offence on record.
async fn filed(server: &Server, id: &str) -> Vec<(u32, OffenceKind, u64)> {
    offences(server, id).await.iter().map(|row| (row.process, row.kind(), row.count)).collect()
}

/// An instance where the principal is active: it has joined.
async fn active_instance(server: &Server, principal: &str) -> (String, Client) {
    let id = fixtures::instance(server).await;
    let mut client = server.client(principal).await;
    Stream::open(&mut client, &id).await;
    (id, client)
}

#[tokio::test]
async fn an_undecodable_call_is_filed_where_its_caller_is_active() {
    let server = Server::start().await;
    let (id, mut p2) = active_instance(&server, "p2").await;
    let untouched = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    for _ in 0..3 {
        raw.call_as("p2", "StickyCasService/Append", prefixed(&GARBAGE)).await;
        raw.call_as("stranger", "StickyCasService/Append", prefixed(&GARBAGE)).await;
    }
    let rows = offences(&server, &id).await;
    let row = &rows[0];
    assert_eq!((rows.len(), row.process, row.kind(), row.count), (1, 2, OffenceKind::Malformed, 3));
    assert_eq!((row.first_number, row.first_phase), (0, 0), "processes were gathering");
    assert!(!row.first_detail.is_empty());
    assert_eq!(filed(&server, &untouched).await, []);
    assert_eq!(p2.own(&id).await.next_access_number, 1);
    fixtures::play(&server, &id, PROPOSAL).await;
    raw.call_as("p2", "StickyCasService/Append", prefixed(&GARBAGE)).await;
    assert_eq!(filed(&server, &id).await, [(2, OffenceKind::Malformed, 4)]);
}

#[tokio::test]
async fn an_undecodable_stream_is_filed_at_all_its_instances() {
    let server = Server::start().await;
    let ids = [fixtures::instance(&server).await, fixtures::instance(&server).await];
    let mut raw = RawClient::connect(server.address).await;
    let hellos = ids.iter().zip(0..).map(|(id, channel)| hello(channel, id)).collect();
    let opening = framed(&stickycas_proto::v1::AttachRequest { frames: hellos });
    let body = [opening, prefixed(&GARBAGE)].concat();
    let reply = raw.call_as("p3", "StickyCasService/Attach", Bytes::from(body)).await;
    assert_status(&reply.status.unwrap(), Code::InvalidArgument, "MALFORMED");
    for id in &ids {
        assert_eq!(filed(&server, id).await, [(3, OffenceKind::Malformed, 1)]);
        fixtures::play(&server, id, PROPOSAL).await;
    }
}

#[tokio::test]
async fn too_large_messages_are_filed_as_oversized() {
    let server = Server::with(|config| {
        (config.limits.message_bytes, config.limits.frames_per_message) = (1_000, 10);
    })
    .await;
    let (id, mut p1) = active_instance(&server, "p1").await;
    let mut raw = RawClient::connect(server.address).await;
    let large = framed(&fixtures::append(&id, 1, &"x".repeat(1_000)));
    raw.call_as("p1", "StickyCasService/Append", large.clone()).await;
    raw.call_as("p1", "StickyCasService/Attach", large).await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send((0..11).map(|_| read(0, 1)));
    assert_status(&stream.broken().await, Code::InvalidArgument, "MALFORMED");
    assert_eq!(filed(&server, &id).await, [(1, OffenceKind::Oversized, 3)]);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn acting_without_a_role_is_filed() {
    let server = Server::start().await;
    let (id, mut p1) = active_instance(&server, "p1").await;
    // An instance whose roster lacks the principal.
    let roster = ["a", "b", "c"].map(str::to_owned).to_vec();
    let create = stickycas_proto::v1::CreateRequest { roster, ..create_request(parameters()) };
    let mut coordinator = server.client(crate::harness::COORDINATOR).await;
    let foreign = coordinator.create(create).await.unwrap().into_inner().instance.unwrap().instance_id;

    assert_status(&p1.close(&id).await.unwrap_err(), Code::PermissionDenied, "NOT_CREATOR");
    assert_status(&p1.close(&foreign).await.unwrap_err(), Code::PermissionDenied, "NOT_CREATOR");
    assert_refused(p1.append(&foreign, 1, "x").await, Code::PermissionDenied, "NOT_A_MEMBER");
    assert_refused(p1.create(create_request(parameters())).await, Code::PermissionDenied, "NOT_COORDINATOR");
    assert_eq!(filed(&server, &id).await, [(1, OffenceKind::ForeignIdentity, 4)]);
    assert_eq!(filed(&server, &foreign).await, []);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn exceeded_quotas_are_filed() {
    let server = Server::with(|config| {
        let limits = &mut config.limits;
        (limits.attach_streams_per_principal, limits.watch_streams_per_principal) = (1, 1);
        (limits.callers_per_access, limits.channels_per_stream) = (1, 1);
    })
    .await;
    let id = fixtures::instance(&server).await;
    let other = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    assert!(Stream::try_new(&mut p1).await.is_err());
    stream.send([hello(1, &other)]);
    stream.refusal(Code::ResourceExhausted, "TOO_MANY_STREAMS").await;
    assert_eq!(filed(&server, &id).await, [(1, OffenceKind::QuotaExceeded, 1)]);
    assert_eq!(filed(&server, &other).await, [(1, OffenceKind::QuotaExceeded, 1)]);

    let mut p2 = server.client("p2").await;
    let watch = || WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: false };
    let _watching = with_timeout(p2.instances.watch(watch())).await.unwrap();
    assert_refused(
        with_timeout(p2.instances.watch(watch())).await,
        Code::ResourceExhausted,
        "TOO_MANY_STREAMS",
    );
    let mut p3 = server.client("p3").await;
    let mut calls = JoinSet::new();
    for _ in 0..2 {
        let (mut caller, id) = (p3.clone(), id.clone());
        calls.spawn(async move { caller.append(&id, 1, PROPOSAL).await });
    }
    let first = with_timeout(calls.join_next()).await.unwrap().unwrap();
    assert_refused(first, Code::ResourceExhausted, "TOO_MANY_WAITING");
    let quota = OffenceKind::QuotaExceeded;
    assert_eq!(filed(&server, &id).await, [(1, quota, 1), (2, quota, 1), (3, quota, 1)]);
    p3.own(&id).await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn frames_that_break_the_protocol_are_filed() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([stickycas_proto::v1::ClientFrame { frame: None }, hello(0, &id)]);
    stream.refusal(Code::InvalidArgument, "MALFORMED").await;
    stream.refusal(Code::InvalidArgument, "MALFORMED").await;
    p1.append("nonsense", 1, "x").await.unwrap_err();
    assert_eq!(filed(&server, &id).await, [(1, OffenceKind::Malformed, 3)]);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn no_legal_call_is_an_offence() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    // An access out of turn; a newer session, and frames on the older one; the same access again.
    let now = ReadRequest { no_wait: true, ..fixtures::read(&id, 1) };
    with_timeout(p2.list.read(now)).await.unwrap_err();
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), hello(1, &id), append(0, 2, "old"), append(1, 1, PROPOSAL)]);
    stream.send([read(7, 1), decision(7, "x")]);
    let again = p1.append_and_wait(&id, PROPOSAL).await;
    // A principal that is no process, and an id without an instance.
    stream.send([hello(2, "00000000000000000000000000000000"), read(2, 1)]);
    server.client("stranger").await.get(&id).await.unwrap_err();
    p1.append("00000000000000000000000000000000", 1, "x").await.unwrap_err();
    fixtures::play(&server, &id, PROPOSAL).await;
    with_timeout(again).await.unwrap().unwrap();
    // Old duplicates, and calls after the end.
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    p2.decide(&id, PROPOSAL).await.unwrap();
    p2.append(&id, 9, "late").await.unwrap_err();
    p2.instances.watch(WatchRequest { instance_id: id.clone(), ..WatchRequest::default() }).await.unwrap();
    assert_eq!(offences(&server, &id).await, []);
}

#[tokio::test]
async fn a_request_that_breaks_off_is_no_offence() {
    let server = Server::start().await;
    let (id, _p1) = active_instance(&server, "p1").await;
    let half = framed(&fixtures::append(&id, 1, "no")).slice(..20);
    for method in ["StickyCasService/Append", "StickyCasService/Attach"] {
        let reasons = [Reason::CANCEL, Reason::NO_ERROR, Reason::INTERNAL_ERROR, Reason::PROTOCOL_ERROR];
        for reset in reasons.map(Some).into_iter().chain([None]) {
            let before = server.counts().await.all.unwrap();
            let gone = before.calls_abandoned + before.streams_abandoned;
            let mut raw = RawClient::connect(server.address).await;
            let (_response, mut send) = raw.begin(method, &[(PRINCIPAL_KEY, "p1")]).await;
            send.send_data(half.clone(), false).unwrap();
            // A later call on the same connection shows that the bytes have arrived.
            raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
            match reset {
                Some(reason) => send.send_reset(reason),
                None => raw.connection.abort(),
            }
            server.counts_until(|all| all.calls_abandoned + all.streams_abandoned > gone).await;
        }
    }
    let all = server.counts().await.all.unwrap();
    assert_eq!((all.messages_undecodable, all.messages_oversized), (0, 0));
    assert_eq!(offences(&server, &id).await, []);
    fixtures::play(&server, &id, PROPOSAL).await;
}
