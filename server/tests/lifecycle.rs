//! The life of instances from creation to removal: SPEC F10, F11; and reflection.

use std::time::Duration;

use bytes::Bytes;
use stickycas_proto::v1::{
    CreateRequest, InstanceSummary, ListOrder, ListRequest, Parameters, State, WatchRequest,
};
use tokio_stream::once;
use tonic::Code;
use tonic_reflection::pb::{v1, v1alpha};

use crate::harness::fixtures::{self, PROPOSAL, alone, create_request, parameters};
use crate::harness::raw::RawClient;
use crate::harness::stream::{Stream, append, read};
use crate::harness::{COORDINATOR, Client, Server, assert_refused, assert_status, with_timeout};

fn named() -> CreateRequest {
    CreateRequest { name: "game".to_owned(), ..create_request(parameters()) }
}

#[tokio::test]
async fn an_equal_create_finds_the_same_instance() {
    let server = Server::start().await;
    let mut coordinator = server.client(COORDINATOR).await;
    let first = coordinator.create(named()).await.unwrap().into_inner();
    assert!(first.created);
    let again = coordinator.create(named()).await.unwrap().into_inner();
    assert!(!again.created);
    assert_eq!(again.instance, first.instance);
    // With every effective value written out the request is still equal; with another seed it is not.
    let effective = first.instance.clone().unwrap().parameters.unwrap();
    let seed = effective.seed.unwrap().wrapping_add(1);
    let effective_request = CreateRequest { parameters: Some(effective.clone()), ..named() };
    assert_eq!(coordinator.create(effective_request).await.unwrap().into_inner().instance, first.instance);
    let other = Some(Parameters { seed: Some(seed), ..effective });
    assert_refused(
        coordinator.create(CreateRequest { parameters: other, ..named() }).await,
        Code::AlreadyExists,
        "NAME_TAKEN",
    );
    fixtures::play(&server, &first.instance.unwrap().instance_id, PROPOSAL).await;
}

#[tokio::test]
async fn concurrent_creates_of_one_name_create_one_instance() {
    let server = Server::start().await;
    let mut creating = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let channel = server.connect().await;
        for _ in 0..8 {
            let mut coordinator = Client::on(channel.clone(), COORDINATOR);
            creating.spawn(async move { coordinator.create(named()).await.unwrap().into_inner() });
        }
    }
    let created = with_timeout(creating.join_all()).await;
    assert_eq!(created.iter().filter(|it| it.created).count(), 1);
    assert!(created.iter().all(|it| it.instance == created[0].instance));
    let mut coordinator = server.client(COORDINATOR).await;
    let list = with_timeout(coordinator.instances.list(ListRequest::default())).await.unwrap().into_inner();
    assert_eq!(list.instances.len(), 1);
    assert_eq!((list.listed_shards, list.shards), (vec![0], 1), "the list is whole");
}

#[tokio::test]
async fn creates_without_a_name_are_distinct() {
    let server = Server::start().await;
    let one = fixtures::instance(&server).await;
    let other = fixtures::instance(&server).await;
    assert_ne!(one, other);
    fixtures::play(&server, &one, PROPOSAL).await;
    fixtures::play(&server, &other, PROPOSAL).await;
}

#[tokio::test]
async fn a_closed_instance_frees_its_name() {
    let server = Server::start().await;
    let mut coordinator = server.client(COORDINATOR).await;
    let first = coordinator.create(named()).await.unwrap().into_inner().instance.unwrap();
    coordinator.close(&first.instance_id).await.unwrap();
    let second = coordinator.create(named()).await.unwrap().into_inner();
    assert!(second.created);
    let second = second.instance.unwrap();
    assert_ne!(second.instance_id, first.instance_id);
    let name = Some(stickycas_proto::v1::get_request::Instance::Name("game".to_owned()));
    let request = stickycas_proto::v1::GetRequest { instance: name };
    let found = with_timeout(coordinator.instances.get(request)).await.unwrap().into_inner();
    assert_eq!(found.instance.unwrap().instance_id, second.instance_id);
    coordinator.get(&first.instance_id).await.expect("the closed one is still known by its id");
    fixtures::play(&server, &second.instance_id, PROPOSAL).await;
}

