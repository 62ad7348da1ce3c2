//! The fast path: SPEC F7, F8e to F8g.

use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{AppendOutcome, ClientFrame, Parameters, Replaced, answer};
use tonic::Code;

use crate::harness::fixtures::{self, PROPOSAL, alone, parameters};
use crate::harness::stream::{Stream, append, decision, hello, read};
use crate::harness::{COORDINATOR, Server, assert_status};

#[tokio::test]
async fn a_batch_of_frames_is_handled_in_order() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.send([hello(5, &id), append(5, 1, PROPOSAL), read(5, 2), decision(5, PROPOSAL)]);

    let welcome = stream.welcome().await;
    assert_eq!((welcome.channel, welcome.session), (5, 1));
    assert_eq!(welcome.own.unwrap().next_access_number, 1);
    let appended = stream.answer().await;
    assert_eq!((appended.channel, appended.number, appended.phase), (5, 1, 1));
    let Some(answer::Result::Append(result)) = appended.result else { panic!("{appended:?}") };
    assert_eq!((result.outcome(), result.position), (AppendOutcome::Success, Some(0)));
    let read_answer = stream.answer().await;
    let Some(answer::Result::Read(result)) = read_answer.result else { panic!("{read_answer:?}") };
    assert_eq!((read_answer.number, read_answer.phase, result.length, result.sealed), (2, 2, 1, true));
    assert_eq!(result.values, [PROPOSAL.as_bytes()]);
    assert!(matches!(stream.frame().await, Frame::Decided(decided) if decided.channel == 5));
    stream.half_close();
    assert_eq!(stream.next().await.unwrap(), None);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_welcome_does_not_wait_for_the_answers_of_what_came_with_the_hello() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.send([hello(0, &id), append(0, 1, PROPOSAL), read(0, 2)]);
    // Nobody else has joined, so there is no answer.
    assert_eq!(stream.welcome().await.own.unwrap().next_access_number, 1);
    fixtures::play(&server, &id, PROPOSAL).await;
    assert_eq!((stream.answer().await.number, stream.answer().await.number), (1, 2));
}

#[tokio::test]
async fn accesses_behind_a_refused_hello_are_refused_without_an_offence() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::new(&mut p1).await;
    stream.send([hello(0, &"0".repeat(32)), append(0, 1, PROPOSAL), read(0, 2)]);
    assert_eq!(stream.refusal(Code::NotFound, "INSTANCE_UNKNOWN").await.access_number, 0);
    for number in [1, 2] {
        assert_eq!(stream.refusal(Code::InvalidArgument, "MALFORMED").await.access_number, number);
    }
    assert!(p1.status(&id).await.offences.is_empty());
    // Its channel is free.
    stream.send([hello(0, &id), append(0, 1, PROPOSAL), read(0, 2)]);
    stream.welcome().await;
    fixtures::play(&server, &id, PROPOSAL).await;
    assert_eq!((stream.answer().await.number, stream.answer().await.number), (1, 2));
}

