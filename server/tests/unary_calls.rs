//! Unary calls in every form that HTTP/2 allows: in pieces, compressed, too long, with a second message, on
//! another path.

use bytes::Bytes;
use stickycas_proto::v1::{AppendRequest, DecideRequest, Parameters, ReadRequest};
use stickycas_server::{PRINCIPAL_KEY, Stopped};
use tonic::Code;

use crate::harness::fixtures::{self, alone, append};
use crate::harness::raw::{RawClient, framed, prefixed, reply};
use crate::harness::{Server, assert_refused, assert_status, with_timeout};

const P1: [(&str, &str); 1] = [(PRINCIPAL_KEY, "p1")];

/// A server, an instance of one process on it, and a connection to it.
async fn start() -> (Server, String, RawClient) {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let raw = RawClient::connect(server.address).await;
    (server, id, raw)
}

/// An append with its prefix.
fn an_append(id: &str) -> Bytes {
    framed(&append(id, 1, "mine"))
}

#[tokio::test]
async fn a_message_may_come_in_pieces_and_with_trailers() {
    let (_server, id, mut raw) = start().await;
    let (response, mut send) = raw.begin("StickyCasService/Append", &P1).await;
    for byte in an_append(&id).chunks(1) {
        send.send_data(Bytes::copy_from_slice(byte), false).unwrap();
        send.send_data(Bytes::new(), false).unwrap();
    }
    send.send_trailers(http::HeaderMap::new()).unwrap();
    assert_eq!(reply(response).await.status.unwrap().code(), Code::Ok);
}

#[tokio::test]
async fn a_second_message_of_a_unary_call_is_refused() {
    let (server, id, mut raw) = start().await;
    let append = an_append(&id);
    let decide = framed(&DecideRequest { instance_id: id.clone(), value: Bytes::from_static(b"mine") });
    let calls = [
        ("StickyCasService/Append", append.clone()),
        ("StickyCasService/Decide", decide),
        ("InstanceService/List", prefixed(&[])),
    ];
    for (method, message) in calls {
        let with = |more: &[u8]| vec![Bytes::from([&message[..], more].concat())];
        let after = |more: &[u8]| vec![message.clone(), Bytes::copy_from_slice(more)];
        let bodies = [
            with(&message),
            with(&prefixed(b"more")),
            with(&[0]),
            after(&message),
            after(&prefixed(b"")),
            after(&[0]),
        ];
        for body in bodies {
            let (response, mut send) = raw.begin(method, &P1).await;
            for piece in body {
                let _ = send.send_data(piece, false);
                // The server has it.
                raw.call_as("p2", "InstanceService/List", prefixed(&[])).await;
            }
            let _ = send.send_data(Bytes::new(), true);
            let status = reply(response).await.status.unwrap();
            assert_eq!(status.code(), Code::Unimplemented, "{method}: {status:?}");
            assert!(status.message().contains("one message"), "{status:?}");
        }
    }
    // No access was accepted: the same number is free for another value.
    server.client("p1").await.append(&id, 1, "another").await.unwrap();
}

#[tokio::test]
async fn a_too_long_message_is_refused_by_its_prefix() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(server.address).await;
    let (response, mut send) = raw.begin("StickyCasService/Append", &P1).await;
    send.send_data(Bytes::from_static(&[0, 0, 2, 0, 0]), false).unwrap();
    assert_status(&reply(response).await.status.unwrap(), Code::InvalidArgument, "MALFORMED");
}

#[tokio::test]
async fn a_compressed_message_is_unimplemented_and_identity_offered() {
    let (server, id, mut raw) = start().await;
    let headers = [P1[0], ("grpc-encoding", "gzip")];
    let (response, mut send) = raw.begin("StickyCasService/Append", &headers).await;
    send.send_data(an_append(&id), true).unwrap();
    let response = with_timeout(response).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-accept-encoding"], "identity");
    // No access was accepted: the same number is free for another value.
    server.client("p1").await.append(&id, 1, "another").await.unwrap();
}

#[tokio::test]
async fn a_longer_path_is_another_method() {
    let (server, id, mut raw) = start().await;
    let longer = raw.call_as("p1", "StickyCasService/x/Append", an_append(&id)).await;
    assert_eq!(longer.status.unwrap().code(), Code::Unimplemented);
    server.client("p1").await.append(&id, 1, "another").await.unwrap();
}

#[tokio::test]
async fn a_response_has_the_headers_of_grpc_and_no_others() {
    let (_server, id, mut raw) = start().await;
    let (response, mut send) = raw.begin("StickyCasService/Append", &P1).await;
    send.send_data(an_append(&id), true).unwrap();
    let response = with_timeout(response).await.unwrap();
    let mut names: Vec<&str> = response.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "date"]);
    assert_eq!(response.headers()["content-type"], "application/grpc");
}

#[tokio::test]
async fn a_request_incomplete_when_draining_begins_is_refused() {
    let server = Server::with(|config| config.drain = std::time::Duration::from_secs(60)).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let value = Bytes::from_static(b"mine");
    let decide = framed(&DecideRequest { instance_id: id.clone(), value: value.clone() });
    let append = AppendRequest { instance_id: id.clone(), access_number: 1, value, no_wait: false };
    let (decided, mut rest_of_decide) = raw.begin("StickyCasService/Decide", &P1).await;
    let (appended, mut rest_of_append) = raw.begin("StickyCasService/Append", &P1).await;
    // The server has both requests: it accepts streams in their order.
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    let waits = server.client("p2").await.append_and_wait(&id, "mine").await;
    let shutting_down = server.begin_shutdown();
    assert_refused(with_timeout(waits).await.unwrap(), Code::Unavailable, "DRAINING");
    rest_of_decide.send_data(decide, true).unwrap();
    rest_of_append.send_data(framed(&append), true).unwrap();
    assert_status(&reply(decided).await.status.unwrap(), Code::Unavailable, "DRAINING");
    assert_status(&reply(appended).await.status.unwrap(), Code::Unavailable, "DRAINING");
    drop(raw);
    assert_eq!(shutting_down.stopped().await, Stopped::Clean);
}

#[tokio::test]
async fn a_read_that_could_be_too_long_for_a_unary_call_is_refused() {
    let server = Server::with(|config| config.limits.read_bytes = 2 * 1024 * 1024).await;
    let (mut p1, mut ids) = (server.client("p1").await, Vec::new());
    // One MiB, and a value more.
    for read_size in [16, 17] {
        let parameters =
            Parameters { processes: 17, read_size, max_value_bytes: 64 * 1024, ..fixtures::parameters() };
        ids.push(fixtures::instance_with(&server, parameters).await);
    }
    let now = |id: &str| ReadRequest { no_wait: true, ..fixtures::read(id, 1) };
    assert_refused(
        with_timeout(p1.list.read(now(&ids[0]))).await,
        Code::FailedPrecondition,
        "NOT_YOUR_PHASE",
    );
    for request in [now(&ids[1]), fixtures::read(&ids[1], 1)] {
        assert_refused(with_timeout(p1.list.read(request)).await, Code::FailedPrecondition, "READ_TOO_LARGE");
    }
    let own = p1.get(&ids[1]).await.unwrap().own.unwrap();
    assert_eq!(own.next_access_number, 1, "it was no access");
}
