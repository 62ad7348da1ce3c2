//! The messages of Attach that are read and written by hand are those of the .proto files, to the bit.

use std::iter;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, Phase, Position, RawValue};
use stickycas_proto::attach::{
    DecodedFrame, DecodedRequest, DecodedResponse, EncodedParameters, MAX_FRAMES, ResponseFrame,
    encode_access, encode_answer, encode_decided, encode_decision, encode_frame, encode_hello,
    encode_welcome,
};
use stickycas_proto::convert::answer::answer_frame;
use stickycas_proto::v1::{self, client_frame};

/// Small numbers, at which an encoding changes its length, and any.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1..300_u64, Just(1 << 14), Just(1 << 63), Just(u64::MAX), any::<u64>()]
}

fn short_number() -> impl Strategy<Value = u32> {
    number().prop_map(|number| number as u32)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![vec(any::<u8>(), 0..20), vec(any::<u8>(), 120..140)].prop_map(Bytes::from)
}

fn raw_op() -> impl Strategy<Value = RawOp> {
    prop_oneof![
        bytes().prop_map(|value| RawOp::Append(RawValue::new(&value))),
        short_number().prop_map(|start| RawOp::Read(Position::new(start))),
    ]
}

fn client_frame() -> impl Strategy<Value = v1::ClientFrame> {
    let op = raw_op().prop_map(|op| match op {
        RawOp::Append(value) => v1::access::Op::Append(v1::Append { value: value.to_bytes() }),
        RawOp::Read(start) => v1::access::Op::Read(v1::Read { start: start.get() }),
    });
    let access = (short_number(), number(), option::weighted(0.9, op))
        .prop_map(|(channel, number, op)| v1::Access { channel, number, op }.into());
    let id = prop_oneof!["[0-9a-f]{32}", "[0-9A-F]{30,33}", ".{0,4}"];
    let hello = (short_number(), id, number()).prop_map(|(channel, instance_id, incarnation)| {
        v1::Hello { channel, instance_id, incarnation }.into()
    });
    let decision =
        (short_number(), bytes()).prop_map(|(channel, value)| v1::Decision { channel, value }.into());
    prop_oneof![8 => access, 4 => hello, 4 => decision, 1 => Just(v1::ClientFrame { frame: None })]
}

fn own() -> impl Strategy<Value = v1::Own> {
    (short_number(), number(), option::of(bytes())).prop_map(|(process, next_access_number, decided)| {
        v1::Own { process, next_access_number, decided, ..Default::default() }
    })
}

fn parameters() -> impl Strategy<Value = v1::Parameters> {
    (short_number(), any::<i32>(), option::of(number()), vec(short_number(), 0..3)).prop_map(
        |(processes, order, seed, priority)| v1::Parameters {
            processes,
            order,
            seed,
            priority,
            ..Default::default()
        },
    )
}

fn server_frame() -> impl Strategy<Value = v1::ServerFrame> {
    use v1::answer::Result;
    let append = (any::<i32>(), option::of(short_number()))
        .prop_map(|(outcome, position)| Result::Append(v1::AppendResult { outcome, position }));
    let read = (short_number(), vec(bytes(), 0..9), short_number(), any::<bool>()).prop_map(
        |(start, values, length, sealed)| Result::Read(v1::ReadResult { start, values, length, sealed }),
    );
    let answer = (short_number(), number(), number(), option::weighted(0.9, prop_oneof![append, read]))
        .prop_map(|(channel, number, phase, result)| v1::Answer { channel, number, phase, result }.into());
    let decided = short_number().prop_map(|channel| v1::Decided { channel }.into());
    let replaced = (short_number(), short_number())
        .prop_map(|(channel, session)| v1::Replaced { channel, session }.into());
    let refusal = (short_number(), ".{0,9}")
        .prop_map(|(channel, message)| v1::Refusal { channel, message, ..Default::default() }.into());
    let welcome = (short_number(), short_number(), option::of(own()), option::of(parameters())).prop_map(
        |(channel, session, own, parameters)| v1::Welcome { channel, session, own, parameters }.into(),
    );
    let nothing = Just(v1::ServerFrame { frame: None });
    prop_oneof![8 => answer, 3 => decided, 1 => replaced, 1 => refusal, 1 => welcome, 1 => nothing]
}