#[tokio::test]
async fn pipelined_accesses_execute_in_order_one_per_phase() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4)]);
    let mut streams = Vec::new();
    for process in ["p2", "p3"] {
        let mut client = server.client(process).await;
        let mut stream = Stream::open(&mut client, &id).await;
        stream.send([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4)]);
        streams.push(stream);
    }
    for round in 0..4 {
        let answer = stream.answer().await;
        assert_eq!((answer.number, answer.phase), (round + 1, 3 * round + 1));
    }
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_repeated_access_gets_the_first_answer() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), read(0, 2), append(0, 1, PROPOSAL), read(0, 2)]);
    let first = [stream.answer().await, stream.answer().await];
    assert_eq!([stream.answer().await, stream.answer().await], first);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_refusal_comes_in_band_and_the_stream_goes_on() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    let bad = Code::InvalidArgument;

    stream.send([append(0, 1, ""), append(0, 1, &"x".repeat(65)), read(0, 0), append(9, 1, "x")]);
    assert_eq!(stream.refusal(bad, "VALUE_EMPTY").await.access_number, 1);
    assert_eq!(stream.refusal(bad, "VALUE_TOO_LARGE").await.access_number, 1);
    assert_eq!(stream.refusal(bad, "MALFORMED").await.access_number, 0);
    assert_eq!(stream.refusal(bad, "MALFORMED").await.channel, 9);
    stream.send([ClientFrame { frame: None }, hello(0, &id), hello(1, "nonsense")]);
    for _ in 0..3 {
        stream.refusal(bad, "MALFORMED").await;
    }
    stream.send([hello(1, &"0".repeat(32)), decision(0, ""), decision(9, "x")]);
    stream.refusal(Code::NotFound, "INSTANCE_UNKNOWN").await;
    stream.refusal(bad, "VALUE_EMPTY").await;
    stream.refusal(bad, "MALFORMED").await;

    stream.send([append(0, 3, "x"), append(0, 1, PROPOSAL), append(0, 1, "other")]);
    assert_eq!(stream.refusal(bad, "ACCESS_NUMBER_OUT_OF_ORDER").await.expected_access_number, 1);
    assert_eq!(stream.answer().await.number, 1);
    stream.refusal(bad, "ACCESS_CONTENT_DIFFERS").await;
    stream.send([decision(0, PROPOSAL), append(0, 9, "x"), decision(0, "x")]);
    assert!(matches!(stream.frame().await, Frame::Decided(_)));
    stream.refusal(Code::FailedPrecondition, "PROCESS_LEFT").await;
    stream.refusal(Code::FailedPrecondition, "DECISION_DIFFERS").await;
    stream.half_close();
    assert_eq!(stream.next().await.unwrap(), None);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_principal_that_is_no_process_is_refused_in_band() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut creator = server.client(COORDINATOR).await;
    let mut stream = Stream::new(&mut creator).await;
    stream.send([hello(0, &id), append(0, 1, "x")]);
    assert_eq!(stream.refusal(Code::PermissionDenied, "NOT_A_MEMBER").await.access_number, 0);
    stream.refusal(Code::InvalidArgument, "MALFORMED").await;
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn accesses_beyond_the_pipeline_are_refused_in_band() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), read(0, 2), read(0, 3), read(0, 4), read(0, 5), read(0, 6)]);
    let refusal = stream.refusal(Code::ResourceExhausted, "TOO_MANY_WAITING").await;
    assert_eq!(refusal.access_number, 5);
    assert!(refusal.retry_after.is_some());
    let next = stream.refusal(Code::InvalidArgument, "ACCESS_NUMBER_OUT_OF_ORDER").await;
    assert_eq!((next.access_number, next.expected_access_number), (6, 5));
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_replaced_session_is_notified_and_its_frames_are_refused() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut older = Stream::open(&mut p1, &id).await;
    let mut newer = Stream::new(&mut p1).await;
    newer.send([hello(3, &id)]);
    assert_eq!(newer.welcome().await.session, 2);
    assert_eq!(older.frame().await, Frame::Replaced(Replaced { channel: 0, session: 2, incarnation: 7 }));

    older.send([append(0, 1, "no"), read(0, 1), decision(0, "no")]);
    for number in [1, 1, 0] {
        let refusal = older.refusal(Code::FailedPrecondition, "SESSION_REPLACED").await;
        assert_eq!(refusal.access_number, number);
    }
    assert!(p1.status(&id).await.offences.is_empty(), "a replaced session commits no offence");
    newer.send([append(3, 1, PROPOSAL)]);
    assert_eq!(newer.answer().await.channel, 3);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn the_channel_of_a_replaced_session_is_free_again() {
    let server = Server::with(|config| config.limits.channels_per_stream = 2).await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    // Each hello replaces the session before, on a channel of its own.
    for channel in 1..10 {
        stream.send([hello(channel, &id)]);
        assert_eq!(stream.welcome().await.session, channel + 1);
        assert!(matches!(stream.frame().await, Frame::Replaced(it) if it.channel == channel - 1));
    }
    stream.send([hello(0, &id), append(0, 1, PROPOSAL)]);
    assert_eq!(stream.welcome().await.session, 11);
    assert!(matches!(stream.frame().await, Frame::Replaced(it) if it.channel == 9));
    assert_eq!(stream.answer().await.number, 1);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_newer_session_gets_pending_answers_after_its_welcome() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut older = Stream::open(&mut p1, &id).await;
    older.send([append(0, 1, PROPOSAL), read(0, 2)]);
    p1.until_waiting(&id, 2).await;

    let mut newer = Stream::new(&mut p1).await;
    newer.send([hello(1, &id)]);
    let own = newer.welcome().await.own.unwrap();
    assert_eq!(own.next_access_number, 3);
    assert_eq!(own.waiting.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2]);
    assert!(matches!(older.frame().await, Frame::Replaced(_)));
    // Nothing more comes on the older stream, so it can end.
    older.half_close();
    assert_eq!(older.next().await.unwrap(), None);

    newer.half_close();
    fixtures::play(&server, &id, PROPOSAL).await;
    assert_eq!((newer.answer().await.number, newer.answer().await.number), (1, 2));
}

