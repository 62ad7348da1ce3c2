//! What every call passes before it is served, whoever makes it: the border (SPEC B1). Clients without
//! identity share one small portion, and nothing but gRPC is served.

use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http::{Method, Request, StatusCode};
use stickycas_proto::v1::{
    AppendRequest, AttachRequest, GetRequest, ListRequest, Order, Parameters, RefusalReason, get_request,
};
use stickycas_server::{Admission, PRINCIPAL_KEY};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use crate::harness::fixtures::{self, PROPOSAL};
use crate::harness::raw::{RawClient, framed, prefixed, reply};
use crate::harness::stream::{Stream, append as stream_append, hello as stream_hello, read as stream_read};
use crate::harness::{Server, assert_refused, assert_status, refusals, with_timeout};

const HEALTH: &str = "grpc.health.v1.Health/Check";
const REFLECTION: &str = "grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

/// A request of any shape; the response's HTTP status and headers.
async fn send(
    raw: &mut RawClient,
    method: Method,
    path: &str,
    content_type: &str,
) -> (StatusCode, http::HeaderMap) {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://test/{path}"))
        .header("content-type", content_type)
        .header(PRINCIPAL_KEY, "p1")
        .body(())
        .unwrap();
    raw.send = with_timeout(raw.send.clone().ready()).await.unwrap();
    let (response, mut body) = raw.send.send_request(request, false).unwrap();
    let _ = body.send_data(prefixed(&[]), true);
    let response = with_timeout(response).await.unwrap();
    (response.status(), response.headers().clone())
}

#[tokio::test]
async fn what_is_no_grpc_is_refused_before_anything_runs() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(server.address).await;
    let list = "stickycas.v1.InstanceService/List";
    for path in [list, HEALTH, REFLECTION, "no/such"] {
        for method in [Method::GET, Method::PUT, Method::HEAD, Method::OPTIONS] {
            let (status, headers) = send(&mut raw, method.clone(), path, "application/grpc").await;
            assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
            assert_eq!(headers["allow"], "POST");
        }
        for content_type in
            ["text/plain", "application/grpc-web", "application/grpc-web+proto", "application/grpc+json", ""]
        {
            let (status, _) = send(&mut raw, Method::POST, path, content_type).await;
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{content_type} {path}");
        }
    }
    for content_type in ["application/grpc", "application/grpc+proto", "Application/gRPC; charset=x"] {
        let (status, headers) = send(&mut raw, Method::POST, list, content_type).await;
        assert_eq!(status, StatusCode::OK, "{content_type}");
        assert!(headers.get("grpc-status").is_none_or(|status| status == "0"), "{headers:?}");
    }
}

/// Begins a call of another package, without identity.
async fn begin(raw: &mut RawClient, path: &str) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
    let request = Request::post(format!("http://test/{path}")).header("content-type", "application/grpc");
    raw.send = with_timeout(raw.send.clone().ready()).await.unwrap();
    raw.send.send_request(request.body(()).unwrap(), false).unwrap()
}

#[tokio::test]
async fn streams_without_identity_share_one_small_portion() {
    let server = Server::with(|config| config.limits.anonymous_calls = 3).await;
    let id = fixtures::instance(&server).await;
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "stickycas.v1.InstanceService".to_owned(),
        )),
    };
    // Nobody reads the answers, on connections of their own.
    let mut unread = Vec::new();
    for _ in 0..3 {
        let mut raw = RawClient::connect_with_window(server.address, 0).await;
        let (response, mut body) = begin(&mut raw, REFLECTION).await;
        body.send_data(framed(&question), true).unwrap();
        let response = with_timeout(response).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        unread.push((raw, response, body));
    }
    for path in [REFLECTION, HEALTH, "no.such.Service/Call"] {
        let mut raw = RawClient::connect(server.address).await;
        let (response, mut body) = begin(&mut raw, path).await;
        body.send_data(prefixed(&[]), true).unwrap();
        let status = reply(response).await.status.unwrap();
        assert_status(&status, Code::ResourceExhausted, "TOO_MANY_STREAMS");
    }
    let counts = server.counts().await;
    assert_eq!(refusals(counts.all.as_ref().unwrap(), RefusalReason::TooManyStreams), 3);
    assert!(
        counts.principals.iter().all(|row| row.counts.as_ref().unwrap().refusals.is_empty()),
        "{counts:?}"
    );
    // Others are served, and an identity has a portion of its own.
    fixtures::play(&server, &id, PROPOSAL).await;
    let mut raw = RawClient::connect(server.address).await;
    let request = Request::post(format!("http://test/{HEALTH}"))
        .header("content-type", "application/grpc")
        .header(PRINCIPAL_KEY, "p1");
    let (response, mut body) = raw.send.send_request(request.body(()).unwrap(), false).unwrap();
    body.send_data(prefixed(&[]), true).unwrap();
    assert_eq!(reply(response).await.status.unwrap().code(), Code::Ok);
}

