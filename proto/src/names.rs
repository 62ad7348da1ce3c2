//! How an instance is named on the wire: by its id, or by the name that its creator chose (SPEC F11).
//!
//! No name looks like an id, so a person may give either and is never misunderstood.

use std::fmt;
use std::str::FromStr;

use crate::v1;
use crate::wire_error::WireError;

/// Digits of an instance id.
const ID_DIGITS: usize = 32;
/// The most bytes of a name.
pub const MAX_NAME_BYTES: usize = 64;

/// The id of an instance: 128 random bits, written as 32 lowercase hex digits. No id is given twice, so an id
/// from before a restart of the server is unknown to it and never means another instance (F11).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceId(u128);

impl InstanceId {
    /// The id with these bits, which the creation of an instance draws.
    #[must_use]
    pub const fn new(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The id with these digits; `None` unless there are 32 lowercase hex digits.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let digits: &[u8; ID_DIGITS] = text.try_into().ok()?;
        let digit = |byte| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let half = |digits: &[u8]| {
            digits.iter().try_fold(0_u64, |bits, byte| Some(bits << 4 | u64::from(digit(*byte)?)))
        };
        let (upper, lower) = digits.split_at(ID_DIGITS / 2);
        Some(Self(u128::from(half(upper)?) << 64 | u128::from(half(lower)?)))
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for InstanceId {
    type Err = WireError;

    /// Strict: one instance has one spelling.
    fn from_str(text: &str) -> Result<Self, WireError> {
        Self::from_hex(text.as_bytes()).ok_or(WireError::InstanceId)
    }
}

/// The name of an instance: 1 to [`MAX_NAME_BYTES`] bytes, each a letter, a digit, `.`, `_` or `-`, and not
/// 32 hex digits. Unique among the instances that the server keeps (F11).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InstanceName(Box<str>);

impl InstanceName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in a field of a message; `None` if the field is empty.
    ///
    /// # Errors
    /// If the text is not empty and no name.
    pub fn optional(text: &str) -> Result<Option<Self>, WireError> {
        if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
    }
}

impl fmt::Display for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for InstanceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for InstanceName {
    type Err = WireError;

    fn from_str(text: &str) -> Result<Self, WireError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let looks_like_an_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(allowed) && !looks_like_an_id {
            Ok(Self(text.into()))
        } else {
            Err(WireError::InstanceName)
        }
    }
}

/// An instance as `Get` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceRef {
    /// By its id.
    Id(InstanceId),
    /// By its name.
    Name(InstanceName),
}

impl TryFrom<&v1::GetRequest> for InstanceRef {
    type Error = WireError;

    fn try_from(request: &v1::GetRequest) -> Result<Self, WireError> {
        use v1::get_request::Instance;
        match request.instance.as_ref().ok_or(WireError::Missing("instance"))? {
            Instance::InstanceId(id) => id.parse().map(Self::Id),
            Instance::Name(name) => name.parse().map(Self::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_as_it_is_written() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef] {
            let id = InstanceId::new(bits);
            assert_eq!(id.to_string().len(), 32);
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let id = "00000000000000000000000000000abc";
        assert!(id.parse::<InstanceId>().is_ok());
        let signed = format!("+{}", &id[1..]);
        for other in ["", "abc", &id.to_uppercase(), &format!("0{id}"), &signed, &id.replace('0', "\u{e9}")] {
            assert_eq!(other.parse::<InstanceId>(), Err(WireError::InstanceId), "{other}");
        }
    }

    #[test]
    fn no_name_looks_like_an_id() {
        let hex = "0123456789abcdefABCDEF0123456789";
        assert_eq!(hex.parse::<InstanceName>(), Err(WireError::InstanceName));
        assert!(hex[1..].parse::<InstanceName>().is_ok());
        assert!(format!("{hex}0").parse::<InstanceName>().is_ok());
    }

    #[test]
    fn a_name_is_short_and_of_few_kinds_of_characters() {
        for name in ["a", "Run-7_b.2", &"x".repeat(64)] {
            assert_eq!(name.parse::<InstanceName>().unwrap().as_str(), name);
        }
        for other in ["", "a b", "a/b", "\u{e9}", "a\n", &"x".repeat(65)] {
            assert_eq!(other.parse::<InstanceName>(), Err(WireError::InstanceName), "{other}");
        }
        assert_eq!(InstanceName::optional(""), Ok(None));
    }
}