/// What may become of a message on its way, and things that protobuf allows and nobody writes.
#[derive(Clone, Debug)]
enum Mutation {
    /// A byte is another one.
    Change(Index, u8),
    /// A byte is gone.
    Remove(Index),
    /// Bytes come in between: among others a field once more, an unknown one, a number written too long.
    Insert(Index, Vec<u8>),
    /// The end is missing.
    Cut(Index),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let piece = prop_oneof![
        vec(any::<u8>(), 1..4),
        Just(vec![0x08, 0x07]),
        Just(vec![0x10, 0x81, 0x00]),
        Just(vec![0x78, 0x01]),
        Just(vec![0x0a, 0x00]),
        Just(vec![0x0a, 0x02, 0x08, 0x01]),
        Just(vec![0x88, 0x00, 0x01]),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Change(at, byte)),
        any::<Index>().prop_map(Mutation::Remove),
        (any::<Index>(), piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        any::<Index>().prop_map(Mutation::Cut),
    ]
}

fn mutated(mut message: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let length = message.len();
        match mutation {
            Mutation::Insert(at, piece) => {
                drop(message.splice(at.index(length + 1)..at.index(length + 1), piece.clone()));
            }
            _ if length == 0 => {}
            Mutation::Change(at, byte) => message[at.index(length)] = *byte,
            Mutation::Remove(at) => drop(message.remove(at.index(length))),
            Mutation::Cut(at) => message.truncate(at.index(length)),
        }
    }
    message
}

/// Two generated messages one after the other are one message; of a frame alone, or of what is in it, two merge.
fn agree_on_request(message: &[u8]) -> Result<(), TestCaseError> {
    let generated = v1::AttachRequest::decode(message).map(DecodedRequest::from);
    prop_assert_eq!(DecodedRequest::read(message), generated, "{:x?}", message);
    Ok(())
}

/// What is heard as the generated types have it.
fn generated_from(heard: &DecodedResponse) -> v1::AttachResponse {
    let frame = |learnt: &ResponseFrame| match learnt {
        ResponseFrame::Append { channel, number, phase, result } => {
            let result = Some(v1::answer::Result::Append(*result));
            v1::Answer { channel: *channel, number: *number, phase: *phase, result }.into()
        }
        ResponseFrame::Read { channel, number, phase, start, values, length, sealed } => {
            let values = heard.values(values).map(Bytes::copy_from_slice).collect();
            let read = v1::ReadResult { start: *start, values, length: *length, sealed: *sealed };
            let result = Some(v1::answer::Result::Read(read));
            v1::Answer { channel: *channel, number: *number, phase: *phase, result }.into()
        }
        ResponseFrame::Decided { channel } => v1::Decided { channel: *channel }.into(),
        ResponseFrame::Other(frame) => v1::ServerFrame { frame: frame.as_deref().cloned() },
    };
    v1::AttachResponse { frames: heard.frames().iter().map(frame).collect() }
}

