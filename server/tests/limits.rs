//! Each limit of the server, filled by one client while another is unharmed. Those that are part of a subject of
//! their own are with it: messages and callers in `refusals`, frames in `attach`, records in `watch`.

use std::time::Duration;

use stickycas_proto::v1::{CreateResponse, Parameters, server_frame::Frame};
use stickycas_server::PRINCIPAL_KEY;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::harness::game::{self, PROPOSAL, alone, create_request, parameters};
use crate::harness::raw::{Raw, prefixed};
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, Server, soon, told};

/// HTTP/2 frames by hand: what a client says first.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The error code with which a connection is given up that asks for too much.
const ENHANCE_YOUR_CALM: u32 = 11;

/// An HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Reads until the server closes; the error codes of its GOAWAY frames.
async fn last_words(stream: &mut TcpStream) -> Vec<u32> {
    let mut bytes = Vec::new();
    // A reset instead of an end is as good, what was read before it stays.
    let _ = soon(stream.read_to_end(&mut bytes)).await;
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
async fn a_connection_above_the_limit_is_closed_and_the_others_go_on() {
    let server = Server::with(|config| config.limits.connections = 4).await;
    let id = game::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    // As many as are free: the one of the creator goes when it likes.
    let mut held = Vec::new();
    let mut turned_away = soon(async {
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
    assert!(matches!(soon(turned_away.read(&mut [0; 9])).await, Ok(0) | Err(_)));
    p1.read(&id, 2).await.unwrap();
    drop(held);
    // Their places are free again as soon as the server has seen them go.
    let mut again = soon(async {
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
async fn a_connection_that_is_not_opened_in_time_is_closed_and_the_others_go_on() {
    let server = Server::with(|config| config.limits.preface_timeout = Duration::from_millis(100)).await;
    let id = game::instance(&server).await;
    let mut silent = soon(TcpStream::connect(server.address)).await.unwrap();
    let mut halting = soon(TcpStream::connect(server.address)).await.unwrap();
    halting.write_all(&PREFACE[..23]).await.unwrap();
    let mut opened = soon(TcpStream::connect(server.address)).await.unwrap();
    opened.write_all(PREFACE).await.unwrap();
    for stream in [&mut silent, &mut halting] {
        assert!(last_words(stream).await.is_empty());
    }
    // PING, and its echo behind the SETTINGS.
    opened.write_all(&frame(6, 0, 0, b"12345678")).await.unwrap();
    let mut seen = Vec::new();
    soon(async {
        while !seen.ends_with(b"12345678") {
            assert_ne!(opened.read_buf(&mut seen).await.unwrap(), 0, "it stays open");
        }
    })
    .await;
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_connection_has_no_more_streams_than_it_may() {
    let server = Server::with(|config| config.limits.streams_per_connection = 2).await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    assert_eq!(raw.send.current_max_send_streams(), 2);

    // A client that takes no notice: what is above the limit is refused, stream by stream.
    let mut rude = soon(TcpStream::connect(server.address)).await.unwrap();
    rude.write_all(PREFACE).await.unwrap();
    let headers = [0x83, 0x86, 0x84];
    for stream in [1, 3, 5] {
        rude.write_all(&frame(1, 4, stream, &headers)).await.unwrap();
    }
    let refused_stream = frame(3, 0, 5, &7_u32.to_be_bytes());
    let mut seen = Vec::new();
    soon(async {
        while !seen.windows(refused_stream.len()).any(|it| it == refused_stream) {
            assert_ne!(rude.read_buf(&mut seen).await.unwrap(), 0, "{seen:?}");
        }
    })
    .await;
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection_and_no_other() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut flood = soon(TcpStream::connect(server.address)).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    for stream in (1..10_000).step_by(2) {
        bytes.extend(frame(1, 4, stream, &[0x83, 0x86, 0x84]));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    // The server may be gone before all is written.
    let _ = soon(flood.write_all(&bytes)).await;
    assert!(last_words(&mut flood).await.iter().all(|code| *code == ENHANCE_YOUR_CALM));
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_connection_whose_streams_the_server_must_reset_too_often_ends_and_no_other() {
    let server = Server::with(|config| config.limits.local_reset_streams = 5).await;
    let id = game::instance(&server).await;
    let mut flood = soon(TcpStream::connect(server.address)).await.unwrap();
    let mut bytes = PREFACE.to_vec();
    for stream in (1..200).step_by(2) {
        // content-length: x
        bytes.extend(frame(1, 4, stream, &[0x83, 0x86, 0x84, 0x5c, 1, b'x']));
    }
    let _ = soon(flood.write_all(&bytes)).await;
    assert!(last_words(&mut flood).await.iter().all(|code| *code == ENHANCE_YOUR_CALM));
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused_and_the_connection_goes_on() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let large = "x".repeat(20 * 1024);
    let headers = [(PRINCIPAL_KEY, "p1"), ("x-large", large.as_str())];
    let reply = raw.call("InstanceService/List", &headers, prefixed(&[])).await;
    assert_eq!(reply.http, http::StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let reply = raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    assert_eq!(reply.status.unwrap().code(), Code::Ok);
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_principal_has_no_more_attach_streams_than_it_may_and_others_have_their_own() {
    let server = Server::with(|config| config.limits.attach_streams_per_principal = 2).await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let first = Stream::open(&mut p1, &id).await;
    let _second = Stream::new(&mut server.client("p1").await).await;
    let Err(status) = Stream::try_new(&mut p1).await else { panic!("a third stream") };
    told(&status, Code::ResourceExhausted, "TOO_MANY_STREAMS");
    let mut p2 = server.client("p2").await;
    Stream::open(&mut p2, &id).await;
    drop(first);
    soon(async {
        while Stream::try_new(&mut p1).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_stream_has_no_more_channels_than_it_may() {
    let server = Server::with(|config| config.limits.channels_per_stream = 2).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(game::instance(&server).await);
    }
    stream.say((0..).zip(&ids).map(|(channel, id)| hello(channel, id)));
    assert_eq!((stream.welcome().await.channel, stream.welcome().await.channel), (0, 1));
    let refusal = stream.refusal(Code::ResourceExhausted, "TOO_MANY_STREAMS").await;
    assert_eq!(refusal.channel, 2);
    assert!(refusal.retry_after.is_some());
    for id in ids {
        game::play(&server, &id, PROPOSAL).await;
    }
}

#[tokio::test]
async fn frames_left_unread_end_their_stream_and_the_accesses_stand() {
    let server = Server::with(|config| config.limits.unread_frames = 3).await;
    let id = game::instance_with(&server, Parameters { pipeline: 10, ..alone() }).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.say([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4), read(0, 5)]);
    told(&stream.broken().await, Code::ResourceExhausted, "READER_TOO_SLOW");
    assert_eq!(p1.own(&id).await.next_access_number, 6);
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_message_of_the_server_has_no_more_frames_than_it_may() {
    let server = Server::with(|config| config.limits.frames_per_answer = 2).await;
    let id = game::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    let before = stream.messages;
    stream.say([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4), read(0, 5)]);
    for number in 1..=5 {
        assert_eq!(stream.answer().await.number, number);
    }
    assert_eq!(stream.messages - before, 3);
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_process_opens_no_more_sessions_than_it_may_and_its_unary_calls_still_work() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.say((0..=1_000).map(|turn| hello(turn % 2, &id)));
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
    game::play(&server, &id, PROPOSAL).await;
}

/// The refusal of another instance, and what it says to do.
fn no_room(outcome: Result<tonic::Response<CreateResponse>, tonic::Status>, remedy: &str) {
    let status = outcome.unwrap_err();
    told(&status, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
    assert!(status.message().contains(remedy), "{}", status.message());
    assert!(status.get_error_details().retry_info().is_some());
}

#[tokio::test]
async fn a_creator_has_no_more_live_instances_than_it_may_and_an_end_makes_room() {
    let server = Server::with(|config| {
        config.limits.live_instances_per_creator = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut boss = server.client(COORDINATOR).await;
    let id = game::instance(&server).await;
    let closed = game::instance(&server).await;
    no_room(boss.create(create_request(parameters())).await, "let some come to their end, or close some");
    server.client("rival").await.create(create_request(parameters())).await.unwrap();
    game::play(&server, &id, PROPOSAL).await;
    boss.create(create_request(parameters())).await.expect("one has finished");
    no_room(boss.create(create_request(parameters())).await, "let some come to their end, or close some");
    boss.close(&closed).await.unwrap();
    let next = boss.create(create_request(parameters())).await.expect("one was closed").into_inner();
    game::play(&server, &next.instance.unwrap().instance_id, PROPOSAL).await;
    for id in [&id, &closed] {
        boss.get(id).await.expect("what has ended can still be read");
    }
}

#[tokio::test]
async fn a_creator_has_no_more_instances_held_than_it_may_and_those_that_have_ended_are_among_them() {
    let server = Server::with(|config| {
        config.limits.instances_per_creator = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut boss = server.client(COORDINATOR).await;
    let id = game::instance(&server).await;
    let closed = game::instance(&server).await;
    boss.close(&closed).await.unwrap();
    no_room(boss.create(create_request(parameters())).await, "each is let go of 10m after its end");
    server.client("rival").await.create(create_request(parameters())).await.unwrap();
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_server_holds_no_more_instances_and_processes_than_it_may() {
    for limit in ["live_instances", "instances", "processes"] {
        let server = Server::with(|config| match limit {
            "live_instances" => config.limits.live_instances = 2,
            "instances" => config.limits.instances = 2,
            _ => config.limits.processes = 8,
        })
        .await;
        let mut boss = server.client(COORDINATOR).await;
        let id = game::instance(&server).await;
        game::instance(&server).await;
        no_room(boss.create(create_request(parameters())).await, "");
        game::play(&server, &id, PROPOSAL).await;
        let ended = boss.create(create_request(parameters())).await;
        assert_eq!(ended.is_ok(), limit == "live_instances", "of those that have ended there may be more");
    }
}

#[tokio::test]
async fn an_instance_that_is_refused_for_its_size_takes_none_of_the_room_itself() {
    // Whatever it may come to take, one of these servers has room for it and for no second one.
    let mut bytes = 1_024;
    loop {
        let server = Server::with(|config| config.limits.instance_bytes = bytes).await;
        match server.client(COORDINATOR).await.create(create_request(parameters())).await {
            Ok(_) => return,
            Err(status) => {
                told(&status, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
                assert!(status.message().contains("come to take 0 bytes"), "{bytes}: {}", status.message());
            }
        }
        bytes += bytes / 5;
    }
}

#[tokio::test]
async fn room_comes_back_when_an_instance_has_gone() {
    let server = Server::with(|config| {
        (config.limits.instances, config.limits.retention) = (1, Duration::from_millis(1));
    })
    .await;
    let mut boss = server.client(COORDINATOR).await;
    let id = game::instance(&server).await;
    boss.close(&id).await.unwrap();
    let next = soon(async {
        loop {
            match boss.create(create_request(parameters())).await {
                Ok(created) => break created.into_inner().instance.unwrap().instance_id,
                Err(status) => told(&status, Code::ResourceExhausted, "TOO_MANY_INSTANCES"),
            };
            tokio::task::yield_now().await;
        }
    })
    .await;
    game::play(&server, &next, PROPOSAL).await;
}

#[tokio::test]
async fn a_server_without_rest_gives_no_more_to_who_has_its_share_and_what_is_under_way_goes_on() {
    let server = Server::with(|config| {
        config.limits.instances_when_busy = 2;
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut boss = server.client(COORDINATOR).await;
    let mut rival = server.client("rival").await;
    // Nobody has joined yet: they count all the same, or any number could be created before the first join.
    let ids = [game::instance(&server).await, game::instance(&server).await];
    // Somebody is always ready to work on in the one thread that there is.
    let hog = tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let shed = soon(async {
        loop {
            if let Err(status) = boss.create(create_request(parameters())).await {
                break status;
            }
        }
    })
    .await;
    told(&shed, Code::ResourceExhausted, "TOO_MANY_INSTANCES");
    assert!(shed.get_error_details().retry_info().is_some());
    for _ in 0..2 {
        rival.create(create_request(parameters())).await.expect("its share is its own");
    }
    game::play(&server, &ids[0], PROPOSAL).await;
    hog.abort();
    // With time to spare again there is no such limit.
    soon(async {
        while boss.create(create_request(parameters())).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    game::play(&server, &ids[1], PROPOSAL).await;
}

#[tokio::test]
async fn a_status_names_no_more_rows_than_it_may_and_counts_the_rest() {
    let server = Server::with(|config| config.limits.status_rows = 1).await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let status = p1.status(&id).await;
    assert_eq!((status.awaited.len(), status.awaited_left_out), (1, 2));
    p1.append(&id, 1, "").await.unwrap_err();
    server.client("p2").await.append(&id, 1, "").await.unwrap_err();
    let status = p1.status(&id).await;
    assert_eq!((status.offences.len(), status.offences_left_out), (1, 1));
    game::play(&server, &id, PROPOSAL).await;
    let status = p1.status(&id).await;
    assert_eq!((status.left.len(), status.left_left_out), (1, 2));
}
