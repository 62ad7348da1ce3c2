//! A client that disconnects during a call leaves its accepted access in place (SPEC F8a), and a repeated
//! access is answered (F8b).

use bytes::Bytes;
use stickycas_proto::v1::{AttachRequest, CloseRequest, CreateRequest, GetRequest, WatchRequest};
use stickycas_server::PRINCIPAL_KEY;
use tonic::Code;

use crate::harness::fixtures::{self, PROPOSAL, create_request, parameters};
use crate::harness::raw::{RawClient, framed, prefixed};
use crate::harness::stream::{Stream, append, hello, read};
use crate::harness::{COORDINATOR, Server, assert_refused, with_timeout};

#[tokio::test]
async fn an_append_whose_call_is_dropped_is_executed() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let call = p1.append_and_wait(&id, "mine").await;
    call.abort();
    with_timeout(call).await.unwrap_err();
    assert_eq!(p1.own(&id).await.waiting.len(), 1);
    fixtures::play(&server, &id, PROPOSAL).await;
    let answer = p1.append(&id, 1, "mine").await.unwrap().into_inner();
    assert_eq!((answer.phase, answer.result.unwrap().position), (1, Some(0)));
}

#[tokio::test]
async fn a_read_whose_connection_breaks_is_executed() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let headers = [(PRINCIPAL_KEY, "p1")];
    let (_response, mut send) = raw.begin("StickyCasService/Read", &headers).await;
    send.send_data(framed(&fixtures::read(&id, 1)), true).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until_waiting(&id, 1).await;
    raw.connection.abort();
    with_timeout(raw.connection).await.unwrap_err();
    assert_eq!(p1.own(&id).await.waiting.len(), 1);

    // Its first phase was its only chance to append, so the list has the values of the others.
    let appended = tokio::spawn({
        let (mut p1, id) = (p1.clone(), id.clone());
        async move { p1.read(&id, 1).await }
    });
    fixtures::play(&server, &id, PROPOSAL).await;
    assert_eq!(with_timeout(appended).await.unwrap().unwrap().into_inner().phase, 1);
    assert_eq!(p1.status(&id).await.list_length, 2);
}

#[tokio::test]
async fn a_request_that_breaks_off_is_no_access() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let request = framed(&fixtures::append(&id, 1, "no"));
    let (_response, mut send) = raw.begin("StickyCasService/Append", &[(PRINCIPAL_KEY, "p1")]).await;
    send.send_data(request.slice(..request.len() / 2), false).unwrap();
    // A later call on the same connection shows that the bytes have arrived.
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    raw.connection.abort();
    with_timeout(raw.connection).await.unwrap_err();
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_process_stays_joined_when_its_stream_is_dropped() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    drop(Stream::open(&mut p1, &id).await);
    assert_eq!(p1.status(&id).await.joined, 1);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn waiting_accesses_stay_when_their_stream_is_dropped() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, "mine"), read(0, 2)]);
    p1.until_waiting(&id, 2).await;
    drop(stream);
    let mut again = Stream::new(&mut p1).await;
    again.send([hello(0, &id), append(0, 1, "mine")]);
    let own = again.welcome().await.own.unwrap();
    assert_eq!((own.waiting.len(), own.next_access_number), (2, 3));
    fixtures::play(&server, &id, PROPOSAL).await;
    assert_eq!((again.answer().await.number, again.answer().await.number), (1, 2));
    assert_eq!(p1.append(&id, 1, "mine").await.unwrap().into_inner().phase, 1);
}