fn agree_on_response(message: &[u8]) -> Result<(), TestCaseError> {
    let heard = DecodedResponse::read(Bytes::copy_from_slice(message)).map(|heard| generated_from(&heard));
    prop_assert_eq!(heard, v1::AttachResponse::decode(message), "{:x?}", message);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_read_any_bytes_alike(message in vec(any::<u8>(), 0..40)) {
        agree_on_request(&message)?;
        agree_on_response(&message)?;
    }

    #[test]
    fn both_read_what_a_client_says_alike_however_it_is_spoilt(
        frames in vec(client_frame(), 0..5),
        mutations in vec(mutation(), 0..4),
    ) {
        let message = v1::AttachRequest { frames }.encode_to_vec();
        agree_on_request(&message)?;
        agree_on_request(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_read_what_the_server_says_alike_however_it_is_spoilt(
        frames in vec(server_frame(), 0..5),
        mutations in vec(mutation(), 0..4),
    ) {
        let message = v1::AttachResponse { frames }.encode_to_vec();
        agree_on_response(&message)?;
        agree_on_response(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_write_the_same_of_a_client(frames in vec(client_frame(), 0..5)) {
        let mut message = Vec::new();
        let mut written = Vec::new();
        for frame in frames {
            match DecodedFrame::from(frame.clone()) {
                DecodedFrame::Access { channel, number, op: Some(op) } => {
                    encode_access(&mut message, channel, number, &op);
                }
                DecodedFrame::Decision { channel, value } => encode_decision(&mut message, channel, value.as_bytes()),
                DecodedFrame::Hello { channel, incarnation, .. } => {
                    let Some(client_frame::Frame::Hello(hello)) = &frame.frame else { unreachable!() };
                    encode_hello(&mut message, channel, &hello.instance_id, incarnation);
                }
                DecodedFrame::Access { op: None, .. } | DecodedFrame::Unknown => continue,
            }
            written.push(frame);
        }
        prop_assert_eq!(message, v1::AttachRequest { frames: written }.encode_to_vec());
    }

    #[test]
    fn both_write_the_same_of_the_server(
        (channel, number, phase) in (short_number(), 1..=u64::MAX, number()),
        (start, length, sealed) in (short_number(), short_number(), any::<bool>()),
        values in vec(bytes(), 0..9),
        other in server_frame(),
    ) {
        let number = AccessNumber::new(number).expect("not 0");
        let read = ReadAnswer { start: Position::new(start), count: values.len() as u32, length, sealed };
        let answers = [
            Answer::Read(read),
            Answer::Append(AppendAnswer::Success(Position::new(start))),
            Answer::Append(AppendAnswer::Failed),
            Answer::Append(AppendAnswer::LimitReached),
        ];
        let (mut message, mut frames) = (Vec::new(), Vec::new());
        for answer in answers {
            let phase = Phase::new(phase);
            encode_answer(&mut message, channel, number, phase, &answer, values.iter().map(|value| &value[..]));
            frames.push(answer_frame(channel, number, phase, &answer, |_| values.clone()).into());
        }
        encode_decided(&mut message, channel);
        frames.push(v1::Decided { channel }.into());
        encode_frame(&mut message, &other);
        frames.push(other);
        prop_assert_eq!(message, v1::AttachResponse { frames }.encode_to_vec());
    }

    #[test]
    fn both_write_the_same_welcome_whatever_the_seed(
        (channel, session, seed) in (short_number(), short_number(), number()),
        (own, parameters) in (own(), parameters()),
    ) {
        let mut message = Vec::new();
        encode_welcome(&mut message, channel, session, &own, &EncodedParameters::new(&parameters), seed);
        let parameters = Some(v1::Parameters { seed: Some(seed), ..parameters });
        let frames = vec![v1::Welcome { channel, session, own: Some(own), parameters }.into()];
        prop_assert_eq!(message, v1::AttachResponse { frames }.encode_to_vec());
    }
}

#[test]
fn what_comes_twice_is_merged_as_protobuf_has_it() {
    // An access of two parts, between them an unknown field; the operation is the last one given.
    let append = v1::Access { number: 7, ..access(v1::access::Op::Append(v1::Append { value: "v".into() })) };
    let read = v1::Access { channel: 3, ..access(v1::access::Op::Read(v1::Read { start: 9 })) };
    let part =
        |access: &v1::Access| [&[0x0a, access.encoded_len() as u8], &access.encode_to_vec()[..]].concat();
    let frame = [part(&append), vec![0x78, 0x01], part(&read)].concat();
    let message: Vec<u8> = [0x0a, frame.len() as u8].into_iter().chain(frame).collect();
    let op = Some(RawOp::Read(Position::new(9)));
    assert_eq!(
        DecodedRequest::read(&message),
        Ok(DecodedRequest(vec![DecodedFrame::Access { channel: 3, number: 7, op }]))
    );
}

fn access(op: v1::access::Op) -> v1::Access {
    v1::Access { channel: 0, number: 0, op: Some(op) }
}

#[test]
fn values_that_stand_in_another_order_are_found() {
    // A read whose length comes before its values.
    let values: Vec<u8> = [&b"a"[..], b"bc"]
        .iter()
        .flat_map(|v| iter::once(0x12).chain([v.len() as u8]).chain(v.to_vec()))
        .collect();
    let read: Vec<u8> = [0x18, 0x02].into_iter().chain(values).collect();
    let answer: Vec<u8> = [0x2a, read.len() as u8].into_iter().chain(read).collect();
    let frame: Vec<u8> = [0x0a, answer.len() as u8].into_iter().chain(answer).collect();
    let message: Vec<u8> = [0x0a, frame.len() as u8].into_iter().chain(frame).collect();
    let heard = DecodedResponse::read(message.into()).expect("a message");
    let [ResponseFrame::Read { values, length: 2, .. }] = heard.frames() else { panic!("{heard:?}") };
    assert!(heard.values(values).eq([&b"a"[..], b"bc"]));
}

#[test]
fn of_a_message_with_very_many_frames_no_more_are_read_than_may_be() {
    let mut plain = Vec::new();
    encode_decision(&mut plain, 1, b"");
    let empty = [10, 0];
    for frame in [&plain[..], &empty] {
        let read = |count: usize| DecodedRequest::read(&frame.repeat(count)).unwrap().0.len();
        assert_eq!(read(MAX_FRAMES - 1), MAX_FRAMES - 1);
        assert_eq!(read(100 * MAX_FRAMES), MAX_FRAMES);
    }
}
