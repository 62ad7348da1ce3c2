//! Encodes the responses of the server: each function writes one frame straight into a message.
//!
//! An `AttachResponse` is its frames one after the other, so a message grows frame by frame, and a frame that
//! makes it too long can be cut off again.

use prost::Message as _;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::types::{AccessNumber, Phase};

use crate::convert::answer::outcome_and_position;
use crate::v1;
use crate::wire_format::{
    WireType, bytes_field_len, key, number_field_len, varint_len, write_bytes_field, write_bytes_header,
    write_number_field, write_varint,
};

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a frame in its message.
const FRAME: u8 = key(1, BYTES);

/// An encoded `AttachResponse`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedResponse(pub Vec<u8>);

/// Adds the answer of an access. `values` are the values that a read returns, as many as it counts; the
/// iterator runs twice. No phase: answered outside phases (F10).
pub fn encode_answer<'a>(
    message: &mut Vec<u8>,
    channel: u32,
    number: AccessNumber,
    phase: Option<Phase>,
    answer: &Answer,
    values: impl Iterator<Item = &'a [u8]> + Clone,
) {
    let (channel, number) = (u64::from(channel), number.get());
    let phase = phase.map_or(0, Phase::get);
    let result_len = match answer {
        Answer::Append(append) => append_result_len(*append),
        Answer::Read(read) => read_result_len(read, values.clone()),
    };
    let answer_len = number_field_len(channel)
        + number_field_len(number)
        + number_field_len(phase)
        + bytes_field_len(result_len);
    write_bytes_header(message, FRAME, bytes_field_len(answer_len));
    write_bytes_header(message, key(1, BYTES), answer_len);
    write_number_field(message, key(1, NUMBER), channel);
    write_number_field(message, key(2, NUMBER), number);
    write_number_field(message, key(3, NUMBER), phase);
    match answer {
        Answer::Append(append) => {
            write_bytes_header(message, key(4, BYTES), result_len);
            write_append_result(message, *append);
        }
        Answer::Read(read) => {
            // It need not grow step by step.
            message.reserve(result_len);
            write_bytes_header(message, key(5, BYTES), result_len);
            write_read_result(message, read, values);
        }
    }
}

/// Adds the acknowledgement of a decision.
pub fn encode_decided(message: &mut Vec<u8>, channel: u32) {
    let decided_len = number_field_len(channel.into());
    write_bytes_header(message, FRAME, bytes_field_len(decided_len));
    write_bytes_header(message, key(4, BYTES), decided_len);
    write_number_field(message, key(1, NUMBER), channel.into());
}

/// The parameters of instances that differ in nothing but their seeds, encoded once for all their welcomes.
/// The seed stands in between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedParameters {
    bytes: Box<[u8]>,
    /// Where the seed belongs.
    seed_at: usize,
}

impl EncodedParameters {
    /// Encodes these parameters without their seed.
    #[must_use]
    pub fn new(parameters: &v1::Parameters) -> Self {
        let v1::Parameters { processes, warp_size, read_size, order, .. } = *parameters;
        let before = v1::Parameters { processes, warp_size, read_size, order, ..v1::Parameters::default() };
        let all = v1::Parameters { seed: None, ..parameters.clone() };
        Self { bytes: all.encode_to_vec().into(), seed_at: before.encoded_len() }
    }
}

/// Adds a welcome.
pub fn encode_welcome(
    message: &mut Vec<u8>,
    channel: u32,
    session: u32,
    own: &v1::Own,
    parameters: &EncodedParameters,
    seed: u64,
) {
    let own_len = own.encoded_len();
    // Unlike other numbers a seed is written even if it is 0: the field has presence.
    let parameters_len = parameters.bytes.len() + 1 + varint_len(seed);
    let welcome_len = number_field_len(channel.into())
        + number_field_len(session.into())
        + bytes_field_len(own_len)
        + bytes_field_len(parameters_len);
    write_bytes_header(message, FRAME, bytes_field_len(welcome_len));
    write_bytes_header(message, key(2, BYTES), welcome_len);
    write_number_field(message, key(1, NUMBER), channel.into());
    write_number_field(message, key(2, NUMBER), session.into());
    write_bytes_header(message, key(3, BYTES), own_len);
    own.encode(message).expect("a vector grows");
    let (before, behind) = parameters.bytes.split_at(parameters.seed_at);
    write_bytes_header(message, key(4, BYTES), parameters_len);
    message.extend_from_slice(before);
    message.push(key(5, NUMBER));
    write_varint(message, seed);
    message.extend_from_slice(behind);
}

/// Adds a frame of any kind, encoded by the generated types.
pub fn encode_frame(message: &mut Vec<u8>, frame: &v1::ServerFrame) {
    message.push(FRAME);
    frame.encode_length_delimited(message).expect("a vector grows");
}

fn append_result_len(answer: AppendAnswer) -> usize {
    let (outcome, position) = outcome_and_position(answer);
    let position_len = position.map_or(0, |position| 1 + varint_len(position.into()));
    number_field_len(outcome as u64) + position_len
}

fn write_append_result(message: &mut Vec<u8>, answer: AppendAnswer) {
    let (outcome, position) = outcome_and_position(answer);
    write_number_field(message, key(1, NUMBER), outcome as u64);
    // Unlike other numbers a position is written even if it is 0: the field has presence.
    if let Some(position) = position {
        message.push(key(2, NUMBER));
        write_varint(message, position.into());
    }
}

/// The encoded length of a `ReadResult`.
fn read_result_len<'a>(answer: &ReadAnswer, values: impl Iterator<Item = &'a [u8]>) -> usize {
    let start = number_field_len(answer.start.get().into());
    let values: usize = values.map(|value| bytes_field_len(value.len())).sum();
    start + values + number_field_len(answer.length.into()) + number_field_len(answer.sealed.into())
}

/// Writes a `ReadResult` straight from the list: no buffer for each value, no vector of them.
fn write_read_result<'a>(message: &mut Vec<u8>, answer: &ReadAnswer, values: impl Iterator<Item = &'a [u8]>) {
    write_number_field(message, key(1, NUMBER), answer.start.get().into());
    values.for_each(|value| write_bytes_field(message, key(2, BYTES), value));
    write_number_field(message, key(3, NUMBER), answer.length.into());
    write_number_field(message, key(4, NUMBER), answer.sealed.into());
}
