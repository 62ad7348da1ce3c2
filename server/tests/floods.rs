//! Floods of HTTP/2 frames: they are paced and counted, others are unaffected, and what correct clients do is
//! no flood.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::fixtures::{self, PROPOSAL};
use crate::harness::frames::{
    DATA, END_HEADERS, FrameClient, HEADERS, PING, call, list, reset, window_update,
};
use crate::harness::raw::{RawClient, prefixed};
use crate::harness::{Server, with_timeout};
use crate::limits::frame;

impl Server {
    /// Frames of this type that clients have sent.
    async fn frames_received(&self, kind: &str) -> u64 {
        let name = format!("stickycas_frames_received_total{{type=\"{kind}\"}} ");
        let metrics = self.get("/metrics").await.1;
        let count = metrics.lines().find_map(|line| line.strip_prefix(&name));
        count.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }
}

fn streams(from: u32, count: usize) -> impl Iterator<Item = u32> {
    (from..).step_by(2).take(count)
}

#[tokio::test]
async fn small_messages_in_one_write_keep_the_connection() {
    const MESSAGES: usize = 10_000;
    // Room for the usual windows.
    let server = Server::with(|config| config.limits.window_bytes = 1 << 30).await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    // Messages without frames: the smallest there are.
    let message = frame(DATA, 0, 3, &prefixed(&[]));
    client.send(&[call(3, "StickyCasService/Attach", "p1"), message.repeat(MESSAGES)].concat()).await;
    client.calls(5, "p1").await;
    assert!(server.frames_received("data").await >= MESSAGES as u64);
    let counts = server.counts().await.all.unwrap();
    assert_eq!((counts.connections_given_up, counts.connections_paced), (0, 0));
}

/// Many more than HTTP/2 lets wait in the smallest windows, which is 128.
#[tokio::test]
async fn small_windows_keep_the_connection_of_small_messages() {
    const STREAMS: usize = 8;
    /// What the window of the connection allows on these streams.
    const MESSAGES: usize = 1_500;
    let server = Server::with(|config| config.limits.window_bytes = 1).await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    let mut bytes = Vec::new();
    for stream in streams(3, STREAMS) {
        bytes.extend(call(stream, "StickyCasService/Attach", "p1"));
        bytes.extend(frame(DATA, 0, stream, &prefixed(&[])).repeat(MESSAGES));
    }
    client.send(&bytes).await;
    client.calls(99, "p1").await;
    assert!(server.frames_received("data").await >= (STREAMS * MESSAGES) as u64);
    let counts = server.counts().await.all.unwrap();
    assert_eq!((counts.connections_given_up, counts.connections_paced), (0, 0));
}

#[tokio::test]
async fn a_client_may_cancel_all_of_its_calls_at_once() {
    let server = Server::start().await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    let mut next = 3;
    for together in [30, 100, 1_000] {
        let streams: Vec<_> = streams(next, together).collect();
        next = streams.last().unwrap() + 2;
        let calls = streams.iter().map(|stream| call(*stream, "InstanceService/List", "p1"));
        let cancels = streams.iter().map(|stream| reset(*stream));
        let both = calls.chain(cancels).collect::<Vec<_>>().concat();
        client.send(&both).await;
        client.calls(next, "p1").await;
        next += 2;
    }
    // The same, each cancelled as soon as it was begun.
    let pairs = streams(next, 500)
        .map(|stream| [call(stream, "InstanceService/List", "p1"), reset(stream)].concat())
        .collect::<Vec<_>>();
    client.send(&pairs.concat()).await;
    client.calls(next + 1_000, "p1").await;
    let counts = server.counts().await.all.unwrap();
    assert_eq!((counts.connections_given_up, counts.connections_reset_flooded), (0, 0));
    assert_eq!(counts.connections_paced, 0);
}

