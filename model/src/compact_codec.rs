//! Numbers and values in few bytes, so that finished instances take little memory.
//!
//! A number takes one byte for each seven bits (LEB128). A value that was written before is written as its
//! place among the first ones: processes that agree write the same few values again and again. A decoder must
//! read the items in the order in which they were written; the bytes do not describe themselves. They stand
//! in checkpoints of logs too, so the encoding is that of a file.

use crate::access::Op;
use crate::types::{AccessNumber, Phase, Position, ProcessId, RawValue, SessionId, Time, Value, WarpId};

/// How many values an encoder and a decoder remember: the first ones.
const REMEMBERED: usize = 48;

/// The first values, by their places, each with its fingerprint: a value may be large, and is searched for
/// often.
#[derive(Clone, Debug, Default)]
struct ValueTable(Vec<(u32, Value)>);

impl ValueTable {
    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, value)| value.as_bytes().len()).sum()
    }

    fn add(&mut self, fingerprint: u32, value: &Value) {
        if self.0.len() < REMEMBERED {
            self.0.push((fingerprint, value.clone()));
        }
    }
}

/// Encodes. See the module.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    values: ValueTable,
    repeated: usize,
}

impl Encoder {
    /// The encoded bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes everything and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.values.0.clear();
        self.repeated = 0;
    }

    /// Bytes of values that were written as places: as many more would stand here without the table of
    /// values.
    #[must_use]
    pub fn repeated_bytes(&self) -> usize {
        self.repeated
    }

    /// Bytes of the values that are remembered.
    #[must_use]
    pub fn remembered_bytes(&self) -> usize {
        self.values.bytes()
    }

    /// One byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A number, in few bytes if it is small.
    pub fn number(&mut self, number: impl Into<u64>) {
        let mut rest: u64 = number.into();
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// Bytes, and before them how many.
    pub fn slice(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// A value: the place at which it is remembered, or 0 and its bytes.
    pub fn value(&mut self, value: &Value) {
        let fingerprint = value.fingerprint();
        match self.values.0.iter().position(|(print, known)| *print == fingerprint && known == value) {
            Some(place) => {
                self.number(place as u64 + 1);
                self.repeated += value.as_bytes().len();
            }
            None => {
                self.number(0_u64);
                self.slice(value.as_bytes());
                self.values.add(fingerprint, value);
            }
        }
    }

    /// Where the first value with this fingerprint is remembered.
    #[must_use]
    pub fn place_of(&self, fingerprint: u32) -> Option<u64> {
        self.values.0.iter().position(|(print, _)| *print == fingerprint).map(|place| place as u64)
    }

    /// An operation.
    pub fn op(&mut self, op: &Op) {
        match op {
            Op::Append(value) => self.value(value),
            Op::Read { start } => self.number(start.get()),
        }
    }
}

/// Decodes the bytes of an [`Encoder`]. A method returns `None` if the next bytes are no such item.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    values: ValueTable,
}

impl<'a> Decoder<'a> {
    /// Decodes these bytes from their beginning.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, values: ValueTable::default() }
    }

    /// The bytes that are not decoded yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// See [`Encoder::byte`].
    #[inline]
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    /// See [`Encoder::number`].
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// A number that fits into 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// See [`Encoder::slice`].
    pub fn slice(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (slice, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(slice)
    }

    /// A slice that is text.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.slice()?).ok()
    }

    /// See [`Encoder::value`].
    pub fn value(&mut self) -> Option<Value> {
        match self.number()?.checked_sub(1) {
            Some(place) => self.remembered(place).map(|(_, value)| value.clone()),
            None => {
                let value = RawValue::new(self.slice()?).into_value()?;
                self.values.add(value.fingerprint(), &value);
                Some(value)
            }
        }
    }

    /// The fingerprint of the value that is remembered at this place.
    #[must_use]
    pub fn fingerprint_at(&self, place: u64) -> Option<u32> {
        self.remembered(place).map(|(fingerprint, _)| *fingerprint)
    }

    fn remembered(&self, place: u64) -> Option<&(u32, Value)> {
        self.values.0.get(usize::try_from(place).ok()?)
    }

    /// A process.
    pub fn process(&mut self) -> Option<ProcessId> {
        ProcessId::new(self.small()?)
    }

    /// A warp.
    pub fn warp(&mut self) -> Option<WarpId> {
        WarpId::new(self.small()?)
    }

    /// A phase.
    pub fn phase(&mut self) -> Option<Phase> {
        Phase::new(self.number()?)
    }

    /// A position.
    pub fn position(&mut self) -> Option<Position> {
        self.small().map(Position::new)
    }

    /// A session.
    pub fn session(&mut self) -> Option<SessionId> {
        SessionId::new(self.small()?)
    }

    /// An access number.
    pub fn access_number(&mut self) -> Option<AccessNumber> {
        AccessNumber::new(self.number()?)
    }

    /// A moment.
    pub fn time(&mut self) -> Option<Time> {
        self.number().map(Time::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back_and_small_ones_take_one_byte() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let mut encoder = Encoder::default();
        numbers.into_iter().for_each(|number| encoder.number(number));
        let mut decoder = Decoder::new(encoder.bytes());
        assert_eq!(numbers.map(|_| decoder.number().unwrap()), numbers);
        assert!(decoder.rest().is_empty() && decoder.number().is_none());
        assert_eq!(encoder.bytes().len(), 3 + 2 + 2 + 5 + 10);
        assert_eq!(Decoder::new(&[0xff; 11]).number(), None, "no number has eleven bytes");
    }

    #[test]
    fn values_read_back_also_beyond_the_table() {
        let value = |number: usize| Value::new(format!("value {number}").as_bytes()).unwrap();
        let values: Vec<Value> = (0..2 * REMEMBERED).chain([0, 0, REMEMBERED, 3]).map(value).collect();
        let mut encoder = Encoder::default();
        values.iter().for_each(|value| encoder.value(value));
        let length = encoder.bytes().len();
        encoder.value(&values[0]);
        assert_eq!(encoder.bytes().len(), length + 1);
        let mut decoder = Decoder::new(encoder.bytes());
        let read: Vec<Value> = values.iter().map(|_| decoder.value().unwrap()).collect();
        assert_eq!(read, values);
        assert_eq!(decoder.value().as_ref(), values.first());
    }
}
