//! Frames of the server, written straight into a message.
//!
//! An `AttachResponse` is its frames one after the other, so a message grows by one frame at a time, and one that
//! is too much is cut off again.

use prost::Message as _;
use stickycas_model::access::{Answer, AppendAnswer, ReadAnswer};
use stickycas_model::types::{AccessNumber, Phase};

use super::wire_format::{
    WireType, bytes_length, key, number_length, varint_length, write_bytes, write_key, write_number,
    write_varint,
};
use crate::v1;

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// The key of a frame in its message.
const FRAME: u8 = key(1, BYTES);

/// Adds the answer to an access. `values` are those that a read returns, as many as it counts; they are gone
/// through twice. No phase: answered outside phases (F10).
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
    let result = match answer {
        Answer::Append(append) => append_length(*append),
        Answer::Read(read) => read_length(read, values.clone()),
    };
    let answered =
        number_length(channel) + number_length(number) + number_length(phase) + bytes_length(result);
    write_key(message, FRAME, bytes_length(answered));
    write_key(message, key(1, BYTES), answered);
    write_number(message, key(1, NUMBER), channel);
    write_number(message, key(2, NUMBER), number);
    write_number(message, key(3, NUMBER), phase);
    match answer {
        Answer::Append(append) => {
            write_key(message, key(4, BYTES), result);
            write_append(message, *append);
        }
        Answer::Read(read) => {
            write_key(message, key(5, BYTES), result);
            begin_read(message, read);
            values.for_each(|value| write_value(message, value));
            end_read(message, read);
        }
    }
}

/// The response of a unary read, written in pieces: its beginning, its values one after the other, its end.
#[derive(Clone, Copy, Debug)]
pub struct ReadResponseEncoder {
    phase: u64,
    read: ReadAnswer,
    /// Bytes of what was read.
    result: usize,
}

impl ReadResponseEncoder {
    /// With this answer, and these values in it, as many as it counts. No phase: answered outside phases (F10).
    pub fn new<'a>(phase: Option<Phase>, read: ReadAnswer, values: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { phase: phase.map_or(0, Phase::get), read, result: read_length(&read, values) }
    }

    /// Bytes of the whole message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        number_length(self.phase) + bytes_length(self.result)
    }

    /// Adds what comes before the values.
    pub fn begin(&self, message: &mut Vec<u8>) {
        write_number(message, key(1, NUMBER), self.phase);
        write_key(message, key(2, BYTES), self.result);
        begin_read(message, &self.read);
    }

    /// Adds the next value.
    pub fn value(message: &mut Vec<u8>, value: &[u8]) {
        write_value(message, value);
    }

    /// Adds what comes behind the values.
    pub fn end(&self, message: &mut Vec<u8>) {
        end_read(message, &self.read);
    }
}

/// Adds that a decision was taken.
pub fn encode_decided(message: &mut Vec<u8>, channel: u32) {
    let decided = number_length(channel.into());
    write_key(message, FRAME, bytes_length(decided));
    write_key(message, key(4, BYTES), decided);
    write_number(message, key(1, NUMBER), channel.into());
}

/// The parameters of instances that differ in nothing but their seeds, as a welcome tells them: the same bytes for all
/// of them but for the seed, which stands in between.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EncodedParameters {
    bytes: Box<[u8]>,
    /// Where the seed stands.
    seed_at: usize,
}

impl EncodedParameters {
    /// Of these parameters, whatever their seed is.
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
    let own_length = own.encoded_len();
    // Unlike other numbers the seed is there even if it is 0.
    let parameters_length = parameters.bytes.len() + 1 + varint_length(seed);
    let welcomed = number_length(channel.into())
        + number_length(session.into())
        + bytes_length(own_length)
        + bytes_length(parameters_length);
    write_key(message, FRAME, bytes_length(welcomed));
    write_key(message, key(2, BYTES), welcomed);
    write_number(message, key(1, NUMBER), channel.into());
    write_number(message, key(2, NUMBER), session.into());
    write_key(message, key(3, BYTES), own_length);
    own.encode(message).expect("a vector grows");
    let (before, behind) = parameters.bytes.split_at(parameters.seed_at);
    write_key(message, key(4, BYTES), parameters_length);
    message.extend_from_slice(before);
    message.push(key(5, NUMBER));
    write_varint(message, seed);
    message.extend_from_slice(behind);
}

/// Adds any frame.
pub fn encode_frame(message: &mut Vec<u8>, frame: &v1::ServerFrame) {
    message.push(FRAME);
    frame.encode_length_delimited(message).expect("a vector grows");
}

/// The outcome of an append, and where the value stands.
fn outcome(answer: AppendAnswer) -> (v1::AppendOutcome, Option<u32>) {
    match answer {
        AppendAnswer::Success(position) => (v1::AppendOutcome::Success, Some(position.get())),
        AppendAnswer::Failed => (v1::AppendOutcome::Failed, None),
        AppendAnswer::LimitReached => (v1::AppendOutcome::LimitReached, None),
    }
}

fn append_length(answer: AppendAnswer) -> usize {
    let (outcome, position) = outcome(answer);
    let position = position.map_or(0, |position| 1 + varint_length(position.into()));
    number_length(outcome as u64) + position
}

fn write_append(message: &mut Vec<u8>, answer: AppendAnswer) {
    let (outcome, position) = outcome(answer);
    write_number(message, key(1, NUMBER), outcome as u64);
    // Unlike other numbers it is there even if it is 0.
    if let Some(position) = position {
        message.push(key(2, NUMBER));
        write_varint(message, position.into());
    }
}

fn read_length<'a>(read: &ReadAnswer, values: impl Iterator<Item = &'a [u8]>) -> usize {
    let start = number_length(read.start.get().into());
    let values: usize = values.map(|value| bytes_length(value.len())).sum();
    start + values + number_length(read.length.into()) + number_length(read.sealed.into())
}

fn begin_read(message: &mut Vec<u8>, read: &ReadAnswer) {
    write_number(message, key(1, NUMBER), read.start.get().into());
}

fn write_value(message: &mut Vec<u8>, value: &[u8]) {
    write_bytes(message, key(2, BYTES), value);
}

fn end_read(message: &mut Vec<u8>, read: &ReadAnswer) {
    write_number(message, key(3, NUMBER), read.length.into());
    write_number(message, key(4, NUMBER), read.sealed.into());
}
