//! Protobuf as encoders write it: each field of a message at most once, in the order of their numbers, each key
//! in one byte. Nothing else is read here; it is not wrong, but somebody else's. And how it is written.

/// What is left of a message. Each method is `None` or `false` if what comes is not plain, or not what is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

/// The key of a field: its number and how it is encoded.
pub(super) const fn key(number: u8, wire_type: WireType) -> u8 {
    assert!(number < 16, "a key of one byte");
    number << 3 | wire_type as u8
}

/// Bytes of a number of 64 bits, seven of them in each.
const LONGEST_NUMBER: usize = 10;

/// How a field is encoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum WireType {
    /// A number.
    Varint = 0,
    /// Bytes, with their length before them.
    Bytes = 2,
}

impl<'a> FieldReader<'a> {
    /// Whether the next field is this one; its content is then next.
    #[inline]
    pub(super) fn has(&mut self, key: u8) -> bool {
        match self.0.split_first() {
            Some((first, rest)) if *first == key => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    /// A number.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first < 0x80 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let last = self.0.iter().take(LONGEST_NUMBER).position(|byte| *byte < 0x80)?;
        let (digits, rest) = self.0.split_at(last + 1);
        if digits.len() == LONGEST_NUMBER && digits[last] > 1 {
            // More than 64 bits.
            return None;
        }
        self.0 = rest;
        Some(digits.iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
    }

    /// Bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The number of the next field if it is this one, else what an absent one means.
    #[inline]
    pub(super) fn number_at(&mut self, key: u8) -> Option<u64> {
        if self.has(key) { self.number() } else { Some(0) }
    }

    /// The same for a number of 32 bits, of which protobuf drops the upper ones.
    #[inline]
    pub(super) fn short_number_at(&mut self, key: u8) -> Option<u32> {
        self.number_at(key).map(|number| number as u32)
    }

    /// The bytes of the next field if it is this one, else what an absent one means.
    #[inline]
    pub(super) fn bytes_at(&mut self, key: u8) -> Option<&'a [u8]> {
        if self.has(key) { self.bytes() } else { Some(&[]) }
    }

    /// That nothing is left.
    #[inline]
    pub(super) fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Bytes of a number with its key: one that is 0 is left out.
pub(super) fn number_length(number: u64) -> usize {
    if number == 0 { 0 } else { 1 + varint_length(number) }
}

/// So many bytes with their key and their length.
pub(super) fn bytes_length(length: usize) -> usize {
    1 + varint_length(length as u64) + length
}

/// Writes a number with its key, unless it is 0.
pub(super) fn write_number(message: &mut Vec<u8>, key: u8, number: u64) {
    if number != 0 {
        message.push(key);
        write_varint(message, number);
    }
}

/// Writes the key of bytes and how many they are.
pub(super) fn write_key(message: &mut Vec<u8>, key: u8, length: usize) {
    message.push(key);
    write_varint(message, length as u64);
}

/// Writes a number.
#[inline]
pub(super) fn write_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

/// How many bytes a number has.
#[inline]
pub(super) fn varint_length(number: u64) -> usize {
    prost::encoding::encoded_len_varint(number)
}

/// Bytes with their key and their length.
pub(super) fn write_bytes(message: &mut Vec<u8>, key: u8, bytes: &[u8]) {
    write_key(message, key, bytes.len());
    message.extend_from_slice(bytes);
}