#[tokio::test]
async fn calls_without_identity_have_one_small_rate() {
    let server = Server::with(|config| config.limits.anonymous_requests_per_second = 100).await;
    let id = fixtures::instance(&server).await;
    for path in [HEALTH, "no.such.Service/Call", "stickycas.v1.InstanceService/List"] {
        let mut raw = RawClient::connect(server.address).await;
        let refused = with_timeout(async {
            loop {
                let (response, mut body) = begin(&mut raw, path).await;
                let _ = body.send_data(prefixed(&[]), true);
                let status = reply(response).await.status.unwrap();
                if status.code() == Code::ResourceExhausted {
                    break status;
                }
            }
        })
        .await;
        assert_status(&refused, Code::ResourceExhausted, "RATE_EXCEEDED");
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

/// The announcement of a message of this many bytes, and its first byte.
fn beginning(bytes: u32) -> Bytes {
    Bytes::from([&[0][..], &bytes.to_be_bytes(), &[0]].concat())
}

#[tokio::test]
async fn a_request_that_is_not_complete_in_time_is_refused() {
    let server = Server::with(|config| config.limits.request_timeout = Duration::from_millis(50)).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let identity = [(PRINCIPAL_KEY, "p1")];
    let mut client = server.client("p1").await;
    let mut stream = Stream::open(&mut client, &id).await;
    for method in [
        "StickyCasService/Append",
        "StickyCasService/Attach",
        "InstanceService/Get",
        "InstanceService/Watch",
        "InstanceService/Create",
    ] {
        let (response, mut body) = raw.begin(method, &identity).await;
        body.send_data(beginning(100), false).unwrap();
        let status = reply(response).await.status.unwrap();
        assert_status(&status, Code::ResourceExhausted, "REQUEST_TOO_SLOW");
        // Or nothing at all, where a message must come.
        if method != "StickyCasService/Attach" {
            let (response, _body) = raw.begin(method, &identity).await;
            let status = reply(response).await.status.unwrap();
            assert_status(&status, Code::ResourceExhausted, "REQUEST_TOO_SLOW");
        }
    }
    let mut nobody = RawClient::connect(server.address).await;
    for path in [HEALTH, REFLECTION] {
        let (response, mut body) = begin(&mut nobody, path).await;
        body.send_data(beginning(100), false).unwrap();
        reply(response).await;
    }
    // An Attach stream may pause between messages for as long as it wants: this one has, for all these calls.
    stream.send([stream_append(0, 1, PROPOSAL)]);
    client.until_waiting(&id, 1).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let p1 = server.counts_of("p1").await;
    assert_eq!(refusals(&p1, RefusalReason::RequestTooSlow), 9);
    assert_eq!(p1.messages_undecodable, 0, "nobody is blamed for a slow path");
}

#[tokio::test]
async fn half_sent_requests_share_a_bound_and_known_principals_have_a_reserve() {
    let server = Server::with(|config| config.limits.incomplete_request_bytes = 200_000).await;
    let id = fixtures::instance(&server).await;
    // Under names that nobody knows, on one connection: each sends a message, or half of it, and stops.
    let mut strangers = RawClient::connect(server.address).await;
    let (mut held, mut replies) = (Vec::new(), JoinSet::new());
    for stranger in 0..12 {
        let name = format!("stranger-{stranger}");
        let (response, mut body) =
            strangers.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, &name)]).await;
        // Some send all of it, and not that this is the end.
        let announced = if stranger % 2 == 0 { 60_000 } else { 30_001 };
        body.send_data(beginning(announced), false).unwrap();
        body.send_data(Bytes::from(vec![0; 30_000]), false).unwrap();
        held.push(body);
        replies.spawn(reply(response));
    }
    // There is room for three at most; the others are told at once, and not when their time is over.
    for _ in 0..9 {
        let reply = with_timeout(replies.join_next()).await.unwrap().unwrap();
        assert_status(&reply.status.unwrap(), Code::ResourceExhausted, "TOO_MANY_BYTES");
    }
    let used = server.limit_used("incomplete_request_bytes").await;
    assert!((16_000..=100_000).contains(&used), "{used}");
    // A process of an instance has its reserve.
    let mut raw = RawClient::connect(server.address).await;
    let append =
        AppendRequest { instance_id: id.clone(), access_number: 1, value: vec![1; 30].into(), no_wait: true };
    let message = framed(&append);
    let (response, mut body) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p2")]).await;
    body.send_data(message.slice(..20), false).unwrap();
    tokio::task::yield_now().await;
    body.send_data(message.slice(20..), true).unwrap();
    let status = reply(response).await.status.unwrap();
    assert_status(&status, Code::FailedPrecondition, "NOT_YOUR_PHASE");
    drop(held);
    drop(strangers);
    fixtures::play(&server, &id, PROPOSAL).await;
}

