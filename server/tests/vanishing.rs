//! A client that vanishes in the middle of a call leaves its accepted access in place (SPEC F8a), and asking
//! again is answered (F8b).

use bytes::Bytes;
use stickycas_proto::v1::{AttachRequest, CloseRequest, CreateRequest, GetRequest, WatchRequest};
use stickycas_server::PRINCIPAL_KEY;
use tonic::Code;

use crate::harness::game::{self, PROPOSAL, create_request, parameters};
use crate::harness::raw::{Raw, framed, prefixed};
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, Server, refused, soon};

#[tokio::test]
async fn a_unary_append_whose_caller_drops_the_call_is_executed() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let call = p1.append_and_wait(&id, "mine").await;
    call.abort();
    soon(call).await.unwrap_err();
    assert_eq!(p1.own(&id).await.waiting.len(), 1);
    game::play(&server, &id, PROPOSAL).await;
    let answer = p1.append(&id, 1, "mine").await.unwrap().into_inner();
    assert_eq!((answer.phase, answer.result.unwrap().position), (1, Some(0)));
}

#[tokio::test]
async fn a_unary_read_whose_connection_breaks_is_executed() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let headers = [(PRINCIPAL_KEY, "p1")];
    let (_response, mut send) = raw.begin("StickyCasService/Read", &headers).await;
    send.send_data(framed(&game::read(&id, 1)), true).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until_waiting(&id, 1).await;
    raw.connection.abort();
    soon(raw.connection).await.unwrap_err();
    assert_eq!(p1.own(&id).await.waiting.len(), 1);

    // With its first phase it has spent its chance to append, so only the others' values stand.
    let appended = tokio::spawn({
        let (mut p1, id) = (p1.clone(), id.clone());
        async move { p1.read(&id, 1).await }
    });
    game::play(&server, &id, PROPOSAL).await;
    assert_eq!(soon(appended).await.unwrap().unwrap().into_inner().phase, 1);
    assert_eq!(p1.status(&id).await.list_length, 2);
}

#[tokio::test]
async fn a_request_that_breaks_off_in_its_middle_is_no_access() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let request = framed(&game::append(&id, 1, "no"));
    let (_response, mut send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p1")]).await;
    send.send_data(request.slice(..request.len() / 2), false).unwrap();
    // What comes after it on the same connection shows that it has arrived.
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    raw.connection.abort();
    soon(raw.connection).await.unwrap_err();
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn an_attach_stream_that_is_dropped_after_its_hello_leaves_the_process_joined() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    drop(Stream::open(&mut p1, &id).await);
    assert_eq!(p1.status(&id).await.joined, 1);
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn an_attach_stream_that_is_dropped_with_accesses_waiting_leaves_them() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.say([append(0, 1, "mine"), read(0, 2)]);
    p1.until_waiting(&id, 2).await;
    drop(stream);
    let mut again = Stream::new(&mut p1).await;
    again.say([hello(0, &id), append(0, 1, "mine")]);
    let own = again.welcome().await.own.unwrap();
    assert_eq!((own.waiting.len(), own.next_access_number), (2, 3));
    game::play(&server, &id, PROPOSAL).await;
    assert_eq!((again.answer().await.number, again.answer().await.number), (1, 2));
    assert_eq!(p1.append(&id, 1, "mine").await.unwrap().into_inner().phase, 1);
}

#[tokio::test]
async fn an_attach_connection_that_breaks_in_the_middle_of_a_message_leaves_what_came_before() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let (_response, mut send) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, "p1")]).await;
    let whole = framed(&AttachRequest { frames: vec![hello(0, &id), append(0, 1, "mine")] });
    let half = framed(&AttachRequest { frames: vec![read(0, 2), read(0, 3)] });
    send.send_data(Bytes::from([whole, half.slice(..half.len() - 1)].concat()), false).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until_waiting(&id, 1).await;
    raw.connection.abort();
    soon(raw.connection).await.unwrap_err();
    assert_eq!(p1.own(&id).await.next_access_number, 2);
    game::play(&server, &id, PROPOSAL).await;
    let answer = p1.append(&id, 1, "mine").await.unwrap().into_inner();
    assert_eq!(answer.result.unwrap().position, Some(0));
}

#[tokio::test]
async fn a_watcher_that_vanishes_leaves_the_instance_and_its_place() {
    let server = Server::with(|config| config.limits.watch_streams_per_principal = 1).await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let watch = WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: false };
    let watching = soon(p1.instances.watch(watch.clone())).await.unwrap();
    refused(soon(p1.instances.watch(watch.clone())).await, Code::ResourceExhausted, "TOO_MANY_STREAMS");
    drop(watching);
    soon(async {
        while p1.instances.watch(watch.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_create_whose_caller_vanishes_is_found_again_by_its_name() {
    let server = Server::start().await;
    let named = CreateRequest { name: "game".to_owned(), ..create_request(parameters()) };
    let mut raw = Raw::connect(server.address).await;
    let (_response, mut send) = raw.begin("InstanceService/Create", &[(PRINCIPAL_KEY, COORDINATOR)]).await;
    send.send_data(framed(&named), true).unwrap();
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    raw.connection.abort();
    let mut boss = server.client(COORDINATOR).await;
    let again = boss.create(named).await.unwrap().into_inner();
    game::play(&server, &again.instance.unwrap().instance_id, PROPOSAL).await;
}

#[tokio::test]
async fn a_report_whose_caller_vanishes_can_be_repeated() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut raw = Raw::connect(server.address).await;
    let (_response, mut send) = raw.begin("StickyCasService/Decide", &[(PRINCIPAL_KEY, "p1")]).await;
    let value = PROPOSAL.as_bytes().to_vec().into();
    let report = stickycas_proto::v1::DecideRequest { instance_id: id.clone(), value };
    send.send_data(framed(&report), true).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until(&id, |stands| stands.own.as_ref().is_some_and(|own| own.decided.is_some())).await;
    raw.connection.abort();
    p1.decide(&id, PROPOSAL).await.unwrap();
    game::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn callers_of_get_and_list_that_vanish_change_nothing_and_a_close_is_done_all_the_same() {
    let server = Server::start().await;
    let id = game::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let waiting = p1.append_and_wait(&id, PROPOSAL).await;
    let which = stickycas_proto::v1::get_request::Instance::InstanceId(id.clone());
    let calls = [
        ("InstanceService/Get", framed(&GetRequest { instance: Some(which) })),
        ("InstanceService/List", prefixed(&[])),
    ];
    for (method, body) in calls {
        let mut raw = Raw::connect(server.address).await;
        let (_response, mut send) = raw.begin(method, &[(PRINCIPAL_KEY, "p1")]).await;
        send.send_data(body, true).unwrap();
        raw.connection.abort();
        assert_eq!(p1.own(&id).await.waiting.len(), 1, "{method}");
    }
    let mut raw = Raw::connect(server.address).await;
    let (_response, mut send) = raw.begin("InstanceService/Close", &[(PRINCIPAL_KEY, COORDINATOR)]).await;
    send.send_data(framed(&CloseRequest { instance_id: id.clone() }), true).unwrap();
    refused(soon(waiting).await.unwrap(), Code::FailedPrecondition, "INSTANCE_CLOSED");
    raw.connection.abort();
    let other = game::instance(&server).await;
    game::play(&server, &other, PROPOSAL).await;
}
