//! The server's codec of Attach and the generated types read and write the same bytes alike.

use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::process::RawOp;
use stickycas_model::types::{AccessNumber, Phase, Position};
use stickycas_proto::attach::{
    DecodedFrame, DecodedRequest, EncodedParameters, MAX_FRAMES, encode_answer, encode_decided, encode_frame,
    encode_welcome,
};
use stickycas_proto::v1;
use stickycas_proto::v1::client_frame::Frame;

use crate::frames::{
    Reencoding, bytes, client_frame, mutated, mutation, number, own, parameters, reencoded, reencodings,
    server_frame, short_number,
};
use crate::server_messages::answer_frame;

/// Both decoders accept or refuse the bytes, and read the same.
fn agree(message: &[u8]) -> Result<(), TestCaseError> {
    let generated = v1::AttachRequest::decode(message).map(DecodedRequest::from);
    prop_assert_eq!(DecodedRequest::decode(message), generated, "{:x?}", message);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_decode_any_bytes_alike(message in vec(any::<u8>(), 0..40)) {
        agree(&message)?;
    }

    #[test]
    fn both_decode_a_damaged_request_alike(
        frames in vec(client_frame(), 0..5),
        mutations in vec(mutation(), 0..4),
    ) {
        let message = v1::AttachRequest { frames }.encode_to_vec();
        agree(&message)?;
        agree(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_decode_unusual_encodings_of_a_request_alike(
        frames in vec(client_frame(), 0..5),
        changes in reencodings(),
        mutations in vec(mutation(), 0..2),
    ) {
        let message = v1::AttachRequest { frames }.encode_to_vec();
        let message = reencoded(&message, &mut changes.into_iter());
        agree(&message)?;
        agree(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_encode_answers_alike(
        (channel, number, phase) in (short_number(), 1..=u64::MAX, number()),
        (start, length, sealed) in (short_number(), short_number(), any::<bool>()),
        values in vec(bytes(), 0..9),
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
            frames.push(answer_frame(channel, number, phase, &answer, &values).into());
        }
        prop_assert_eq!(message, v1::AttachResponse { frames }.encode_to_vec());
    }

    #[test]
    fn both_encode_all_other_frames_alike(channel in short_number(), frame in server_frame()) {
        let mut message = Vec::new();
        encode_decided(&mut message, channel);
        encode_frame(&mut message, &frame);
        let frames = vec![v1::Decided { channel }.into(), frame];
        prop_assert_eq!(message, v1::AttachResponse { frames }.encode_to_vec());
    }

    #[test]
    fn both_encode_welcomes_alike_whatever_the_seed(
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

/// One frame of each kind of a client, with all fields set.
fn one_of_each_kind() -> [v1::ClientFrame; 4] {
    let access = |op| v1::Access { channel: 3, number: 300, op: Some(op) };
    let append = access(v1::access::Op::Append(v1::Append { value: "apple".into() }));
    let read = access(v1::access::Op::Read(v1::Read { start: 9 }));
    let hello = v1::Hello { channel: 3, instance_id: "0123456789abcdef".repeat(2), incarnation: 7 };
    let decision = v1::Decision { channel: 3, value: "apple".into() };
    [append.into(), read.into(), hello.into(), decision.into()]
}

/// The match has no wildcard: another kind of frame in the schema needs a sample above.
#[test]
fn each_kind_of_frame_decodes_to_its_content() {
    for frame in one_of_each_kind() {
        let message = v1::AttachRequest { frames: vec![frame.clone()] }.encode_to_vec();
        let DecodedRequest(decoded) = DecodedRequest::decode(&message).expect("it is a request");
        let [decoded] = &decoded[..] else { panic!("one frame, not {decoded:?}") };
        let agrees = match frame.frame.expect("it is of a known kind") {
            Frame::Access(access) => {
                matches!(decoded, DecodedFrame::Access { channel: 3, number: 300, op: Some(op) }
                    if *op == RawOp::from(access.op.expect("it has one")))
            }
            Frame::Hello(hello) => {
                let id = hello.instance_id.parse().ok();
                *decoded == DecodedFrame::Hello { channel: 3, instance: id, incarnation: 7 }
            }
            Frame::Decision(_) => {
                matches!(decoded, DecodedFrame::Decision { channel: 3, value } if value.as_bytes() == b"apple")
            }
        };
        assert!(agrees, "{decoded:?}");
    }
}

#[test]
fn each_kind_of_frame_agrees_in_each_unusual_encoding() {
    for frame in one_of_each_kind() {
        let message = v1::AttachRequest { frames: vec![frame] }.encode_to_vec();
        for (inner, outer) in
            Reencoding::ALL.iter().flat_map(|one| Reencoding::ALL.map(|other| (*one, other)))
        {
            let message = reencoded(&message, &mut [inner, outer, inner, outer].into_iter());
            agree(&message).expect("both decoders agree");
        }
    }
}

#[test]
fn repeated_fields_merge_as_protobuf_has_it() {
    // An access in two parts with an unknown field between them; of two operations the last one counts.
    let append = v1::Access {
        number: 7,
        op: Some(v1::access::Op::Append(v1::Append { value: "v".into() })),
        ..v1::Access::default()
    };
    let read = v1::Access {
        channel: 3,
        op: Some(v1::access::Op::Read(v1::Read { start: 9 })),
        ..v1::Access::default()
    };
    let part =
        |access: &v1::Access| [&[0x0a, access.encoded_len() as u8], &access.encode_to_vec()[..]].concat();
    let frame = [part(&append), vec![0x78, 0x01], part(&read)].concat();
    let message: Vec<u8> = [0x0a, frame.len() as u8].into_iter().chain(frame).collect();
    let op = Some(RawOp::Read(Position::new(9)));
    assert_eq!(
        DecodedRequest::decode(&message),
        Ok(DecodedRequest(vec![DecodedFrame::Access { channel: 3, number: 7, op }]))
    );
}

#[test]
fn no_more_frames_are_decoded_than_the_limit() {
    let decision: v1::ClientFrame = v1::Decision { channel: 1, value: "".into() }.into();
    let usual = v1::AttachRequest { frames: vec![decision] }.encode_to_vec();
    let empty = [0x0a, 0x00];
    for frame in [&usual[..], &empty] {
        let decoded = |count: usize| DecodedRequest::decode(&frame.repeat(count)).unwrap().0.len();
        assert_eq!(decoded(MAX_FRAMES - 1), MAX_FRAMES - 1);
        assert_eq!(decoded(100 * MAX_FRAMES), MAX_FRAMES);
    }
}
