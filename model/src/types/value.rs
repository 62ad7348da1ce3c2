//! Values: they are proposed, appended, read and decided (SPEC P3).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::printable::is_printable;

/// Up to this many bytes are stored in the value itself, so that most values are copied without an allocation
/// or a shared count.
const FEW: usize = 15;

/// Bytes that are sent as a value: perhaps none, perhaps too many. See [`crate::params::Params::checked`].
///
/// Cheap to clone, and never shared with the buffer in which they arrived, so that keeping them keeps that
/// buffer alive for no longer.
#[derive(Clone)]
pub struct RawValue {
    /// Few bytes, then zeros, and their count in the last place: two values compare as these sixteen bytes
    /// do.
    few: Aligned,
    /// More bytes, behind one pointer: a value is three words, which are copied word by word. A copy of
    /// single bytes would wait for the copy before it to reach memory.
    many: Option<Arc<Box<[u8]>>>,
}

/// Two words, so that a struct with a value is copied word by word as well.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Aligned([u8; FEW + 1]);

impl RawValue {
    /// A copy of these bytes.
    #[must_use]
    pub fn new(given: &[u8]) -> Self {
        let mut few = [0; FEW + 1];
        if given.len() > FEW {
            return Self { few: Aligned(few), many: Some(Arc::new(given.into())) };
        }
        few[..given.len()].copy_from_slice(given);
        few[FEW] = given.len() as u8;
        Self { few: Aligned(few), many: None }
    }

    /// The bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.many {
            None => &self.few.0[..usize::from(self.few.0[FEW])],
            Some(bytes) => bytes,
        }
    }

    /// The bytes, not copied if they are many.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match &self.many {
            None => Bytes::copy_from_slice(self.as_bytes()),
            Some(bytes) => Bytes::from_owner(Shared(Arc::clone(bytes))),
        }
    }

    /// The bytes as a value. `None` if there are none.
    #[must_use]
    pub fn into_value(self) -> Option<Value> {
        (!self.as_bytes().is_empty()).then_some(Value(self))
    }
}

/// Bytes that a buffer for the network may share.
struct Shared(Arc<Box<[u8]>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for RawValue {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.many, &other.many) {
            (None, None) => u128::from_ne_bytes(self.few.0) == u128::from_ne_bytes(other.few.0),
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for RawValue {}

impl PartialOrd for RawValue {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RawValue {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.many, &other.many) {
            (None, None) => u128::from_be_bytes(self.few.0).cmp(&u128::from_be_bytes(other.few.0)),
            _ => self.as_bytes().cmp(other.as_bytes()),
        }
    }
}

impl Hash for RawValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for RawValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.as_bytes().escape_ascii())
    }
}

impl From<Vec<u8>> for RawValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(&bytes)
    }
}

impl From<&Value> for RawValue {
    fn from(value: &Value) -> Self {
        value.0.clone()
    }
}

/// A proposed value: one byte or more, opaque, ordered as unsigned bytes (P3).
///
/// An empty value is the paper's NULL and cannot be constructed.
///
/// Written for people and in JSON as its text if it is printable UTF-8, else as `0x` and hex digits; a text
/// that itself begins with `0x` is written as hex too, so that reading back is unambiguous.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(RawValue);

impl Value {
    /// A copy of these bytes. `None` if there are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        RawValue::new(bytes).into_value()
    }

    /// The value that a person writes as this text; see the type. `None` if empty or if what follows `0x` is
    /// not hex.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("0x") {
            None => Self::new(text.as_bytes()),
            Some(digits) => Self::new(&from_hex(digits)?),
        }
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// A fingerprint: FNV-1a over words of eight bytes, and of that the lower half.
    pub(crate) fn fingerprint(&self) -> u32 {
        const PRIME: u64 = 0x0000_0100_0000_01b3;
        let bytes = self.as_bytes();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ bytes.len() as u64;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(PRIME);
            hash ^= hash >> 32;
        }
        hash as u32
    }

    /// The bytes, not copied if they are many.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.to_bytes()
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) if !text.starts_with("0x") && is_printable(text) => f.pad(text),
            _ => {
                f.write_str("0x")?;
                self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(
                "a value is a text of one byte or more, or 0x and an even number of hex digits",
            )
        })
    }
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_show_as_what_it_is_is_hexadecimal() {
        for text in ["a\u{202e}b", "a\u{200b}b", "\u{1b}[31m", "a\u{2066}b"] {
            let value = Value::new(text.as_bytes()).unwrap();
            let shown = value.to_string();
            assert!(shown.starts_with("0x"), "{shown}");
            assert_eq!(Value::parse(&shown).unwrap(), value);
        }
        for text in ["naïve \"word\"", "これは"] {
            assert_eq!(Value::new(text.as_bytes()).unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_empty_value_is_no_value() {
        assert_eq!(Value::new(b""), None);
        assert_eq!(Value::parse(""), None);
        assert_eq!(Value::parse("0x"), None);
    }

    #[test]
    fn values_are_ordered_as_unsigned_bytes() {
        let value = |bytes: &[u8]| Value::new(bytes).unwrap();
        assert!(value(&[0x7f]) < value(&[0x80]));
        assert!(value(b"a") < value(b"aa"));
        assert!(value(b"aa") < value(b"b"));
    }

    #[test]
    fn a_value_as_text_reads_back() {
        for bytes in [&b"apple"[..], b"0x41", b"\x00\xff", "\u{e9}t\u{e9}".as_bytes(), b"a\nb", b"0x"] {
            let value = Value::new(bytes).unwrap();
            assert_eq!(Value::parse(&value.to_string()), Some(value));
        }
        assert_eq!(Value::parse("0x4"), None);
        assert_eq!(Value::parse("0xzz"), None);
    }

    #[test]
    fn a_value_of_few_bytes_is_three_words() {
        assert_eq!(size_of::<Value>(), 24);
    }

    #[test]
    fn short_and_long_values_compare_as_bytes() {
        let all = [&b""[..], b"\0", b"a", b"a\0", &[b'a'; FEW], &[b'a'; FEW + 1], b"b", &[0xff; 99]];
        for (index, bytes) in all.into_iter().enumerate() {
            let raw = RawValue::new(bytes);
            assert_eq!((raw.as_bytes(), &raw.to_bytes()[..]), (bytes, bytes));
            assert_eq!(raw, RawValue::from(bytes.to_vec()));
            for (other_index, other) in all.into_iter().enumerate() {
                assert_eq!(raw.cmp(&RawValue::new(other)), bytes.cmp(other));
                assert_eq!(raw == RawValue::new(other), index == other_index);
            }
        }
    }
}
