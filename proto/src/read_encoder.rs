//! The result of a read, encoded straight from the list: no buffer for each value, no vector of them.
//!
//! For the answer of a read on Attach ([`crate::attach`]) and for the response of a unary one.

use stickycas_model::access::ReadAnswer;
use stickycas_model::types::Phase;

use crate::wire_format::{
    WireType, bytes_field_len, key, number_field_len, write_bytes_field, write_bytes_header,
    write_number_field,
};

const NUMBER: WireType = WireType::Varint;
const BYTES: WireType = WireType::Bytes;

/// Encodes a `ReadResponse` in pieces: its beginning, its values one after the other, its end.
#[derive(Clone, Copy, Debug)]
pub struct ReadResponseEncoder {
    phase: u64,
    answer: ReadAnswer,
    result_len: usize,
}

impl ReadResponseEncoder {
    /// For this answer; `values` are the values that it returns, as many as it counts. No phase: answered outside
    /// phases (F10).
    pub fn new<'a>(phase: Option<Phase>, answer: ReadAnswer, values: impl Iterator<Item = &'a [u8]>) -> Self {
        let result_len = read_result_len(&answer, values);
        Self { phase: phase.map_or(0, Phase::get), answer, result_len }
    }

    /// The length of the whole message.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        number_field_len(self.phase) + bytes_field_len(self.result_len)
    }

    /// Writes the fields before the values.
    pub fn begin(&self, message: &mut Vec<u8>) {
        write_number_field(message, key(1, NUMBER), self.phase);
        write_bytes_header(message, key(2, BYTES), self.result_len);
        begin_read_result(message, &self.answer);
    }

    /// Writes the next value.
    pub fn value(message: &mut Vec<u8>, value: &[u8]) {
        write_value(message, value);
    }

    /// Writes the fields behind the values.
    pub fn end(&self, message: &mut Vec<u8>) {
        end_read_result(message, &self.answer);
    }
}

/// The encoded length of a `ReadResult`.
pub(crate) fn read_result_len<'a>(answer: &ReadAnswer, values: impl Iterator<Item = &'a [u8]>) -> usize {
    let start = number_field_len(answer.start.get().into());
    let values: usize = values.map(|value| bytes_field_len(value.len())).sum();
    start + values + number_field_len(answer.length.into()) + number_field_len(answer.sealed.into())
}

/// Writes a `ReadResult`.
pub(crate) fn write_read_result<'a>(
    message: &mut Vec<u8>,
    answer: &ReadAnswer,
    values: impl Iterator<Item = &'a [u8]>,
) {
    begin_read_result(message, answer);
    values.for_each(|value| write_value(message, value));
    end_read_result(message, answer);
}

fn begin_read_result(message: &mut Vec<u8>, answer: &ReadAnswer) {
    write_number_field(message, key(1, NUMBER), answer.start.get().into());
}

fn write_value(message: &mut Vec<u8>, value: &[u8]) {
    write_bytes_field(message, key(2, BYTES), value);
}

fn end_read_result(message: &mut Vec<u8>, answer: &ReadAnswer) {
    write_number_field(message, key(3, NUMBER), answer.length.into());
    write_number_field(message, key(4, NUMBER), answer.sealed.into());
}