/// Messages are handed on whole, however they are cut.
#[tokio::test]
async fn a_message_in_many_pieces_is_served() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let get = GetRequest { instance: Some(get_request::Instance::InstanceId(id.clone())) };
    let (response, mut body) = raw.begin("InstanceService/Get", &[(PRINCIPAL_KEY, "p1")]).await;
    let message = framed(&get);
    for at in 0..message.len() {
        body.send_data(message.slice(at..=at), at + 1 == message.len()).unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(reply(response).await.status.unwrap().code(), Code::Ok);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn unread_answers_end_their_connection_in_time_and_no_other() {
    let server = Server::with(|config| config.limits.unread_for = Duration::from_millis(200)).await;
    let id = fixtures::instance(&server).await;
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "stickycas.v1.InstanceService".to_owned(),
        )),
    };
    let mut p2 = server.client("p2").await;
    p2.own(&id).await;
    let get = GetRequest { instance: Some(get_request::Instance::InstanceId(id.clone())) };
    for (path, message) in
        [("stickycas.v1.InstanceService/Get", framed(&get)), (REFLECTION, framed(&question))]
    {
        let mut raw = RawClient::connect_with_window(server.address, 0).await;
        let request = Request::post(format!("http://test/{path}"))
            .header("content-type", "application/grpc")
            .header(PRINCIPAL_KEY, "p1");
        let (response, mut body) = raw.send.send_request(request.body(()).unwrap(), false).unwrap();
        body.send_data(message, true).unwrap();
        assert_eq!(with_timeout(response).await.unwrap().status(), StatusCode::OK, "{path} begins");
        // The connection answers PINGs, and ends all the same.
        let _ = with_timeout(raw.connection).await.unwrap();
    }
    let counts = server.counts_until(|counts| counts.connections_unread >= 2).await;
    assert_eq!(counts.connections_unread, 2);
    p2.own(&id).await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

