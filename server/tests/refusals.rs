//! Each row of SPEC section 11 that a call can end with; the instance is unaffected. Refusals in-band of
//! Attach are in `attach`, ends of a Watch in `watch`, limits of the server in `limits`.

use bytes::Bytes;
use stickycas_proto::v1::{
    AppendRequest, AppendWindow, Arbiter, CreateRequest, GetRequest, ListRequest, OffenceKind, Parameters,
    ReadRequest, WatchRequest, get_request,
};
use stickycas_server::PRINCIPAL_KEY;
use tokio::task::JoinSet;
use tonic::Code;

use crate::harness::fixtures::{self, PROPOSAL, alone, append, create_request, parameters, principal, read};
use crate::harness::raw::{RawClient, framed, prefixed};
use crate::harness::stream::Stream;
use crate::harness::{
    COORDINATOR, Client, PrincipalInterceptor, Server, assert_refused, assert_status, with_timeout,
};

/// No instance has it.
const UNKNOWN_ID: &str = "00000000000000000000000000000000";

fn watch(id: &str) -> WatchRequest {
    WatchRequest { instance_id: id.to_owned(), from_phase: 0, snapshot_first: false }
}

#[tokio::test]
async fn undecodable_bytes_are_refused_as_malformed() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let no_message = prefixed(&[0xff; 9]);
    let short = no_message.slice(..10);
    let bad_flag = Bytes::from_static(&[7, 0, 0, 0, 0]);
    for method in [
        "StickyCasService/Append",
        "StickyCasService/Read",
        "StickyCasService/Decide",
        "InstanceService/Create",
        "InstanceService/Get",
        "InstanceService/List",
        "InstanceService/Watch",
        "InstanceService/Close",
    ] {
        for body in [&no_message, &short, &bad_flag, &Bytes::new()] {
            let reply = raw.call_as("p1", method, body.clone()).await;
            let status = reply.status.unwrap_or_else(|| panic!("{method} of {body:?} has no status"));
            assert_status(&status, Code::InvalidArgument, "MALFORMED");
        }
    }
    for body in [no_message, short, bad_flag] {
        let reply = raw.call_as("p1", "StickyCasService/Attach", body).await;
        assert_status(&reply.status.unwrap(), Code::InvalidArgument, "MALFORMED");
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn parameters_with_too_long_reads_are_refused() {
    // r = 3, and values of 64 bytes.
    let server = Server::with(|config| config.limits.read_bytes = 3 * 64 - 1).await;
    let mut coordinator = server.client(COORDINATOR).await;
    assert_refused(
        coordinator.create(create_request(parameters())).await,
        Code::InvalidArgument,
        "BAD_PARAMETERS",
    );
    let smaller = Parameters { max_value_bytes: 63, ..parameters() };
    coordinator.create(create_request(smaller)).await.unwrap();
}

#[tokio::test]
async fn a_too_large_message_is_refused_as_malformed() {
    let server = Server::with(|config| config.limits.message_bytes = 1_000).await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let large = framed(&append(&id, 1, &"x".repeat(1_000)));
    for method in ["StickyCasService/Append", "StickyCasService/Attach", "InstanceService/Get"] {
        let reply = raw.call_as("p1", method, large.clone()).await;
        assert_status(&reply.status.unwrap(), Code::InvalidArgument, "MALFORMED");
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn missing_and_invalid_fields_are_malformed() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut coordinator = server.client(COORDINATOR).await;
    let malformed = |outcome| {
        assert_refused::<()>(outcome, Code::InvalidArgument, "MALFORMED");
    };

    malformed(p1.append(&id, 0, "x").await.map(|it| it.map(drop)));
    malformed(p1.read(&id, 0).await.map(|it| it.map(drop)));
    for no_id in ["", "nonsense", &UNKNOWN_ID[1..], &UNKNOWN_ID.replace('0', "A")] {
        malformed(p1.append(no_id, 1, "x").await.map(|it| it.map(drop)));
        malformed(p1.read(no_id, 1).await.map(|it| it.map(drop)));
        malformed(p1.decide(no_id, "x").await.map(|it| it.map(drop)));
        malformed(with_timeout(p1.instances.watch(watch(no_id))).await.map(|it| it.map(drop)));
        assert_eq!(p1.close(no_id).await.unwrap_err().code(), Code::InvalidArgument);
    }
    malformed(with_timeout(p1.instances.get(GetRequest { instance: None })).await.map(|it| it.map(drop)));
    for name in ["", "no name", UNKNOWN_ID, &"n".repeat(65)] {
        let instance = Some(get_request::Instance::Name(name.to_owned()));
        malformed(with_timeout(p1.instances.get(GetRequest { instance })).await.map(|it| it.map(drop)));
    }
    let both = WatchRequest { from_phase: 1, snapshot_first: true, ..watch(&id) };
    malformed(with_timeout(p1.instances.watch(both)).await.map(|it| it.map(drop)));
    let page = ListRequest { page_token: "nonsense".to_owned(), ..ListRequest::default() };
    malformed(with_timeout(p1.instances.list(page)).await.map(|it| it.map(drop)));
    let create = |change: fn(&mut CreateRequest)| {
        let mut request = create_request(parameters());
        change(&mut request);
        request
    };
    for request in [
        create(|request| request.parameters = None),
        create(|request| request.name = "no name".to_owned()),
        create(|request| request.parameters.as_mut().unwrap().order = 99),
    ] {
        malformed(coordinator.create(request).await.map(|it| it.map(drop)));
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn empty_and_too_large_values_are_refused_as_offences() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let large = "x".repeat(65);
    assert_refused(p1.append(&id, 1, "").await, Code::InvalidArgument, "VALUE_EMPTY");
    assert_refused(p1.decide(&id, "").await, Code::InvalidArgument, "VALUE_EMPTY");
    assert_refused(p1.append(&id, 1, &large).await, Code::InvalidArgument, "VALUE_TOO_LARGE");
    assert_refused(p1.decide(&id, &large).await, Code::InvalidArgument, "VALUE_TOO_LARGE");
    let status = p1.status(&id).await;
    let offences: Vec<_> = status.offences.iter().map(|it| (it.process, it.kind(), it.count)).collect();
    assert_eq!(offences, [(1, OffenceKind::Malformed, 2), (1, OffenceKind::Oversized, 2)]);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn invalid_parameters_and_rosters_are_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut coordinator = server.client(COORDINATOR).await;
    let spoil: [fn(&mut Parameters); 11] = [
        |it| it.warp_size = 0,
        |it| it.warp_size = 4,
        |it| it.read_size = 0,
        |it| it.read_size = 4,
        |it| it.append_rounds = 2,
        |it| (it.warp_size, it.append_rounds, it.append_window) = (3, 2, AppendWindow::Open.into()),
        |it| it.pipeline = 1_025,
        |it| it.max_value_bytes = 65_537,
        |it| it.join_timeout = Some(prost_types::Duration { seconds: 0, nanos: 0 }),
        |it| it.pace = Some(prost_types::Duration { seconds: 24 * 3_600, nanos: 1 }),
        |it| (it.arbiter, it.priority) = (Arbiter::Priority.into(), vec![4]),
    ];
    for (case, spoil) in spoil.into_iter().enumerate() {
        let mut bad = parameters();
        spoil(&mut bad);
        let outcome = coordinator.create(create_request(bad)).await;
        assert!(outcome.is_err(), "case {case}");
        assert_refused(outcome, Code::InvalidArgument, "BAD_PARAMETERS");
    }
    let long = "x".repeat(257);
    for roster in [vec!["p1", "p2"], vec!["p1", "p2", "p2"], vec!["p1", "", "p3"], vec!["p1", "p2", &long]] {
        let roster = roster.into_iter().map(str::to_owned).collect();
        let outcome = coordinator.create(CreateRequest { roster, ..create_request(parameters()) }).await;
        assert_refused(outcome, Code::InvalidArgument, "BAD_PARAMETERS");
    }
    // A principal of such a name could never call: it stands in no header, certificate or token.
    for name in ["p\n3", "p\u{1b}[31m", "p\u{202e}3", "p\u{200b}", "p 3", "é", ".", ".."] {
        let roster = ["p1", "p2", name].map(str::to_owned).to_vec();
        let outcome = coordinator.create(CreateRequest { roster, ..create_request(parameters()) }).await;
        let why = outcome.as_ref().unwrap_err().message().to_owned();
        assert!(
            why.contains("process 3") && !why.contains(['\n', '\u{1b}', '\u{202e}', '\u{200b}']),
            "{why:?}"
        );
        assert_refused(outcome, Code::InvalidArgument, "BAD_PARAMETERS");
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn an_access_number_out_of_order_tells_the_expected_one() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    for outcome in [
        p1.append(&id, 2, "x").await.map(|it| it.map(drop)),
        p1.read(&id, u64::MAX).await.map(|it| it.map(drop)),
    ] {
        let metadata = assert_refused(outcome, Code::InvalidArgument, "ACCESS_NUMBER_OUT_OF_ORDER");
        assert_eq!(metadata.number("expected_access_number"), 1);
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_number_whose_answer_is_no_longer_kept_is_refused() {
    let server = Server::start().await;
    let one = Parameters { pipeline: 1, ..alone() };
    let id = fixtures::instance_with(&server, one).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    p1.read(&id, 2).await.unwrap();
    let metadata = assert_refused(
        p1.append(&id, 1, PROPOSAL).await,
        Code::InvalidArgument,
        "ACCESS_NUMBER_OUT_OF_ORDER",
    );
    assert_eq!(metadata.number("expected_access_number"), 3);
    assert!(p1.status(&id).await.offences.is_empty(), "an old duplicate is no offence");
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn other_content_for_a_number_is_refused_and_the_first_stands() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p2 = server.client("p2").await;
    let first = p2.append_and_wait(&id, PROPOSAL).await;
    assert_refused(p2.append(&id, 1, "no").await, Code::InvalidArgument, "ACCESS_CONTENT_DIFFERS");
    assert_refused(p2.read(&id, 1).await, Code::InvalidArgument, "ACCESS_CONTENT_DIFFERS");
    fixtures::play(&server, &id, PROPOSAL).await;
    with_timeout(first).await.unwrap().unwrap();
    assert!(p2.status(&id).await.offences.is_empty(), "a unary call belongs to no session");
}

#[tokio::test]
async fn other_content_for_a_number_that_was_answered_is_refused() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    assert_refused(p1.append(&id, 1, "no").await, Code::InvalidArgument, "ACCESS_CONTENT_DIFFERS");
    assert_refused(p1.read(&id, 1).await, Code::InvalidArgument, "ACCESS_CONTENT_DIFFERS");
    p1.append(&id, 1, PROPOSAL).await.expect("the first answer once more");
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_call_without_exactly_one_identity_is_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let channel = server.connect().await;
    let long = "p".repeat(257);
    let names: [Vec<&str>; 4] = [vec![], vec![""], vec!["p1", "p1"], vec![&long]];
    for names in names {
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        let mut nobody = Client::with(channel.clone(), PrincipalInterceptor(names));
        let assert_refused_all = |outcome| {
            assert_refused::<()>(outcome, Code::Unauthenticated, "NO_IDENTITY");
        };
        assert_refused_all(nobody.append(&id, 1, "x").await.map(|it| it.map(drop)));
        assert_refused_all(nobody.read(&id, 1).await.map(|it| it.map(drop)));
        assert_refused_all(nobody.decide(&id, "x").await.map(|it| it.map(drop)));
        assert_refused_all(
            with_timeout(nobody.list.attach(tokio_stream::pending())).await.map(|it| it.map(drop)),
        );
        assert_refused_all(nobody.create(create_request(parameters())).await.map(|it| it.map(drop)));
        assert_refused_all(
            with_timeout(nobody.instances.list(ListRequest::default())).await.map(|it| it.map(drop)),
        );
        assert_refused_all(with_timeout(nobody.instances.watch(watch(&id))).await.map(|it| it.map(drop)));
        assert_eq!(nobody.get(&id).await.unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(nobody.close(&id).await.unwrap_err().code(), Code::Unauthenticated);
    }
    let mut raw = RawClient::connect(server.address).await;
    let headers = [(PRINCIPAL_KEY, "p\u{e9}")];
    let reply = raw.call("StickyCasService/Append", &headers, framed(&append(&id, 1, "x"))).await;
    assert_status(&reply.status.unwrap(), Code::Unauthenticated, "NO_IDENTITY");
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_principal_that_is_no_process_is_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut stranger = server.client("stranger").await;
    let mut creator = server.client(COORDINATOR).await;
    for foreign in [&mut stranger, &mut creator] {
        let assert_refused_all = |outcome| {
            assert_refused::<()>(outcome, Code::PermissionDenied, "NOT_A_MEMBER");
        };
        assert_refused_all(foreign.append(&id, 1, "x").await.map(|it| it.map(drop)));
        assert_refused_all(foreign.read(&id, 1).await.map(|it| it.map(drop)));
        assert_refused_all(foreign.decide(&id, "x").await.map(|it| it.map(drop)));
    }
    assert_status(&stranger.get(&id).await.unwrap_err(), Code::PermissionDenied, "NOT_A_MEMBER");
    assert_refused(
        with_timeout(stranger.instances.watch(watch(&id))).await,
        Code::PermissionDenied,
        "NOT_A_MEMBER",
    );
    assert!(creator.get(&id).await.unwrap().own.is_none());
    let shown = with_timeout(stranger.instances.list(ListRequest::default())).await.unwrap().into_inner();
    assert!(shown.instances.is_empty());
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn missing_roles_are_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let outcome = p1.create(create_request(parameters())).await;
    assert_refused(outcome, Code::PermissionDenied, "NOT_COORDINATOR");
    assert_status(&p1.close(&id).await.unwrap_err(), Code::PermissionDenied, "NOT_CREATOR");
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn an_id_without_an_instance_is_unknown() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let assert_refused_all = |outcome| {
        assert_refused::<()>(outcome, Code::NotFound, "INSTANCE_UNKNOWN");
    };
    assert_refused_all(p1.append(UNKNOWN_ID, 1, "x").await.map(|it| it.map(drop)));
    assert_refused_all(p1.read(UNKNOWN_ID, 1).await.map(|it| it.map(drop)));
    assert_refused_all(p1.decide(UNKNOWN_ID, "x").await.map(|it| it.map(drop)));
    assert_refused_all(with_timeout(p1.instances.watch(watch(UNKNOWN_ID))).await.map(|it| it.map(drop)));
    let instance = Some(get_request::Instance::Name("nobody".to_owned()));
    assert_refused_all(with_timeout(p1.instances.get(GetRequest { instance })).await.map(|it| it.map(drop)));
    assert_status(&p1.get(UNKNOWN_ID).await.unwrap_err(), Code::NotFound, "INSTANCE_UNKNOWN");
    assert_status(&p1.close(UNKNOWN_ID).await.unwrap_err(), Code::NotFound, "INSTANCE_UNKNOWN");
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_name_of_another_instance_is_taken() {
    let server = Server::with(|config| {
        config.coordinators.insert("rival".to_owned());
    })
    .await;
    let mut coordinator = server.client(COORDINATOR).await;
    let mut other_coordinator = server.client("rival").await;
    let named = CreateRequest { name: "game".to_owned(), ..create_request(parameters()) };
    let id = coordinator.create(named.clone()).await.unwrap().into_inner().instance.unwrap().instance_id;

    assert_refused(other_coordinator.create(named.clone()).await, Code::AlreadyExists, "NAME_TAKEN");
    let roster = ["p1", "p2", "p4"].map(str::to_owned).to_vec();
    assert_refused(
        coordinator.create(CreateRequest { roster, ..named.clone() }).await,
        Code::AlreadyExists,
        "NAME_TAKEN",
    );
    let other = Some(Parameters { read_size: 2, ..parameters() });
    assert_refused(
        coordinator.create(CreateRequest { parameters: other, ..named }).await,
        Code::AlreadyExists,
        "NAME_TAKEN",
    );
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_no_wait_call_out_of_turn_is_refused_with_the_phases() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p2 = server.client("p2").await;
    let mut p3 = server.client("p3").await;
    let now = AppendRequest { no_wait: true, ..append(&id, 1, PROPOSAL) };

    let gathering = assert_refused(
        with_timeout(p2.list.append(now.clone())).await,
        Code::FailedPrecondition,
        "NOT_YOUR_PHASE",
    );
    assert_eq!(gathering.0.get("current_phase"), None);
    assert_eq!(gathering.number("next_phase"), 2);

    // Processes 1 and 3 join, so that phase 1 could open; it is not process 2's.
    let mut p1 = server.client("p1").await;
    let one = tokio::spawn({
        let id = id.clone();
        async move { p3.read(&id, 1).await }
    });
    let stream = Stream::open(&mut p1, &id).await;
    p1.until(&id, |state| state.status.as_ref().is_some_and(|status| status.joined == 2)).await;
    let reading = ReadRequest { no_wait: true, ..read(&id, 1) };
    let running =
        assert_refused(with_timeout(p2.list.read(reading)).await, Code::FailedPrecondition, "NOT_YOUR_PHASE");
    assert_eq!((running.number("current_phase"), running.number("next_phase")), (1, 2));

    // The calls took no access number and are no offence.
    assert!(p2.status(&id).await.offences.is_empty());
    fixtures::play(&server, &id, PROPOSAL).await;
    with_timeout(one).await.unwrap().unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_no_wait_call_in_turn_is_served() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let now = AppendRequest { no_wait: true, ..append(&id, 1, PROPOSAL) };
    assert_eq!(with_timeout(p1.list.append(now)).await.unwrap().into_inner().phase, 1);
    let now = ReadRequest { no_wait: true, ..read(&id, 2) };
    assert_eq!(with_timeout(p1.list.read(now)).await.unwrap().into_inner().phase, 2);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_closed_instance_takes_no_access_and_can_be_read() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let waiting = p1.append_and_wait(&id, PROPOSAL).await;
    let mut coordinator = server.client(COORDINATOR).await;
    coordinator.close(&id).await.unwrap();
    coordinator.close(&id).await.expect("closing again is no error");
    assert_refused(with_timeout(waiting).await.unwrap(), Code::FailedPrecondition, "INSTANCE_CLOSED");
    assert_refused(p1.append(&id, 2, "x").await, Code::FailedPrecondition, "INSTANCE_CLOSED");
    assert_refused(p1.decide(&id, "x").await, Code::FailedPrecondition, "INSTANCE_CLOSED");
    let read = p1.read(&id, 2).await.unwrap().into_inner();
    assert_eq!((read.phase, read.result.unwrap().values.len()), (0, 0));
    let other = fixtures::instance(&server).await;
    fixtures::play(&server, &other, PROPOSAL).await;
}

#[tokio::test]
async fn a_process_that_decided_can_only_repeat_its_decision() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let waiting = p1.append_and_wait(&id, "no").await;
    p1.decide(&id, PROPOSAL).await.unwrap();
    assert_refused(with_timeout(waiting).await.unwrap(), Code::FailedPrecondition, "PROCESS_LEFT");
    p1.decide(&id, PROPOSAL).await.expect("the same again gets the same answer");
    assert_refused(p1.decide(&id, "no").await, Code::FailedPrecondition, "DECISION_DIFFERS");
    assert_refused(p1.append(&id, 2, "no").await, Code::FailedPrecondition, "PROCESS_LEFT");
    assert_refused(p1.read(&id, 2).await, Code::FailedPrecondition, "PROCESS_LEFT");
    fixtures::play(&server, &id, PROPOSAL).await;
    let read = p1.read(&id, 2).await.unwrap().into_inner();
    assert_eq!((read.phase, read.result.unwrap().values.len()), (0, 2));
}

#[tokio::test]
async fn accesses_beyond_the_pipeline_are_refused() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p2 = server.client("p2").await;
    let mut waiting = Vec::new();
    for number in 1..=4 {
        let (mut caller, at) = (p2.clone(), id.clone());
        waiting.push(tokio::spawn(async move {
            match number {
                1 => caller.append(&at, 1, PROPOSAL).await.map(|_| ()),
                number => caller.read(&at, number).await.map(|_| ()),
            }
        }));
        p2.until_waiting(&id, number).await;
    }
    assert_refused(p2.read(&id, 5).await, Code::ResourceExhausted, "TOO_MANY_WAITING");
    drop(waiting);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn callers_of_one_access_are_limited_and_answered_alike() {
    let server = Server::with(|config| config.limits.callers_per_access = 2).await;
    let id = fixtures::instance(&server).await;
    let mut p2 = server.client("p2").await;
    let call = || {
        let (mut caller, id) = (p2.clone(), id.clone());
        async move { caller.append(&id, 1, PROPOSAL).await }
    };
    // Exactly one of the three is refused, any of them; the others get the same answer.
    let mut calls = JoinSet::new();
    for _ in 0..3 {
        calls.spawn(call());
    }
    let first = with_timeout(calls.join_next()).await.unwrap().unwrap();
    assert_refused(first, Code::ResourceExhausted, "TOO_MANY_WAITING");
    fixtures::play(&server, &id, PROPOSAL).await;
    let one = with_timeout(calls.join_next()).await.unwrap().unwrap().unwrap().into_inner();
    let other = with_timeout(calls.join_next()).await.unwrap().unwrap().unwrap().into_inner();
    assert_eq!(one, other);
    assert_eq!(p2.append(&id, 1, PROPOSAL).await.unwrap().into_inner(), one);
}

#[tokio::test]
async fn a_passed_deadline_is_told_and_the_access_stays() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut raw = RawClient::connect(server.address).await;
    let body = framed(&append(&id, 1, "mine"));
    for timeout in ["1n", "1u", "1m", "20m"] {
        let headers = [(PRINCIPAL_KEY, "p1"), ("grpc-timeout", timeout)];
        let reply = raw.call("StickyCasService/Append", &headers, body.clone()).await;
        assert_status(&reply.status.unwrap(), Code::DeadlineExceeded, "DEADLINE");
    }
    let mut p1 = server.client(&principal(1)).await;
    assert_eq!(p1.own(&id).await.waiting.len(), 1, "the access waits, once");
    let repeated = tokio::spawn({
        let (mut p1, id) = (p1.clone(), id.clone());
        async move { p1.append(&id, 1, "mine").await }
    });
    fixtures::play(&server, &id, PROPOSAL).await;
    let answer = with_timeout(repeated).await.unwrap().unwrap().into_inner();
    assert_eq!((answer.phase, answer.result.unwrap().position), (1, Some(0)));
}

#[tokio::test]
async fn a_malformed_deadline_is_refused_and_nothing_is_done() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut raw = RawClient::connect(server.address).await;
    for timeout in ["", "x", "S", "1", "-1S", "+1S", "1.5S", "123456789S", "1s", "1S1S"] {
        for method in ["StickyCasService/Append", "InstanceService/Get", "StickyCasService/Nothing"] {
            let headers = [(PRINCIPAL_KEY, "p1"), ("grpc-timeout", timeout)];
            let reply = raw.call(method, &headers, framed(&append(&id, 1, "other"))).await;
            let status = reply.status.unwrap();
            assert_eq!(status.code(), Code::Internal, "{timeout:?}: {status:?}");
            assert!(status.message().contains("malformed grpc-timeout"), "{status:?}");
        }
    }
    let headers = [(PRINCIPAL_KEY, "p1"), ("grpc-timeout", "99999999H")];
    let reply = raw.call("StickyCasService/Append", &headers, framed(&append(&id, 1, PROPOSAL))).await;
    assert_eq!(reply.status.unwrap().code(), Code::Ok);
    fixtures::play(&server, &id, PROPOSAL).await;
}