#[tokio::test]
async fn a_stream_broken_inside_a_message_keeps_earlier_accesses() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let (_response, mut send) = raw.begin("StickyCasService/Attach", &[(PRINCIPAL_KEY, "p1")]).await;
    let whole = framed(&AttachRequest { frames: vec![hello(0, &id), append(0, 1, "mine")] });
    let half = framed(&AttachRequest { frames: vec![read(0, 2), read(0, 3)] });
    send.send_data(Bytes::from([whole, half.slice(..half.len() - 1)].concat()), false).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until_waiting(&id, 1).await;
    raw.connection.abort();
    with_timeout(raw.connection).await.unwrap_err();
    assert_eq!(p1.own(&id).await.next_access_number, 2);
    fixtures::play(&server, &id, PROPOSAL).await;
    let answer = p1.append(&id, 1, "mine").await.unwrap().into_inner();
    assert_eq!(answer.result.unwrap().position, Some(0));
}

#[tokio::test]
async fn a_disconnected_watch_gives_its_permit_back() {
    let server = Server::with(|config| config.limits.watch_streams_per_principal = 1).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let watch = WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: false };
    let watching = with_timeout(p1.instances.watch(watch.clone())).await.unwrap();
    assert_refused(
        with_timeout(p1.instances.watch(watch.clone())).await,
        Code::ResourceExhausted,
        "TOO_MANY_STREAMS",
    );
    drop(watching);
    with_timeout(async {
        while p1.instances.watch(watch.clone()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_create_whose_caller_disconnects_is_found_by_its_name() {
    let server = Server::start().await;
    let named = CreateRequest { name: "game".to_owned(), ..create_request(parameters()) };
    let mut raw = RawClient::connect(server.address).await;
    let (_response, mut send) = raw.begin("InstanceService/Create", &[(PRINCIPAL_KEY, COORDINATOR)]).await;
    send.send_data(framed(&named), true).unwrap();
    raw.call_as("p1", "InstanceService/List", prefixed(&[])).await;
    raw.connection.abort();
    let mut coordinator = server.client(COORDINATOR).await;
    let again = coordinator.create(named).await.unwrap().into_inner();
    fixtures::play(&server, &again.instance.unwrap().instance_id, PROPOSAL).await;
}

#[tokio::test]
async fn a_decision_whose_caller_disconnects_can_be_repeated() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let (_response, mut send) = raw.begin("StickyCasService/Decide", &[(PRINCIPAL_KEY, "p1")]).await;
    let value = PROPOSAL.as_bytes().to_vec().into();
    let report = stickycas_proto::v1::DecideRequest { instance_id: id.clone(), value };
    send.send_data(framed(&report), true).unwrap();
    let mut p1 = server.client("p1").await;
    p1.until(&id, |state| state.own.as_ref().is_some_and(|own| own.decided.is_some())).await;
    raw.connection.abort();
    p1.decide(&id, PROPOSAL).await.unwrap();
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn disconnected_gets_change_nothing_and_a_close_is_done() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let waiting = p1.append_and_wait(&id, PROPOSAL).await;
    let which = stickycas_proto::v1::get_request::Instance::InstanceId(id.clone());
    let calls = [
        ("InstanceService/Get", framed(&GetRequest { instance: Some(which) })),
        ("InstanceService/List", prefixed(&[])),
    ];
    for (method, body) in calls {
        let mut raw = RawClient::connect(server.address).await;
        let (_response, mut send) = raw.begin(method, &[(PRINCIPAL_KEY, "p1")]).await;
        send.send_data(body, true).unwrap();
        raw.connection.abort();
        assert_eq!(p1.own(&id).await.waiting.len(), 1, "{method}");
    }
    let mut raw = RawClient::connect(server.address).await;
    let (_response, mut send) = raw.begin("InstanceService/Close", &[(PRINCIPAL_KEY, COORDINATOR)]).await;
    send.send_data(framed(&CloseRequest { instance_id: id.clone() }), true).unwrap();
    assert_refused(with_timeout(waiting).await.unwrap(), Code::FailedPrecondition, "INSTANCE_CLOSED");
    raw.connection.abort();
    let other = fixtures::instance(&server).await;
    fixtures::play(&server, &other, PROPOSAL).await;
}
