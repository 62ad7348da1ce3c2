//! The load generator's codec of Attach and the generated types read and write the same bytes alike.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;
use stickycas_load::attach_codec::{
    DecodedResponse, ResponseFrame, encode_access, encode_decision, encode_hello,
};
use stickycas_model::process::RawOp;
use stickycas_proto::v1;
use stickycas_proto::v1::client_frame::Frame;

#[allow(dead_code, reason = "the tests of the wire format use the rest")]
#[path = "../../../proto/tests/wire/frames.rs"]
mod frames;

use crate::generated_frame::generated_frame;
use frames::{Reencoding, client_frame, mutated, mutation, reencoded, reencodings, server_frame};

/// The response as the generated types have it.
fn generated_from(response: &DecodedResponse) -> v1::AttachResponse {
    let frames = response.frames().iter().map(|frame| generated_frame(response, frame)).collect();
    v1::AttachResponse { frames }
}

/// Both decoders accept or refuse the bytes, and read the same.
fn agree(message: &[u8]) -> Result<(), TestCaseError> {
    let decoded = DecodedResponse::decode(Bytes::copy_from_slice(message));
    let decoded = decoded.map(|response| generated_from(&response));
    prop_assert_eq!(decoded, v1::AttachResponse::decode(message), "{:x?}", message);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_decode_any_bytes_alike(message in vec(any::<u8>(), 0..40)) {
        agree(&message)?;
    }

    #[test]
    fn both_decode_a_damaged_response_alike(
        frames in vec(server_frame(), 0..5),
        mutations in vec(mutation(), 0..4),
    ) {
        let message = v1::AttachResponse { frames }.encode_to_vec();
        agree(&message)?;
        agree(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_decode_unusual_encodings_of_a_response_alike(
        frames in vec(server_frame(), 0..5),
        changes in reencodings(),
        mutations in vec(mutation(), 0..2),
    ) {
        let message = v1::AttachResponse { frames }.encode_to_vec();
        let message = reencoded(&message, &mut changes.into_iter());
        agree(&message)?;
        agree(&mutated(message, &mutations))?;
    }

    #[test]
    fn both_encode_a_request_alike(frames in vec(client_frame(), 0..5)) {
        let (mut message, mut encoded) = (Vec::new(), Vec::new());
        for frame in frames {
            match frame.frame.as_ref() {
                Some(Frame::Access(v1::Access { channel, number, op: Some(op) })) => {
                    encode_access(&mut message, *channel, *number, &RawOp::from(op.clone()));
                }
                Some(Frame::Hello(v1::Hello { channel, instance_id, incarnation })) => {
                    encode_hello(&mut message, *channel, instance_id, *incarnation);
                }
                Some(Frame::Decision(v1::Decision { channel, value })) => {
                    encode_decision(&mut message, *channel, value);
                }
                Some(Frame::Access(v1::Access { op: None, .. })) | None => continue,
            }
            encoded.push(frame);
        }
        prop_assert_eq!(message, v1::AttachRequest { frames: encoded }.encode_to_vec());
    }
}

/// One frame of each kind of a server, with all its fields but those of rare messages in it.
fn one_of_each_kind() -> Vec<v1::ServerFrame> {
    let answer = |result| v1::Answer { channel: 3, number: 300, phase: 5, result: Some(result) };
    let append = v1::AppendResult { outcome: v1::AppendOutcome::Success.into(), position: Some(0) };
    let read = v1::ReadResult { start: 2, values: vec!["a".into(), "bc".into()], length: 4, sealed: true };
    let own = Some(v1::Own { process: 2, next_access_number: 4, ..v1::Own::default() });
    let parameters = Some(v1::Parameters { processes: 8, seed: Some(0), ..v1::Parameters::default() });
    vec![
        answer(v1::answer::Result::Append(append)).into(),
        answer(v1::answer::Result::Read(read)).into(),
        v1::Welcome { channel: 3, session: 1, own, parameters }.into(),
        v1::Refusal { channel: 3, message: "no".to_owned(), ..v1::Refusal::default() }.into(),
        v1::Decided { channel: 3 }.into(),
        v1::Replaced { channel: 3, session: 2, incarnation: 9 }.into(),
    ]
}

#[test]
fn each_kind_of_frame_agrees_in_each_unusual_encoding() {
    for frame in one_of_each_kind() {
        let message = v1::AttachResponse { frames: vec![frame] }.encode_to_vec();
        for (inner, outer) in
            Reencoding::ALL.iter().flat_map(|one| Reencoding::ALL.map(|other| (*one, other)))
        {
            let message = reencoded(&message, &mut [inner, outer, inner, outer].into_iter());
            agree(&message).expect("both decoders agree");
        }
    }
}

#[test]
fn values_behind_the_length_of_their_list_are_found() {
    // The fields of the answer and of its read in the opposite order.
    let read = v1::ReadResult { start: 0, values: vec!["a".into(), "bc".into()], length: 2, sealed: false };
    let result = Some(v1::answer::Result::Read(read));
    let frames = vec![v1::Answer { channel: 0, number: 1, phase: 0, result }.into()];
    let message = v1::AttachResponse { frames }.encode_to_vec();
    let reversed = reencoded(&message, &mut std::iter::repeat(Reencoding::Reversed));
    assert_ne!(reversed, message);
    let response = DecodedResponse::decode(reversed.into()).expect("it is a response");
    let [ResponseFrame::Read { values, length: 2, .. }] = response.frames() else { panic!("{response:?}") };
    assert!(response.values(values).eq([&b"bc"[..], b"a"]));
}
