//! The scalars of the model, one newtype each, so that a warp is never taken for a process nor a phase for
//! a round.
//!
//! Processes, warps, phases, rounds and access numbers count from 1, as in the paper; positions in the list
//! count from 0. A type that counts from 1 is built on a non-zero integer: the missing value of the wire
//! (0) cannot be constructed.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! one_based {
    ($(#[$meta:meta])* $name:ident, $non_zero:ty, $raw:ty) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($non_zero);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(<$non_zero>::MIN);

            /// The one with this number; `None` for 0.
            #[must_use]
            pub const fn new(number: $raw) -> Option<Self> {
                match <$non_zero>::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The number, from 1.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0.get()
            }

            /// The one after this. Saturates at the largest number.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

one_based! {
    /// A process, numbered from 1 to n (paper: P_1 ... P_n).
    ProcessId, NonZeroU32, u32
}
one_based! {
    /// A warp, numbered from 1 to W = ceil(n/p). Process i is in warp ceil(i/p) (P1).
    WarpId, NonZeroU32, u32
}
one_based! {
    /// A phase, numbered from 1. Each belongs to one warp (W1).
    Phase, NonZeroU64, u64
}
one_based! {
    /// A round, numbered from 1: one pass of the scheduler, in which every warp has exactly one phase.
    Round, NonZeroU64, u64
}
one_based! {
    /// A process's own number of an access, from 1 (F8).
    AccessNumber, NonZeroU64, u64
}
one_based! {
    /// A session of one process at one instance, opened by the hello of its stream (F8e). Numbered from 1
    /// per process.
    SessionId, NonZeroU32, u32
}

impl ProcessId {
    /// Index into a table of all processes, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.get() as usize - 1
    }

    /// The process with this index (from 0). `None` past the largest number.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok().and_then(|index| index.checked_add(1)).and_then(Self::new)
    }

    /// Processes 1 to `n`, in order.
    pub fn all(n: u32) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (1..=n).filter_map(Self::new)
    }
}

impl WarpId {
    /// Index into a table of all warps, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.get() as usize - 1
    }

    /// The warp with this index (from 0). `None` past the largest number.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok().and_then(|index| index.checked_add(1)).and_then(Self::new)
    }
}

/// A position in the list, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(u32);

impl Position {
    /// The position with this number, from 0.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number, from 0.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Index into the list.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The seed from which the shuffled order (W2) and the uniform arbiter (A4) are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(u64);

impl Seed {
    /// The seed with this number; every number is one.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment: nanoseconds since the instance was created. The model never reads a clock; whoever drives it
/// says what time it is, and never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The moment of creation.
    pub const ZERO: Self = Self(0);

    /// The moment this many nanoseconds after creation.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since creation.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later. Saturates after five centuries.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A proposed value: one byte or more, opaque, ordered as unsigned bytes (P3).
///
/// An empty value is the paper's NULL and cannot be constructed. The bytes are never shared with the buffer
/// they arrived in, so keeping a value keeps no more memory than the value.
///
/// Written for people and in JSON as its text if it is printable UTF-8, else as `0x` and hex digits; a text
/// that itself begins with `0x` is written as hex too, so that reading back is unambiguous.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Bytes);

impl Value {
    /// A copy of these bytes. `None` if there are none.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(Bytes::copy_from_slice(bytes)))
    }

    /// The value that a person writes as this text; see the type. `None` if empty or if what follows `0x`
    /// is not hex.
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
        &self.0
    }

    /// The bytes, shared and not copied.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.starts_with("0x") && !text.contains(char::is_control) => f.pad(text),
            _ => {
                f.write_str("0x")?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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
    fn zero_is_no_process() {
        assert_eq!(ProcessId::new(0), None);
        assert_eq!(ProcessId::from_index(0), Some(ProcessId::FIRST));
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
    fn what_is_written_for_people_reads_back() {
        for bytes in [&b"apple"[..], b"0x41", b"\x00\xff", "\u{e9}t\u{e9}".as_bytes(), b"a\nb", b"0x"] {
            let value = Value::new(bytes).unwrap();
            assert_eq!(Value::parse(&value.to_string()), Some(value));
        }
        assert_eq!(Value::parse("0x4"), None);
        assert_eq!(Value::parse("0xzz"), None);
    }
}
