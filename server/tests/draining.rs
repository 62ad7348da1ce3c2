//! Draining: health says NOT_SERVING, waiting calls and streams end with DRAINING, no connection is accepted,
//! and no client can delay the end.

use std::time::Duration;

use stickycas_proto::v1::WatchRequest;
use stickycas_server::{PRINCIPAL_KEY, Stopped};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::fixtures;
use crate::harness::raw::RawClient;
use crate::harness::stream::{Stream, append};
use crate::harness::{Server, assert_refused, assert_status, with_timeout};

/// Far longer than a clean end takes.
const LONG_DRAIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn waiting_calls_and_streams_end_with_draining() {
    let server = Server::with(|config| config.drain = LONG_DRAIN).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    let call = p1.append_and_wait(&id, "mine").await;
    let mut stream = Stream::open(&mut p2, &id).await;
    stream.send([append(0, 1, "mine")]);
    p2.until_waiting(&id, 1).await;
    let watch = WatchRequest { instance_id: id, from_phase: 0, snapshot_first: false };
    let mut watching = with_timeout(p2.instances.watch(watch)).await.unwrap().into_inner();

    let shutting_down = server.begin_shutdown();
    assert_refused(with_timeout(call).await.unwrap(), Code::Unavailable, "DRAINING");
    assert_status(&stream.broken().await, Code::Unavailable, "DRAINING");
    let broken = with_timeout(async {
        loop {
            if let Err(status) = watching.message().await {
                break status;
            }
        }
    });
    assert_status(&broken.await, Code::Unavailable, "DRAINING");
    assert_eq!(shutting_down.stopped().await, Stopped::Clean);
}

#[tokio::test]
async fn a_health_watch_is_notified_and_does_not_delay_the_end() {
    let server = Server::with(|config| config.drain = LONG_DRAIN).await;
    let mut health = HealthClient::new(server.connect().await);
    let check = with_timeout(health.check(HealthCheckRequest::default())).await.unwrap().into_inner();
    assert_eq!(check.status(), ServingStatus::Serving);
    let mut watching = with_timeout(health.watch(HealthCheckRequest::default())).await.unwrap().into_inner();
    let first = with_timeout(watching.message()).await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    let shutting_down = server.begin_shutdown();
    let second = with_timeout(watching.message()).await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    assert!(with_timeout(watching.message()).await.unwrap().is_none());
    assert_eq!(shutting_down.stopped().await, Stopped::Clean);
}

#[tokio::test]
async fn a_stopped_server_accepts_no_connection() {
    let server = Server::start().await;
    let address = server.address;
    server.client("p1").await;
    server.stop().await;
    assert!(with_timeout(TcpStream::connect(address)).await.is_err());
}

#[tokio::test]
async fn a_silent_connection_does_not_delay_the_end() {
    let server = Server::start().await;
    let mut silent = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    // The server has accepted it: it accepts connections in their order.
    server.client("p1").await.append("none", 1, "x").await.unwrap_err();
    server.stop().await;
    // An end or an error: the connection is not open any more.
    let _ = with_timeout(silent.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn a_call_that_never_ends_is_aborted() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(server.address).await;
    // The request never comes, so the call never begins.
    let (response, _send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p1")]).await;
    raw.call_as("p1", "InstanceService/List", crate::harness::raw::prefixed(&[])).await;
    assert_eq!(server.stop().await, Stopped::Forced);
    with_timeout(response).await.unwrap_err();
    drop(raw.send);
    let _ = with_timeout(raw.connection).await.unwrap();
}