#[tokio::test]
async fn a_reset_flood_is_paced_and_counted_for_its_principal() {
    let server = Server::with(|config| config.limits.resets_per_second = 500).await;
    let id = fixtures::instance(&server).await;
    let mut flood = FrameClient::claimed(server.address, "p1").await;
    let mut neighbour = FrameClient::claimed(server.address, "p2").await;
    for _ in 0..2 {
        let pairs =
            streams(3, 1_000).map(|stream| [call(stream, "InstanceService/List", "p1"), reset(stream)]);
        let pairs: Vec<_> = pairs.flatten().collect();
        flood.send(&pairs.concat()).await;
        flood = FrameClient::claimed(server.address, "p1").await;
    }
    let counts = server.counts_until(|all| all.connections_reset_flooded >= 1).await;
    assert_eq!(counts.connections_given_up, 0, "it is paced and not closed");
    assert!(server.counts_of("p1").await.connections_reset_flooded >= 1);
    // It cancels its calls meanwhile, as it may.
    let cancelled = streams(3, 100).flat_map(|stream| [list(stream, "p2"), reset(stream)]);
    neighbour.send(&cancelled.collect::<Vec<_>>().concat()).await;
    neighbour.calls(999, "p2").await;
    let counts = server.counts_of("p2").await;
    assert_eq!((counts.connections_reset_flooded, counts.connections_paced), (0, 0));
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn control_frames_are_paced_on_all_connections_of_a_principal() {
    let server = Server::with(|config| config.limits.control_frames_per_second = 1_000).await;
    let id = fixtures::instance(&server).await;
    let mut flood = FrameClient::claimed(server.address, "p1").await;
    let mut other = FrameClient::claimed(server.address, "p1").await;
    let mut neighbour = FrameClient::claimed(server.address, "p2").await;
    flood.send(&window_update().repeat(3_000)).await;
    server.counts_until(|all| all.connections_paced == 1).await;
    // Beyond the small share that each connection has.
    other.send(&frame(PING, 0, 0, &[9; 8]).repeat(100)).await;
    server.counts_until(|all| all.connections_paced == 2).await;
    neighbour.calls(3, "p2").await;
    fixtures::play(&server, &id, PROPOSAL).await;
    // None is closed: when its time comes it goes on.
    flood.calls(3, "p1").await;
    other.calls(3, "p1").await;
    assert_eq!(server.counts_of("p1").await.connections_paced, 2);
    assert_eq!(server.counts_of("p2").await.connections_paced, 0);
}

/// So many connections that belong to nobody are paced when each sends this, and nobody else is.
async fn strangers_are_paced(server: &Server, strangers: u64, bytes: &[u8]) {
    let id = fixtures::instance(server).await;
    let mut p2 = FrameClient::claimed(server.address, "p2").await;
    let mut open = Vec::new();
    for _ in 0..strangers {
        let mut stranger = FrameClient::connect(server.address).await;
        stranger.send(bytes).await;
        open.push(stranger);
    }
    server.counts_until(|all| all.connections_paced == strangers).await;
    // Neither one that is identified nor one that opens is kept waiting.
    p2.send(&window_update().repeat(500)).await;
    p2.calls(3, "p2").await;
    FrameClient::claimed(server.address, "p3").await.calls(3, "p3").await;
    fixtures::play(server, &id, PROPOSAL).await;
    assert_eq!(server.counts().await.all.unwrap().connections_paced, strangers);
}

#[tokio::test]
async fn clients_without_identity_share_one_rate_of_control_frames() {
    let server = Server::with(|config| config.limits.anonymous_control_frames_per_second = 1_000).await;
    // Of an unknown type.
    strangers_are_paced(&server, 8, &frame(0x77, 0, 0, &[]).repeat(2_000)).await;
}

#[tokio::test]
async fn requests_are_paced_on_all_connections_of_a_principal() {
    let server = Server::with(|config| config.limits.headers_per_second = 100).await;
    let id = fixtures::instance(&server).await;
    let mut flood = FrameClient::claimed(server.address, "flood").await;
    let mut other = FrameClient::claimed(server.address, "flood").await;
    let mut neighbour = FrameClient::claimed(server.address, "p2").await;
    // Half-sent, and refused above the quota of calls.
    let half_sent = |stream| call(stream, "InstanceService/List", "flood");
    let calls: Vec<_> = streams(3, 400).map(half_sent).collect();
    flood.send(&calls.concat()).await;
    server.counts_until(|all| all.connections_paced == 1).await;
    // Beyond the small share that each connection has, and more than is refilled if the first are through by
    // now.
    other.send(&calls.concat()).await;
    server.counts_until(|all| all.connections_paced == 2).await;
    neighbour.calls(3, "p2").await;
    fixtures::play(&server, &id, PROPOSAL).await;
    // None is closed: when its time comes it goes on.
    for client in [&mut flood, &mut other] {
        client.send(&half_sent(9_999)).await;
        client.until(HEADERS, 9_999).await;
    }
    let counts = server.counts_of("flood").await;
    assert_eq!((counts.connections_paced, counts.connections_given_up), (2, 0));
    assert_eq!(server.counts_of("p2").await.connections_paced, 0);
}

#[tokio::test]
async fn clients_without_identity_share_one_rate_of_requests() {
    let server = Server::with(|config| config.limits.anonymous_headers_per_second = 500).await;
    // Under no name, so the connection belongs to nobody.
    let calls: Vec<_> = streams(1, 1_000).map(|stream| call(stream, "InstanceService/List", "")).collect();
    strangers_are_paced(&server, 4, &calls.concat()).await;
}

/// As callers in other languages do: HEADERS and content apart, cancelled when it takes too long.
#[tokio::test]
async fn a_caller_beside_floods_keeps_its_connection() {
    let server = Server::with(|config| config.limits.anonymous_control_frames_per_second = 1_000).await;
    let address = server.address;
    let floods: Vec<_> = (0..16)
        .map(|_| {
            tokio::spawn(async move {
                let mut flood = FrameClient::connect(address).await;
                loop {
                    flood.send(&window_update().repeat(1_000)).await;
                }
            })
        })
        .collect();
    server.counts_until(|all| all.connections_paced == 16).await;
    let mut caller = FrameClient::connect(address).await;
    let mut next = 1;
    for _ in 0..50 {
        for stream in streams(next, 20) {
            caller.send(&call(stream, "InstanceService/List", "p1")).await;
            caller.send(&reset(stream)).await;
        }
        next += 40;
        caller.calls(next, "p1").await;
        next += 2;
    }
    floods.iter().for_each(tokio::task::JoinHandle::abort);
    let counts = server.counts_of("p1").await;
    assert_eq!((counts.connections_given_up, counts.connections_reset_flooded), (0, 0));
    assert_eq!(counts.connections_paced, 0);
}

#[tokio::test]
async fn late_content_of_refused_calls_keeps_the_connection() {
    let server = Server::with(|config| config.limits.requests_per_second = 10).await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    for round in 0..4 {
        let streams: Vec<_> = streams(3 + round * 2_000, 1_000).collect();
        let calls: Vec<_> =
            streams.iter().map(|stream| call(*stream, "InstanceService/List", "p1")).collect();
        client.send(&calls.concat()).await;
        client.until(HEADERS, *streams.last().unwrap()).await;
        // The server has reset them by now, and remembers few of them.
        let content: Vec<_> = streams.iter().map(|stream| frame(DATA, 1, *stream, &[0; 5])).collect();
        client.send(&content.concat()).await;
    }
    client.send(&call(9_999, "InstanceService/List", "p1")).await;
    client.until(HEADERS, 9_999).await;
    assert_eq!(server.counts_of("p1").await.connections_given_up, 0);
}

#[tokio::test]
async fn frames_are_counted_by_type() {
    let server = Server::start().await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    client.send(&[window_update().repeat(17), frame(0x77, END_HEADERS, 0, &[1; 30])].concat()).await;
    client.calls(3, "p1").await;
    for (kind, count) in [("window_update", 17), ("headers", 2), ("data", 2), ("settings", 1), ("unknown", 1)]
    {
        assert!(server.frames_received(kind).await >= count, "{kind}");
    }
}

#[tokio::test]
async fn a_health_watch_alone_on_its_connection_stays() {
    let timeout = Duration::from_millis(200);
    let server = Server::with(|config| config.limits.first_call_timeout = timeout).await;
    let mut health = HealthClient::new(server.connect().await);
    let mut watching = with_timeout(health.watch(HealthCheckRequest::default())).await.unwrap().into_inner();
    with_timeout(watching.message()).await.unwrap().unwrap();
    // Three connections without a call that end one after the other: each has taken as long as the first
    // might.
    for silent in 1..=3 {
        let mut silent_client = FrameClient::connect(server.address).await;
        let mut bytes = Vec::new();
        let _ = with_timeout(silent_client.tcp.read_to_end(&mut bytes)).await;
        server.counts_until(|all| all.connections_silent == silent).await;
    }
    let shutting_down = server.begin_shutdown();
    with_timeout(watching.message()).await.unwrap().expect("it is told of the end");
    drop(shutting_down);
}

/// What HTTP/2 itself closes is held against nobody.
#[tokio::test]
async fn a_connection_that_http2_gives_up_is_no_reset_flood() {
    let server = Server::with(|config| config.limits.pending_reset_streams = 5).await;
    let mut client = FrameClient::claimed(server.address, "p1").await;
    let pairs =
        streams(3, 100).flat_map(|stream| [call(stream, "InstanceService/List", "p1"), reset(stream)]);
    let pairs = pairs.collect::<Vec<_>>().concat();
    let _ = client.tcp.write_all(&pairs).await;
    server.counts_until(|all| all.connections_given_up == 1).await;
    assert_eq!(server.counts_of("p1").await.connections_reset_flooded, 0);
    let mut again = RawClient::connect(server.address).await;
    let reply = again.call_as("p1", "InstanceService/List", Bytes::from_static(&[0; 5])).await;
    assert_eq!(reply.status.unwrap().code(), Code::Ok);
}
