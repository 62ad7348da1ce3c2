//! Unary calls as HTTP/2 may bring them: in pieces, compressed, too long, with more behind them, on another path.

use bytes::Bytes;
use stickycas_proto::v1::{AppendRequest, DecideRequest};
use stickycas_server::{PRINCIPAL_KEY, Stopped};
use tonic::Code;

use crate::harness::game::{self, alone, append};
use crate::harness::raw::{Raw, framed, prefixed, reply};
use crate::harness::{Server, refused, soon, told};

const P1: [(&str, &str); 1] = [(PRINCIPAL_KEY, "p1")];

/// A server, an instance of one process on it, and a connection to it.
async fn start() -> (Server, String, Raw) {
    let server = Server::start().await;
    let id = game::instance_with(&server, alone()).await;
    let raw = Raw::connect(server.address).await;
    (server, id, raw)
}

/// An append, with its prefix.
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
async fn what_comes_behind_a_message_is_not_looked_at() {
    let (_server, id, mut raw) = start().await;
    let body = [an_append(&id), prefixed(b"more")].concat().into();
    assert_eq!(raw.call_as("p1", "StickyCasService/Append", body).await.status.unwrap().code(), Code::Ok);
}

#[tokio::test]
async fn a_message_that_is_announced_as_too_long_is_not_waited_for() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    let (response, mut send) = raw.begin("StickyCasService/Append", &P1).await;
    send.send_data(Bytes::from_static(&[0, 0, 2, 0, 0]), false).unwrap();
    told(&reply(response).await.status.unwrap(), Code::InvalidArgument, "MALFORMED");
}

#[tokio::test]
async fn a_compressed_message_is_not_implemented_and_what_is_is_told() {
    let (server, id, mut raw) = start().await;
    let headers = [P1[0], ("grpc-encoding", "gzip")];
    let (response, mut send) = raw.begin("StickyCasService/Append", &headers).await;
    send.send_data(an_append(&id), true).unwrap();
    let response = soon(response).await.unwrap();
    assert_eq!(response.headers()["grpc-status"], "12");
    assert_eq!(response.headers()["grpc-accept-encoding"], "identity");
    // Nothing was taken: the same number is free for another value.
    server.client("p1").await.append(&id, 1, "another").await.unwrap();
}

#[tokio::test]
async fn a_path_is_taken_whole() {
    let (server, id, mut raw) = start().await;
    let longer = raw.call_as("p1", "StickyCasService/x/Append", an_append(&id)).await;
    assert_eq!(longer.status.unwrap().code(), Code::Unimplemented);
    server.client("p1").await.append(&id, 1, "another").await.unwrap();
}

#[tokio::test]
async fn an_answer_has_the_headers_of_grpc_and_no_others() {
    let (_server, id, mut raw) = start().await;
    let (response, mut send) = raw.begin("StickyCasService/Append", &P1).await;
    send.send_data(an_append(&id), true).unwrap();
    let response = soon(response).await.unwrap();
    let mut names: Vec<&str> = response.headers().keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "date"]);
    assert_eq!(response.headers()["content-type"], "application/grpc");
}

#[tokio::test]
async fn a_call_that_is_not_whole_when_draining_begins_is_not_taken() {
    let server = Server::with(|config| config.drain = std::time::Duration::from_secs(60)).await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let value = Bytes::from_static(b"mine");
    let decide = framed(&DecideRequest { instance_id: id.clone(), value: value.clone() });
    let append = AppendRequest { instance_id: id.clone(), access_number: 1, value, no_wait: false };
    let (decided, mut rest_of_decide) = raw.begin("StickyCasService/Decide", &P1).await;
    let (appended, mut rest_of_append) = raw.begin("StickyCasService/Append", &P1).await;
    // The server has met both: it takes streams in their order.
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    let waits = server.client("p2").await.append_and_wait(&id, "mine").await;
    let stopping = server.begin_to_stop();
    refused(soon(waits).await.unwrap(), Code::Unavailable, "DRAINING");
    rest_of_decide.send_data(decide, true).unwrap();
    rest_of_append.send_data(framed(&append), true).unwrap();
    told(&reply(decided).await.status.unwrap(), Code::Unavailable, "DRAINING");
    told(&reply(appended).await.status.unwrap(), Code::Unavailable, "DRAINING");
    drop(raw);
    assert_eq!(stopping.ended().await, Stopped::Clean);
}