/// Begins answers that nobody reads until there is no room for one, and returns those that wait. `begin`
/// returns what keeps an answer's connection open, and the answer.
async fn until_no_room<H>(
    server: &Server,
    mut begin: impl AsyncFnMut() -> (H, RecvStream),
) -> Vec<(H, RecvStream)> {
    let (mut held, mut used) = (Vec::new(), 0);
    let refused = with_timeout(async {
        loop {
            let (open, mut answer) = begin().await;
            // An answer that waits sends nothing; one without room ends with trailers, for which no window is
            // needed.
            let before = used;
            let ended = tokio::select! {
                trailers = answer.trailers() => Some(trailers.unwrap().unwrap()),
                () = async {
                    while used == before {
                        used = server.limit_used("unread_answer_bytes").await;
                    }
                } => None,
            };
            match ended {
                Some(trailers) => break Status::from_header_map(&trailers).unwrap(),
                None => held.push((open, answer)),
            }
        }
    })
    .await;
    assert!(!held.is_empty(), "there was room for one at first");
    assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_BYTES");
    held
}

#[tokio::test]
async fn unread_answers_of_all_share_a_bound() {
    let server = Server::with(|config| config.limits.unread_answer_bytes = 200_000).await;
    let many = Parameters { processes: 4_000, warp_size: 4_000, read_size: 1, ..fixtures::parameters() };
    let id = fixtures::instance_with(&server, many).await;
    let get = GetRequest { instance: Some(get_request::Instance::InstanceId(id.clone())) };
    let _held = until_no_room(&server, async || {
        let mut raw = RawClient::connect_with_window(server.address, 0).await;
        let (response, mut body) = raw.begin("InstanceService/Get", &[(PRINCIPAL_KEY, "p1")]).await;
        body.send_data(framed(&get), true).unwrap();
        (raw, response.await.unwrap().into_body())
    })
    .await;
    server.client("p2").await.own(&id).await;
}

#[tokio::test]
async fn a_read_is_refused_where_its_answer_would_exceed_that_bound() {
    let server = Server::with(|config| config.limits.unread_answer_bytes = 200_000).await;
    let long = Parameters { max_value_bytes: 50_000, ..fixtures::alone() };
    let id = fixtures::instance_with(&server, long).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, &"v".repeat(50_000)).await.unwrap();
    p1.read(&id, 2).await.unwrap();
    // The same read again is answered from the list, at once.
    let mut unread = Vec::new();
    let refused = with_timeout(async {
        loop {
            let mut raw = RawClient::connect_with_window(server.address, 0).await;
            let (response, mut body) = raw.begin("StickyCasService/Read", &[(PRINCIPAL_KEY, "p1")]).await;
            body.send_data(framed(&fixtures::read(&id, 2)), true).unwrap();
            let response = response.await.unwrap();
            // A refusal comes in place of the answer: nothing of that was made.
            if let Some(status) = Status::from_header_map(response.headers()) {
                break status;
            }
            unread.push((raw, response));
        }
    })
    .await;
    assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_BYTES");
    // Half of the bound is anyone's; of the other half each of two principals has its own part.
    assert_eq!(unread.len(), 2);
    drop(unread);
    with_timeout(async { while server.limit_used("unread_answer_bytes").await > 0 {} }).await;
    p1.read(&id, 2).await.unwrap();
}

#[tokio::test]
async fn refusals_that_attach_streams_do_not_read_share_that_bound() {
    let server = Server::with(|config| config.limits.unread_answer_bytes = 1_000_000).await;
    let id = fixtures::instance(&server).await;
    let frames = (1..=1_000).map(|number| stream_append(7, number, PROPOSAL)).collect();
    let refused_all = framed(&AttachRequest { frames });
    let held = until_no_room(&server, async || {
        let mut raw = RawClient::connect_with_window(server.address, 0).await;
        let (response, mut body) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, "p1")]).await;
        body.send_data(refused_all.clone(), false).unwrap();
        ((raw, body), response.await.unwrap().into_body())
    })
    .await;
    drop(held);
    with_timeout(async { while server.limit_used("unread_answer_bytes").await > 0 {} }).await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn many_channels_of_a_stream_share_that_bound() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.send((0..100).map(|channel| stream_hello(channel, &id)));
    let held = (100 - 32) * 256;
    with_timeout(async { while server.limit_used("unread_answer_bytes").await < held {} }).await;
    drop(stream);
    with_timeout(async { while server.limit_used("unread_answer_bytes").await > 0 {} }).await;
}

