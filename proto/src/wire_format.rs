//! Protobuf fields, read and written without the generated types, for the codecs of Attach on either side.
//!
//! The reader accepts what encoders usually write: each field of a message at most once, in the order of the
//! field numbers, every key in one byte. Protobuf allows more (repeated, reordered and unknown fields). Where
//! [`FieldReader`] gives `None` the caller decodes the message with the generated types instead.

/// The part of a message that is still to be read. Each method gives `None` or `false` if the next field is
/// not the expected one, or is not encoded in the usual way.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader<'a>(&'a [u8]);

/// The key of a field: its number and its wire type, in one byte.
#[must_use]
pub const fn key(number: u8, wire_type: WireType) -> u8 {
    assert!(number < 16, "a key of one byte");
    number << 3 | wire_type as u8
}

/// The longest encoding of a number of 64 bits: each byte holds seven of them.
const MAX_VARINT_BYTES: usize = 10;

/// How a field is encoded.
#[derive(Clone, Copy, Debug)]
pub enum WireType {
    /// A number.
    Varint = 0,
    /// Bytes, with their length before them.
    Bytes = 2,
}

impl<'a> FieldReader<'a> {
    /// Reads the fields of this message.
    #[must_use]
    pub const fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    /// How many bytes are still to be read.
    #[must_use]
    pub const fn remaining(&self) -> usize {
        self.0.len()
    }

    /// Reads this key; `false` if another one or none comes next. The content of the field is then next.
    #[inline]
    pub fn take_key(&mut self, key: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == key => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// Reads a number.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first < 0x80 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Option<u64> {
        let last = self.0.iter().take(MAX_VARINT_BYTES).position(|byte| *byte < 0x80)?;
        let (digits, rest) = self.0.split_at(last + 1);
        if digits.len() == MAX_VARINT_BYTES && digits[last] > 1 {
            // More than 64 bits.
            return None;
        }
        self.0 = rest;
        Some(digits.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
    }

    /// Reads bytes with their length before them.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.varint()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Reads a field of type `uint64`; 0 if it is absent.
    #[inline]
    pub fn u64_field(&mut self, key: u8) -> Option<u64> {
        if self.take_key(key) { self.varint() } else { Some(0) }
    }

    /// Reads a field of type `uint32`; 0 if it is absent. Protobuf drops the upper bits of a longer number.
    #[inline]
    pub fn u32_field(&mut self, key: u8) -> Option<u32> {
        self.u64_field(key).map(|number| number as u32)
    }

    /// Reads a field of type `bytes`; empty if it is absent.
    #[inline]
    pub fn bytes_field(&mut self, key: u8) -> Option<&'a [u8]> {
        if self.take_key(key) { self.bytes() } else { Some(&[]) }
    }

    /// Reads a field that is a message. Reads nothing and gives `None` if another field comes next, or this
    /// one is cut off.
    #[inline]
    pub fn message_field(&mut self, key: u8) -> Option<Self> {
        let mut rest = *self;
        if !rest.take_key(key) {
            return None;
        }
        let content = rest.bytes()?;
        *self = rest;
        Some(Self(content))
    }

    /// Checks that nothing is left to read.
    #[inline]
    #[must_use]
    pub fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// The encoded length of a number field: 0 if the number is 0, which is not written.
#[must_use]
pub fn number_field_len(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_len(number) }
}

/// The encoded length of a field of so many bytes.
#[must_use]
pub fn bytes_field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}

/// The encoded length of a number.
#[inline]
#[must_use]
pub fn varint_len(number: u64) -> usize {
    prost::encoding::encoded_len_varint(number)
}

/// Writes a number field, unless the number is 0.
pub fn write_number_field(message: &mut Vec<u8>, key: u8, number: u64) {
    if number != 0 {
        message.push(key);
        write_varint(message, number);
    }
}

/// Writes a field of type `bytes`.
pub fn write_bytes_field(message: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    write_bytes_header(message, key, bytes.len());
    message.extend_from_slice(bytes);
}

/// Writes the key and the length of a field of bytes, which are to follow.
pub fn write_bytes_header(message: &mut Vec<u8>, key: u8, length: usize) {
    message.push(key);
    write_varint(message, length as u64);
}

/// Writes a number.
#[inline]
pub fn write_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