#[tokio::test]
async fn a_finished_instance_is_dropped_after_its_retention() {
    let server = Server::with(|config| config.limits.retention = Duration::from_millis(1)).await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    p1.decide(&id, PROPOSAL).await.unwrap();
    let gone = with_timeout(async {
        loop {
            if let Err(status) = p1.get(&id).await {
                break status;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_status(&gone.await, Code::NotFound, "INSTANCE_UNKNOWN");
    assert_refused(p1.read(&id, 2).await, Code::NotFound, "INSTANCE_UNKNOWN");
}

#[tokio::test]
async fn waiting_accesses_of_an_expired_instance_are_refused() {
    // Long enough for the calls before it even on a busy machine: each call extends the lifetime.
    let server = Server::with(|config| config.limits.idle_lifetime = Duration::from_secs(3)).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    let watch = WatchRequest { instance_id: id.clone(), from_phase: 0, snapshot_first: false };
    let mut watching = with_timeout(p1.instances.watch(watch)).await.unwrap().into_inner();
    let mut stream = Stream::open(&mut p2, &id).await;
    stream.send([append(0, 1, PROPOSAL)]);
    let call = tokio::spawn({
        let (mut p1, id) = (p1.clone(), id.clone());
        async move { p1.append(&id, 1, PROPOSAL).await }
    });

    assert_refused(with_timeout(call).await.unwrap(), Code::NotFound, "INSTANCE_UNKNOWN");
    assert_eq!(stream.refusal(Code::NotFound, "INSTANCE_UNKNOWN").await.access_number, 1);
    while with_timeout(watching.message()).await.unwrap().is_some() {}
    assert_status(&p1.get(&id).await.unwrap_err(), Code::NotFound, "INSTANCE_UNKNOWN");
    stream.send([read(0, 2)]);
    assert_eq!(stream.refusal(Code::NotFound, "INSTANCE_UNKNOWN").await.access_number, 2);
    // The channel is free again, and the stream goes on.
    let next = fixtures::instance(&server).await;
    stream.send([crate::harness::stream::hello(0, &next)]);
    stream.welcome().await;
    stream.half_close();
    assert!(stream.next().await.unwrap().is_none());
}

#[tokio::test]
async fn instances_are_listed_in_pages() {
    let server = Server::with(|config| config.limits.page = 2).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(fixtures::instance(&server).await);
    }
    ids.sort();
    let mut p1 = server.client("p1").await;
    let (mut listed, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListRequest { page_size: 100, page_token, ..ListRequest::default() };
        let page = with_timeout(p1.instances.list(request)).await.unwrap().into_inner();
        assert!(page.instances.len() <= 2);
        listed.extend(page.instances.into_iter().map(|it| it.instance_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(listed, ids);
}

#[tokio::test]
async fn a_table_begins_with_what_runs_and_tells_what_was_decided() {
    let server = Server::start().await;
    let mut coordinator = server.client(COORDINATOR).await;
    let closed = fixtures::instance(&server).await;
    coordinator.close(&closed).await.unwrap();
    let finished = fixtures::instance(&server).await;
    fixtures::play(&server, &finished, PROPOSAL).await;
    let named = coordinator.create(named()).await.unwrap().into_inner().instance.unwrap().instance_id;
    let gathering = fixtures::instance(&server).await;
    let running = fixtures::instance_with(&server, alone()).await;
    server.client("p1").await.append(&running, 1, PROPOSAL).await.unwrap();

    let mut list = async |request: ListRequest| {
        let (mut listed, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = ListRequest { page_size: 1, page_token, ..request.clone() };
            let page = with_timeout(coordinator.instances.list(request)).await.unwrap().into_inner();
            listed.extend(page.instances);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return listed;
            }
        }
    };
    let ids = |listed: &[InstanceSummary]| listed.iter().map(|it| it.instance_id.clone()).collect::<Vec<_>>();
    let table = ListRequest { order: ListOrder::StateAndAge.into(), ..ListRequest::default() };
    let all = list(table.clone()).await;
    assert_eq!(ids(&all), [&running, &gathering, &named, &finished, &closed].map(String::clone));
    let decided: Vec<_> = all.iter().map(|it| (it.decided, it.decision.as_deref())).collect();
    let none = (0, None);
    assert_eq!(decided, [none, none, none, (3, Some(PROPOSAL.as_bytes())), none]);

    let ended = vec![State::Closed.into(), State::Finished.into()];
    for order in [ListOrder::StateAndAge, ListOrder::Id] {
        let only = ListRequest { order: order.into(), states: ended.clone(), ..ListRequest::default() };
        let mut found = ids(&list(only).await);
        let mut expected = vec![finished.clone(), closed.clone()];
        if order == ListOrder::Id {
            expected.sort();
        }
        assert_eq!(found, expected);
        for text in ["GAM", &named[..20]] {
            let only = ListRequest { order: order.into(), text: text.to_owned(), ..ListRequest::default() };
            found = ids(&list(only).await);
            assert_eq!(found, std::slice::from_ref(&named));
        }
    }
    for wrong in [
        ListRequest { order: 9, ..ListRequest::default() },
        ListRequest { states: vec![9], ..ListRequest::default() },
        ListRequest { text: "x".repeat(257), ..ListRequest::default() },
    ] {
        assert_refused(
            with_timeout(coordinator.instances.list(wrong)).await,
            Code::InvalidArgument,
            "MALFORMED",
        );
    }
}

#[tokio::test]
async fn reflection_lists_exactly_the_services_that_are_served() {
    let server = Server::start().await;
    let expected = [
        "grpc.health.v1.Health",
        "stickycas.v1.InstanceService",
        "stickycas.v1.ServerService",
        "stickycas.v1.StickyCasService",
    ];
    let channel = server.connect().await;

    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let all = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(all) };
    let mut stream = with_timeout(client.server_reflection_info(once(request))).await.unwrap().into_inner();
    let response = with_timeout(stream.message()).await.unwrap().unwrap().message_response.unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = response else {
        panic!("{response:?}")
    };
    let mut names: Vec<String> = list.service.into_iter().map(|it| it.name).collect();
    names.sort();
    assert_eq!(names, expected);

    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let all = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(all) };
    let mut stream = with_timeout(client.server_reflection_info(once(request))).await.unwrap().into_inner();
    let response = with_timeout(stream.message()).await.unwrap().unwrap().message_response.unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list) = response else {
        panic!("{response:?}")
    };
    let mut names: Vec<String> = list.service.into_iter().map(|it| it.name).collect();
    names.sort();
    assert_eq!(names, expected);
}

#[tokio::test]
async fn reflection_can_be_turned_off() {
    let server = Server::with(|config| config.reflection = false).await;
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(server.connect().await);
    let outcome = with_timeout(client.server_reflection_info(tokio_stream::pending())).await;
    assert_eq!(outcome.unwrap_err().code(), Code::Unimplemented);
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let server = Server::start().await;
    let mut raw = RawClient::connect(server.address).await;
    for method in ["StickyCasService/Remove", "InstanceService/Replace", "NoService/Append"] {
        let reply = raw.call_as("p1", method, Bytes::new()).await;
        assert_eq!(reply.status.unwrap().code(), Code::Unimplemented, "{method}");
    }
}