/// What the metrics count of a bound.
async fn exceeded(server: &Server, bound: &str, outcome: &str) -> u64 {
    let (_, page) = crate::operators::get(server.http, "/metrics").await;
    let row = format!("stickycas_bound_exceeded_total{{bound=\"{bound}\",outcome=\"{outcome}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&row)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn rates_and_shares_have_three_modes() {
    for mode in Admission::ALL {
        let server = Server::with(|config| {
            config.admission = mode;
            (config.limits.requests_per_second, config.limits.attach_streams_per_principal) = (200, 1);
        })
        .await;
        let id = fixtures::instance(&server).await;
        let mut p1 = server.client("p1").await;
        let _first = Stream::open(&mut p1, &id).await;
        let second = Stream::try_new(&mut p1).await;
        let mut refused = 0;
        for _ in 0..200 {
            refused += u64::from(p1.get(&id).await.is_err());
        }
        let enforces = mode == Admission::Enforce;
        assert_eq!((second.is_err(), refused > 0), (enforces, enforces), "{mode:?}: {refused}");
        for bound in ["attach_streams", "requests_per_second"] {
            let counts =
                [exceeded(&server, bound, "refused").await, exceeded(&server, bound, "would_refuse").await];
            let expected = [enforces, mode == Admission::Observe];
            assert_eq!(counts.map(|count| count > 0), expected, "{mode:?} {bound}: {counts:?}");
        }
    }
}

/// Names cost nothing where nothing proves them. So those that nobody knows take half of the accounts at
/// most.
#[tokio::test]
async fn invented_names_do_not_lock_out_those_who_are_known() {
    let server = Server::with(|config| config.limits.principals = 12).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let mut held = Vec::new();
    let refused = with_timeout(async {
        for stranger in 0.. {
            let name = format!("stranger-{stranger}");
            let (response, body) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, &name)]).await;
            let response = response.await.unwrap();
            if let Some(status) = Status::from_header_map(response.headers()) {
                return status;
            }
            held.push((response, body));
        }
        unreachable!("there is a limit")
    })
    .await;
    assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_CONNECTIONS");
    assert_eq!(held.len(), 6, "half of them");
    // Coordinators, observers and the processes of instances have the others, whenever they come.
    server.counts().await;
    fixtures::play(&server, &id, PROPOSAL).await;
    let other = fixtures::instance(&server).await;
    server.client("p3").await.own(&other).await;
}

#[tokio::test]
async fn page_tokens_tell_a_stranger_nothing() {
    let server = Server::start().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(fixtures::instance(&server).await);
    }
    let mut stranger = server.client("stranger").await;
    let (mut token, mut tokens) = (String::new(), Vec::new());
    loop {
        let request = ListRequest { page_size: 1, page_token: token.clone(), ..ListRequest::default() };
        let page = with_timeout(stranger.instances.list(request)).await.unwrap().into_inner();
        assert!(page.instances.is_empty(), "{page:?}");
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
        assert!(ids.iter().all(|id| !token.contains(id.as_str()) && !token.contains(&id.replace('-', ""))));
        tokens.push(token.clone());
    }
    assert_eq!(tokens.len(), 5);
    let stolen = ListRequest { page_size: 1, page_token: tokens[0].clone(), ..ListRequest::default() };
    let mut other = server.client("other").await;
    assert_refused(with_timeout(other.instances.list(stolen)).await, Code::InvalidArgument, "MALFORMED");
}

/// Of the work that grows with an instance every frame pays.
#[tokio::test]
async fn work_that_grows_with_an_instance_is_charged() {
    let server = Server::with(|config| config.limits.requests_per_second = 2_000).await;
    let many = Parameters {
        processes: 12_800,
        order: Order::Shuffled.into(),
        pipeline: 32,
        ..fixtures::parameters()
    };
    let id = fixtures::instance_with(&server, many).await;
    // A Get costs 10 and 12,800 / 16 frames: two are within the rate, and a third one after some 400 ms.
    let mut p1 = server.client("p1").await;
    let refused = with_timeout(async {
        let mut done = 0;
        loop {
            match p1.get(&id).await {
                Ok(_) => done += 1,
                Err(status) => break (done, status),
            }
        }
    })
    .await;
    assert_status(&refused.1, Code::ResourceExhausted, "RATE_EXCEEDED");
    // So does an access, which may bring a new order of all warps.
    let mut p2 = server.client("p2").await;
    let mut stream = Stream::open(&mut p2, &id).await;
    stream.send((1..=20).map(|number| stream_read(0, number)));
    stream.refusal(Code::ResourceExhausted, "RATE_EXCEEDED").await;
}

