//! A server that is told to stop: health says so, everything that waits ends with DRAINING, nobody new gets in,
//! and nobody can hold the end up.

use std::time::Duration;

use stickycas_proto::v1::WatchRequest;
use stickycas_server::{PRINCIPAL_KEY, Stopped};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::game;
use crate::harness::raw::Raw;
use crate::harness::stream::{Stream, append};
use crate::harness::{Server, refused, soon, told};

/// Long enough that whatever ends in it has ended by itself.
const AMPLE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn all_that_waits_ends_with_draining_and_the_end_is_clean() {
    let server = Server::with(|config| config.drain = AMPLE).await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    let call = p1.append_and_wait(&id, "mine").await;
    let mut stream = Stream::open(&mut p2, &id).await;
    stream.say([append(0, 1, "mine")]);
    p2.until_waiting(&id, 1).await;
    let watch = WatchRequest { instance_id: id, from_phase: 0, snapshot_first: false };
    let mut watching = soon(p2.instances.watch(watch)).await.unwrap().into_inner();

    let stopping = server.begin_to_stop();
    refused(soon(call).await.unwrap(), Code::Unavailable, "DRAINING");
    told(&stream.broken().await, Code::Unavailable, "DRAINING");
    let broken = soon(async {
        loop {
            if let Err(status) = watching.message().await {
                break status;
            }
        }
    });
    told(&broken.await, Code::Unavailable, "DRAINING");
    assert_eq!(stopping.ended().await, Stopped::Clean);
}

#[tokio::test]
async fn who_watches_the_health_is_told_and_does_not_hold_up_the_end() {
    let server = Server::with(|config| config.drain = AMPLE).await;
    let mut health = HealthClient::new(server.connect().await);
    let check = soon(health.check(HealthCheckRequest::default())).await.unwrap().into_inner();
    assert_eq!(check.status(), ServingStatus::Serving);
    let mut watching = soon(health.watch(HealthCheckRequest::default())).await.unwrap().into_inner();
    let first = soon(watching.message()).await.unwrap().unwrap();
    assert_eq!(first.status(), ServingStatus::Serving);

    let stopping = server.begin_to_stop();
    let second = soon(watching.message()).await.unwrap().unwrap();
    assert_eq!(second.status(), ServingStatus::NotServing);
    assert!(soon(watching.message()).await.unwrap().is_none());
    assert_eq!(stopping.ended().await, Stopped::Clean);
}

#[tokio::test]
async fn nobody_new_gets_in() {
    let server = Server::start().await;
    let address = server.address;
    server.client("p1").await;
    server.stop().await;
    assert!(soon(TcpStream::connect(address)).await.is_err());
}

#[tokio::test]
async fn a_connection_that_says_nothing_does_not_hold_up_the_end() {
    let server = Server::start().await;
    let mut silent = soon(TcpStream::connect(server.address)).await.unwrap();
    // The server has taken it: it takes connections in the order in which they come.
    server.client("p1").await.append("none", 1, "x").await.unwrap_err();
    server.stop().await;
    // An end or an error, as long as it comes: it is not open any more.
    let _ = soon(silent.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn a_call_that_never_ends_is_cut_off() {
    let server = Server::start().await;
    let mut raw = Raw::connect(server.address).await;
    // Its request never comes, so the call never begins.
    let (response, _send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p1")]).await;
    raw.call_as("p1", "InstanceService/List", crate::harness::raw::prefixed(&[])).await;
    assert_eq!(server.stop().await, Stopped::Forced);
    soon(response).await.unwrap_err();
    drop(raw.send);
    let _ = soon(raw.connection).await.unwrap();
}
