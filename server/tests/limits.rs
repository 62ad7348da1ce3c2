//! Each limit of the server: one client reaches it, and others are unaffected. Limits that belong to another
//! subject are tested there: messages and callers in `refusals`, frames in `attach`, records in `watch`,
//! those of a principal in `quotas`.

use std::time::Duration;

use stickycas_proto::v1::{AppendWindow, CreateResponse, Parameters, server_frame::Frame};
use stickycas_server::PRINCIPAL_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::harness::fixtures::{self, PROPOSAL, alone, create_request, parameters};
use crate::harness::raw::{RawClient, prefixed};
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, Server, assert_status, with_timeout};

/// The first bytes of an HTTP/2 client: the preface and an empty SETTINGS frame.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The error code of a GOAWAY to a client that does too much of something.
const ENHANCE_YOUR_CALM: u32 = 11;

/// An HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads until the server closes; the error codes of its GOAWAY frames.
async fn goaway_codes(stream: &mut TcpStream) -> Vec<u32> {
    let mut bytes = Vec::new();
    // A reset is as good as an end; the bytes read before it stay.
    let _ = with_timeout(stream.read_to_end(&mut bytes)).await;
    let (mut codes, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((head, behind)) = rest.split_at_checked(9) {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, next)) = behind.split_at_checked(length) else { break };
        if head[3] == 7 {
            codes.push(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        rest = next;
    }
    codes
}

#[tokio::test]
async fn a_connection_above_the_limit_is_closed_and_no_other() {
    let server = Server::with(|config| config.limits.connections = 4).await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    // As many connections as are left: that of the creator may still be open.
    let mut held = Vec::new();
    let mut refused_connection = with_timeout(async {
        loop {
            let mut next = TcpStream::connect(server.address).await.unwrap();
            next.write_all(PREFACE).await.unwrap();
            match next.read(&mut [0; 9]).await {
                Ok(1..) => held.push(next),
                Ok(0) | Err(_) => break next,
            }
        }
    })
    .await;
    assert!((2..=3).contains(&held.len()), "{}", held.len());
    assert!(matches!(with_timeout(refused_connection.read(&mut [0; 9])).await, Ok(0) | Err(_)));
    p1.read(&id, 2).await.unwrap();
    drop(held);
    // The limit has room again as soon as the server has noticed that they are closed.
    let mut again = with_timeout(async {
        loop {
            let mut next = TcpStream::connect(server.address).await.unwrap();
            next.write_all(PREFACE).await.unwrap();
            if matches!(next.read(&mut [0; 9]).await, Ok(1..)) {
                break next;
            }
        }
    })
    .await;
    again.shutdown().await.unwrap();
    p1.read(&id, 3).await.unwrap();
    p1.decide(&id, PROPOSAL).await.unwrap();
}

#[tokio::test]
async fn a_connection_without_preface_is_closed_and_no_other() {
    let server = Server::with(|config| config.limits.preface_timeout = Duration::from_millis(100)).await;
    let id = fixtures::instance(&server).await;
    let mut silent = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    let mut halting = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    halting.write_all(&PREFACE[..23]).await.unwrap();
    let mut opened = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    opened.write_all(PREFACE).await.unwrap();
    for stream in [&mut silent, &mut halting] {
        assert!(goaway_codes(stream).await.is_empty());
    }
    // PING, and its echo behind the SETTINGS.
    opened.write_all(&frame(6, 0, 0, b"12345678")).await.unwrap();
    let mut seen = Vec::new();
    with_timeout(async {
        while !seen.ends_with(b"12345678") {
            assert_ne!(opened.read_buf(&mut seen).await.unwrap(), 0, "it stays open");
        }
    })
    .await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_streams_of_a_connection_are_limited() {
    let server = Server::with(|config| config.limits.streams_per_connection = 2).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    assert_eq!(raw.send.current_max_send_streams(), 2);

    // A client that ignores the limit: streams above it are refused one by one.
    let mut client = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    client.write_all(PREFACE).await.unwrap();
    let headers = [0x83, 0x86, 0x84];
    for stream in [1, 3, 5] {
        client.write_all(&frame(1, 4, stream, &headers)).await.unwrap();
    }
    let refused_stream = frame(3, 0, 5, &7_u32.to_be_bytes());
    let mut seen = Vec::new();
    with_timeout(async {
        while !seen.windows(refused_stream.len()).any(|it| it == refused_stream) {
            assert_ne!(client.read_buf(&mut seen).await.unwrap(), 0, "{seen:?}");
        }
    })
    .await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn too_many_server_resets_end_the_connection_and_no_other() {
    let server = Server::with(|config| config.limits.local_reset_streams = 5).await;
    let id = fixtures::instance(&server).await;
    let mut flood = with_timeout(TcpStream::connect(server.address)).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    for stream in (1..200).step_by(2) {
        // content-length: x
        bytes.extend(frame(1, 4, stream, &[0x83, 0x86, 0x84, 0x5c, 1, b'x']));
    }
    let _ = with_timeout(flood.write_all(&bytes)).await;
    assert!(goaway_codes(&mut flood).await.iter().all(|code| *code == ENHANCE_YOUR_CALM));
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn too_large_headers_are_refused_and_the_connection_goes_on() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let large = "x".repeat(20 * 1024);
    let headers = [(PRINCIPAL_KEY, "p1"), ("x-large", large.as_str())];
    let reply = raw.call("InstanceService/List", &headers, prefixed(&[])).await;
    assert_eq!(reply.http, http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let reply = raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    assert_eq!(reply.status.unwrap().code(), Code::Ok);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn attach_streams_are_limited_per_principal() {
    let server = Server::with(|config| config.limits.attach_streams_per_principal = 2).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let first = Stream::open(&mut p1, &id).await;
    let _second = Stream::new(&mut server.client("p1").await).await;
    let Err(status) = Stream::try_new(&mut p1).await else { panic!("a third stream") };
    assert_status(&status, Code::ResourceExhausted, "TOO_MANY_STREAMS");
    let mut p2 = server.client("p2").await;
    Stream::open(&mut p2, &id).await;
    drop(first);
    with_timeout(async {
        while Stream::try_new(&mut p1).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_channels_of_a_stream_are_limited() {
    let server = Server::with(|config| config.limits.channels_per_stream = 2).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(fixtures::instance(&server).await);
    }
    stream.send((0..).zip(&ids).map(|(channel, id)| hello(channel, id)));
    assert_eq!((stream.welcome().await.channel, stream.welcome().await.channel), (0, 1));
    let refusal = stream.refusal(Code::ResourceExhausted, "TOO_MANY_STREAMS").await;
    assert_eq!(refusal.channel, 2);
    assert!(refusal.retry_after.is_some());
    for id in ids {
        fixtures::play(&server, &id, PROPOSAL).await;
    }
}

#[tokio::test]
async fn too_many_unread_frames_end_the_stream_and_accesses_stand() {
    let server = Server::with(|config| config.limits.unread_frames = 3).await;
    let id = fixtures::instance_with(&server, Parameters { pipeline: 10, ..alone() }).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4), read(0, 5)]);
    assert_status(&stream.broken().await, Code::ResourceExhausted, "READER_TOO_SLOW");
    assert_eq!(p1.own(&id).await.next_access_number, 6);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_frames_of_a_server_message_are_limited() {
    let server = Server::with(|config| config.limits.frames_per_answer = 2).await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    let before = stream.messages;
    stream.send([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4), read(0, 5)]);
    for number in 1..=5 {
        assert_eq!(stream.answer().await.number, number);
    }
    assert_eq!(stream.messages - before, 3);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn sessions_of_a_process_are_limited_and_unary_calls_still_work() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.send((0..=1_000).map(|turn| hello(turn % 2, &id)));
    let refusal = loop {
        match stream.frame().await {
            Frame::Welcome(_) | Frame::Replaced(_) => {}
            Frame::Refusal(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (refusal.reason().as_str_name(), refusal.retry_after),
        ("REFUSAL_REASON_TOO_MANY_SESSIONS", None)
    );
    assert_eq!(refusal.code, i32::from(Code::ResourceExhausted));
    fixtures::play(&server, &id, PROPOSAL).await;
}

/// Asserts that another instance is refused, with this advice.
fn assert_no_capacity(outcome: Result<tonic::Response<CreateResponse>, tonic::Status>, remedy: &str) {
    let status = outcome.unwrap_err();
    assert_status(&status, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
    assert!(status.message().contains(remedy), "{}", status.message());
    assert!(status.get_error_details().retry_info().is_some());
}

#[tokio::test]
async fn live_instances_are_limited_per_creator_until_they_end() {
    let server = Server::with(|config| {
        config.limits.live_instances_per_creator = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut coordinator = server.client(COORDINATOR).await;
    let id = fixtures::instance(&server).await;
    let closed = fixtures::instance(&server).await;
    assert_no_capacity(
        coordinator.create(create_request(parameters())).await,
        "let some come to their end, or close some",
    );
    server.client("rival").await.create(create_request(parameters())).await.unwrap();
    fixtures::play(&server, &id, PROPOSAL).await;
    coordinator.create(create_request(parameters())).await.expect("one has finished");
    assert_no_capacity(
        coordinator.create(create_request(parameters())).await,
        "let some come to their end, or close some",
    );
    coordinator.close(&closed).await.unwrap();
    let next = coordinator.create(create_request(parameters())).await.expect("one was closed").into_inner();
    fixtures::play(&server, &next.instance.unwrap().instance_id, PROPOSAL).await;
    for id in [&id, &closed] {
        coordinator.get(id).await.expect("what has ended can still be read");
    }
}

#[tokio::test]
async fn held_instances_are_limited_per_creator_even_when_ended() {
    let server = Server::with(|config| {
        config.limits.instances_per_creator = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut coordinator = server.client(COORDINATOR).await;
    let id = fixtures::instance(&server).await;
    let closed = fixtures::instance(&server).await;
    coordinator.close(&closed).await.unwrap();
    assert_no_capacity(
        coordinator.create(create_request(parameters())).await,
        "each is let go of 10m after its end",
    );
    server.client("rival").await.create(create_request(parameters())).await.unwrap();
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn instances_and_processes_of_the_server_are_limited() {
    for limit in ["live_instances", "instances", "processes"] {
        let server = Server::with(|config| match limit {
            "live_instances" => config.limits.live_instances = 2,
            "instances" => config.limits.instances = 2,
            _ => config.limits.processes = 8,
        })
        .await;
        let mut coordinator = server.client(COORDINATOR).await;
        let id = fixtures::instance(&server).await;
        fixtures::instance(&server).await;
        assert_no_capacity(coordinator.create(create_request(parameters())).await, "");
        fixtures::play(&server, &id, PROPOSAL).await;
        let ended = coordinator.create(create_request(parameters())).await;
        assert_eq!(ended.is_ok(), limit == "live_instances", "ended instances count for the others");
    }
}

#[tokio::test]
async fn an_instance_that_can_never_fit_takes_no_capacity() {
    // Whatever the worst case of the instance is, one of these servers has the memory for one and not for
    // two.
    let mut bytes = 1_024;
    loop {
        let server = Server::with(|config| config.limits.instance_bytes = bytes).await;
        match server.client(COORDINATOR).await.create(create_request(parameters())).await {
            Ok(_) => return,
            Err(status) => {
                // It could never be created: waiting would be in vain.
                assert_status(&status, Code::InvalidArgument, "BAD_PARAMETERS");
                assert!(status.message().contains("instance_bytes"), "{bytes}: {}", status.message());
            }
        }
        bytes += bytes / 5;
    }
}

#[tokio::test]
async fn a_bound_that_can_never_be_met_is_named() {
    let server = Server::with(|config| config.limits.processes = 2).await;
    let status = server.client(COORDINATOR).await.create(create_request(parameters())).await.unwrap_err();
    assert_status(&status, Code::InvalidArgument, "BAD_PARAMETERS");
    assert!(status.message().contains("processes"), "{}", status.message());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::with(|config| {
        config.limits.log_bytes_per_creator = 1_024;
        config.data = Some(folder.path().join("log"));
    })
    .await;
    let status = server.client(COORDINATOR).await.create(create_request(parameters())).await.unwrap_err();
    assert_status(&status, Code::InvalidArgument, "BAD_PARAMETERS");
    assert!(status.message().contains("log_bytes_per_creator"), "{}", status.message());
}

/// Under `open` a list holds n entries, and a read may return all of them, whatever the number of warps is.
#[tokio::test]
async fn a_read_that_would_be_too_long_is_refused_at_create() {
    let server = Server::with(|config| config.limits.read_bytes = 1_000).await;
    let mut coordinator = server.client(COORDINATOR).await;
    let window = |append_window: AppendWindow| Parameters {
        processes: 20,
        warp_size: 20,
        read_size: 20,
        max_value_bytes: 64,
        append_window: append_window.into(),
        ..parameters()
    };
    // One warp appends once.
    coordinator.create(create_request(window(AppendWindow::FirstAccess))).await.unwrap();
    let status = coordinator.create(create_request(window(AppendWindow::Open))).await.unwrap_err();
    assert_status(&status, Code::InvalidArgument, "BAD_PARAMETERS");
    assert!(status.message().contains("1280 bytes") && status.message().contains("20 values"), "{status:?}");
}

#[tokio::test]
async fn one_coordinator_cannot_take_what_others_need() {
    for limit in ["live_instances", "instances", "processes", "instance_bytes", "log_bytes"] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::with(|config| {
            config.coordinators.extend(["rival".to_owned(), "third".to_owned()]);
            match limit {
                "live_instances" => config.limits.live_instances = 12,
                "instances" => config.limits.instances = 12,
                "processes" => config.limits.processes = 36,
                "instance_bytes" => config.limits.instance_bytes = 1_000_000,
                _ => {
                    config.limits.log_bytes = 4_000_000;
                    config.data = Some(folder.path().join("log"));
                }
            }
        })
        .await;
        let mut coordinator = server.client(COORDINATOR).await;
        let (greedy, refused) = with_timeout(async {
            let mut created = 0;
            loop {
                match coordinator.create(create_request(parameters())).await {
                    Ok(_) => created += 1,
                    Err(status) => break (created, status),
                }
            }
        })
        .await;
        assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
        assert!(refused.message().contains("3 coordinators"), "{limit}: {}", refused.message());
        assert!(greedy >= 2, "{limit}: {greedy}");
        for other in ["rival", "third"] {
            let created = server.client(other).await.create(create_request(parameters())).await;
            assert!(created.is_ok(), "{limit}, {other} beside {greedy}: {created:?}");
        }
    }
}

#[tokio::test]
async fn capacity_returns_when_an_instance_is_dropped() {
    let server = Server::with(|config| {
        (config.limits.instances, config.limits.retention) = (1, Duration::from_millis(1));
    })
    .await;
    let mut coordinator = server.client(COORDINATOR).await;
    let id = fixtures::instance(&server).await;
    coordinator.close(&id).await.unwrap();
    let next = with_timeout(async {
        loop {
            match coordinator.create(create_request(parameters())).await {
                Ok(created) => break created.into_inner().instance.unwrap().instance_id,
                Err(status) => assert_status(&status, Code::ResourceExhausted, "TOO_MANY_INSTANCES"),
            };
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixtures::play(&server, &next, PROPOSAL).await;
}

#[tokio::test]
async fn a_saturated_server_refuses_new_instances_above_the_quota() {
    let server = Server::with(|config| {
        config.limits.instances_when_busy = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut coordinator = server.client(COORDINATOR).await;
    let mut other_coordinator = server.client("rival").await;
    // Instances without a process count as well, or any number could be created before the first join.
    let ids = [fixtures::instance(&server).await, fixtures::instance(&server).await];
    // A task that is always ready saturates the only thread.
    let hog = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let shed = with_timeout(async {
        loop {
            if let Err(status) = coordinator.create(create_request(parameters())).await {
                break status;
            }
        }
    })
    .await;
    assert_status(&shed, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
    assert!(shed.get_error_details().retry_info().is_some());
    for _ in 0..2 {
        other_coordinator.create(create_request(parameters())).await.expect("the quota is per creator");
    }
    fixtures::play(&server, &ids[0], PROPOSAL).await;
    hog.abort();
    // Without saturation the limit does not hold.
    with_timeout(async {
        while coordinator.create(create_request(parameters())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    fixtures::play(&server, &ids[1], PROPOSAL).await;
}

#[tokio::test]
async fn the_rows_of_a_status_are_limited_and_the_rest_counted() {
    let server = Server::with(|config| config.limits.status_rows = 1).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let status = p1.status(&id).await;
    assert_eq!((status.awaited.len(), status.awaited_left_out), (1, 2));
    p1.append(&id, 1, "").await.unwrap_err();
    server.client("p2").await.append(&id, 1, "").await.unwrap_err();
    let status = p1.status(&id).await;
    assert_eq!((status.offences.len(), status.offences_left_out), (1, 1));
    fixtures::play(&server, &id, PROPOSAL).await;
    let status = p1.status(&id).await;
    assert_eq!((status.left.len(), status.left_left_out), (1, 2));
}