#[tokio::test]
async fn calls_and_streams_of_all_share_a_bound() {
    let server = Server::with(|config| {
        (config.limits.calls, config.limits.attach_streams, config.limits.watch_streams) = (24, 12, 12);
    })
    .await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    // Under names that nobody knows, as often as there is room.
    let mut held = Vec::new();
    let refused = with_timeout(async {
        for stranger in 0.. {
            let name = format!("stranger-{stranger}");
            let (response, body) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, &name)]).await;
            let response = response.await.unwrap();
            if let Some(status) = Status::from_header_map(response.headers()) {
                return status;
            }
            held.push((response, body));
        }
        unreachable!("there is a limit")
    })
    .await;
    assert_status(&refused, Code::ResourceExhausted, "TOO_MANY_STREAMS");
    assert_eq!((held.len(), server.limit_used("attach_streams").await), (6, 6), "half of them");
    // One principal, on as many connections as it may have, leaves room as well.
    let mut greedy = Vec::new();
    for _ in 0..12 {
        let (response, body) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "greedy")]).await;
        greedy.push((response, body));
    }
    server.counts_until(|counts| refusals(counts, RefusalReason::TooManyStreams) >= 7).await;
    let used = server.limit_used("calls").await;
    assert!((6..=8).contains(&used), "{used}: as many as were still free, and the observer's");
    // A process of an instance has a reserve of calls and of streams.
    Stream::open(&mut server.client("p1").await, &id).await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_get_of_the_longest_roster_fits_a_default_client() {
    let server = Server::with(|config| config.limits.message_bytes = 16 * 1024 * 1024).await;
    let many = Parameters { processes: 40_000, ..fixtures::parameters() };
    let roster: Vec<String> = (1..=40_000).map(|number| format!("{:0>128}", format!("p{number}"))).collect();
    let create = stickycas_proto::v1::CreateRequest { name: String::new(), roster, parameters: Some(many) };
    let mut coordinator = server.client(crate::harness::COORDINATOR).await;
    let created = coordinator.create(create).await.unwrap().into_inner().instance.unwrap();
    // The client takes 4 MiB, and the names alone have 5 MB.
    let got = coordinator.facts(&created.instance_id).await;
    assert!(got.roster_left_out > 0, "{}", got.roster.len());
    assert_eq!(got.roster.len() + got.roster_left_out as usize, 40_000);
    assert_eq!(got.roster[..], created.roster[..]);
}

/// Nothing waits behind it, so the stream itself has nothing left to send.
#[tokio::test]
async fn one_long_answer_left_unread_on_attach_ends_its_connection() {
    let server = Server::with(|config| config.limits.unread_for = Duration::from_millis(200)).await;
    let large = Parameters { max_value_bytes: 65_536, ..fixtures::alone() };
    let id = fixtures::instance_with(&server, large).await;
    // Room for the welcome and the answer to the append, and for a part of the answer to the read.
    let mut raw = RawClient::connect_with_window(server.address, 30_000).await;
    let (response, mut body) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, "p1")]).await;
    let value = "v".repeat(65_536);
    let frames = vec![stream_hello(0, &id), stream_append(0, 1, &value), stream_read(0, 2)];
    body.send_data(framed(&AttachRequest { frames }), false).unwrap();
    let _unread = with_timeout(response).await.unwrap();
    let _ = with_timeout(raw.connection).await.unwrap();
    assert_eq!(server.counts_of("p1").await.connections_unread, 1);
    assert_eq!(server.client("p1").await.own(&id).await.next_access_number, 3, "what was accepted stands");
}