#[tokio::test]
async fn a_hello_that_opens_a_phase_is_welcomed_before_answers() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, alone()).await;
    let mut p1 = server.client("p1").await;
    // Without a session the answer of a unary call goes to its caller alone.
    p1.append(&id, 1, PROPOSAL).await.unwrap();
    let mut stream = Stream::new(&mut p1).await;
    stream.send([hello(0, &id)]);
    let own = stream.welcome().await.own.unwrap();
    assert_eq!((own.next_access_number, own.waiting.len()), (2, 0));
    assert_eq!(own.append.unwrap().phase, 1);
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn a_half_closed_stream_ends_once_all_is_answered() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, PROPOSAL), read(0, 2)]);
    stream.half_close();
    p1.until_waiting(&id, 2).await;
    let playing = fixtures::play(&server, &id, PROPOSAL);
    let hearing = async {
        assert_eq!((stream.answer().await.number, stream.answer().await.number), (1, 2));
        while let Some(frame) = stream.next().await.unwrap() {
            assert!(matches!(frame, Frame::Answer(_)), "{frame:?}");
        }
    };
    tokio::join!(playing, hearing);
}

#[tokio::test]
async fn withdrawn_accesses_are_refused_on_the_stream() {
    let server = Server::start().await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut p2 = server.client("p2").await;
    let mut leaving = Stream::open(&mut p1, &id).await;
    leaving.send([append(0, 1, PROPOSAL), decision(0, PROPOSAL)]);
    assert_eq!(leaving.refusal(Code::FailedPrecondition, "PROCESS_LEFT").await.access_number, 1);
    assert!(matches!(leaving.frame().await, Frame::Decided(_)));

    let mut closed = Stream::open(&mut p2, &id).await;
    closed.send([append(0, 1, PROPOSAL)]);
    p2.until_waiting(&id, 1).await;
    server.client(COORDINATOR).await.close(&id).await.unwrap();
    assert_eq!(closed.refusal(Code::FailedPrecondition, "INSTANCE_CLOSED").await.access_number, 1);
    for mut stream in [leaving, closed] {
        stream.half_close();
        assert_eq!(stream.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_message_with_too_many_frames_ends_the_stream_unexecuted() {
    let server = Server::with(|config| config.limits.frames_per_message = 3).await;
    let id = fixtures::instance(&server).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    stream.send([append(0, 1, "no"), read(0, 2), read(0, 3), read(0, 4)]);
    assert_status(&stream.broken().await, Code::InvalidArgument, "MALFORMED");
    assert!(p1.own(&id).await.waiting.is_empty());
    fixtures::play(&server, &id, PROPOSAL).await;
}

#[tokio::test]
async fn large_answers_are_split_below_the_client_message_limit() {
    let server = Server::start().await;
    let id = fixtures::instance_with(&server, Parameters { max_value_bytes: 65_536, ..alone() }).await;
    let mut p1 = server.client("p1").await;
    let mut stream = Stream::open(&mut p1, &id).await;
    let value = "v".repeat(65_536);
    stream.send([append(0, 1, &value)]);
    stream.answer().await;
    stream.send((0..200).map(|_| read(0, 2)));
    for _ in 0..200 {
        assert_eq!(stream.answer().await.number, 2);
    }
    fixtures::play(&server, &id, &value).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    let server = Server::start().await;
    let many = Parameters { max_value_bytes: 65_536, ..parameters() };
    let id = fixtures::instance_with(&server, many).await;
    let value = "v".repeat(65_536);
    let mut slow_reader = server.client("p1").await;
    let mut stream = Stream::open(&mut slow_reader, &id).await;
    stream.send([append(0, 1, &value)]);
    fixtures::play(&server, &id, PROPOSAL).await;
    // Its answers fill every window long before all of them are sent.
    for _ in 0..100 {
        stream.send((0..100).map(|_| read(0, 2)));
    }
    let other = fixtures::instance(&server).await;
    fixtures::play(&server, &other, PROPOSAL).await;
    drop(stream);
}

#[tokio::test]
async fn repeated_reads_are_taken_only_as_fast_as_answers_are_read() {
    let server = Server::with(|config| {
        config.limits.unread_frames = 256;
        config.limits.unread_frames_to_pause = 8;
    })
    .await;
    let id = fixtures::instance(&server).await;
    let mut client = server.client("p1").await;
    let mut stream = Stream::open(&mut client, &id).await;
    fixtures::play(&server, &id, PROPOSAL).await;
    // Far more than may be left unread, all of it sent before the first answer is read.
    for _ in 0..40 {
        stream.send((0..50).map(|_| read(0, 2)));
    }
    let mut answers = 0;
    while answers < 40 * 50 {
        if let Frame::Answer(answer) = stream.frame().await {
            answers += u32::from(answer.number == 2);
        }
    }
}
