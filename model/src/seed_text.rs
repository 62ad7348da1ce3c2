//! Seeds, and other numbers all of whose 64 bits count, in JSON: written as texts, read as texts and as
//! numbers.
//!
//! JSON's own readers in JavaScript and in many other languages keep 53 bits of a number. So a seed is a
//! text, as 64-bit numbers are in protobuf's JSON. Records that were written before have numbers.
//!
//! For `#[serde(with = "...")]` on a `u64`; [`option`] for one that may be missing.

use std::fmt;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

/// Writes a seed.
///
/// # Errors
/// Those of the serializer.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields so")]
pub fn serialize<S: Serializer>(seed: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(seed)
}

/// Reads a seed.
///
/// # Errors
/// If there is neither a number nor the text of one.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(TextOrNumber)
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a seed: the decimal digits of a number of 64 bits")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The same for a seed that may be missing.
pub mod option {
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Read(#[serde(with = "super")] u64);

    /// Writes a seed, or nothing.
    ///
    /// # Errors
    /// Those of the serializer.
    #[allow(clippy::ref_option, reason = "serde passes fields so")]
    pub fn serialize<S: Serializer>(seed: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
        match seed {
            Some(seed) => serializer.collect_str(seed),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a seed, or nothing.
    ///
    /// # Errors
    /// If there is something else.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
        Ok(Option::<Read>::deserialize(deserializer)?.map(|Read(seed)| seed))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Record {
        #[serde(with = "super")]
        seed: u64,
        #[serde(default, with = "super::option")]
        first: Option<u64>,
    }

    #[test]
    fn a_seed_is_written_as_a_text_and_read_as_a_number_too() {
        let record = Record { seed: u64::MAX, first: Some(9_007_199_254_740_993) };
        let text = r#"{"seed":"18446744073709551615","first":"9007199254740993"}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        let read = |text: &str| serde_json::from_str::<Record>(text);
        assert_eq!(read(text).unwrap(), record);
        let before = r#"{"seed":18446744073709551615,"first":9007199254740993}"#;
        assert_eq!(read(before).unwrap(), record);
        assert_eq!(read(r#"{"seed":0,"first":null}"#).unwrap(), Record { seed: 0, first: None });
        for none in [r#"{"seed":-1}"#, r#"{"seed":"x"}"#, r#"{"seed":1.5}"#, r#"{"seed":null}"#] {
            assert!(read(none).is_err(), "{none}");
        }
    }
}
