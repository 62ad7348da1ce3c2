//! Values that several files have: names, seeds, durations.

use std::ops::Deref;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fault;
use super::{LARGEST_SEED, Spanned};

/// The most bytes of a name.
const LONGEST_NAME: usize = 64;

/// A name of a file: letters, digits, `-` and `_`.
///
/// # Errors
/// It has other characters, none, or too many.
pub fn name(name: &Spanned<String>) -> Result<String, Fault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let text = name.get_ref();
    if (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(allowed) {
        return Ok(text.clone());
    }
    let reason = format!("name = {text:?}: give 1 to {LONGEST_NAME} letters, digits, '-' or '_'");
    Err(Fault::new(name.span(), reason))
}

/// The seed that is given, or another one.
///
/// # Errors
/// It is above [`LARGEST_SEED`].
pub fn seed_or(given: Option<&Spanned<u64>>, otherwise: impl FnOnce() -> u64) -> Result<u64, Fault> {
    match given {
        None => Ok(otherwise()),
        Some(seed) if *seed.get_ref() <= LARGEST_SEED => Ok(*seed.get_ref()),
        Some(seed) => {
            Err(Fault::new(seed.span(), format!("seed = {}: give 0 to {LARGEST_SEED}", seed.get_ref())))
        }
    }
}

/// A duration such as `250ms`; `name` is its key.
///
/// # Errors
/// It is none.
pub fn duration(name: &str, text: &Spanned<String>) -> Result<Duration, Fault> {
    stickycas_program::parse_duration(text.get_ref()).map_err(|error| {
        let reason = format!("{name} = {:?}: {error}: give a duration such as \"250ms\"", text.get_ref());
        Fault::new(text.span(), reason)
    })
}

/// A duration, written as a text such as "250ms".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(inline)]
pub struct DurationText(pub Duration);

impl TryFrom<String> for DurationText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parsed = stickycas_program::parse_duration(&text);
        parsed.map(Self).map_err(|error| format!("{error}: give a duration such as \"250ms\""))
    }
}

impl From<DurationText> for String {
    fn from(duration: DurationText) -> Self {
        humantime::format_duration(duration.0).to_string()
    }
}

impl Deref for DurationText {
    type Target = Duration;

    fn deref(&self) -> &Duration {
        &self.0
    }
}

/// A share, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(inline)]
pub struct Share(pub f64);

impl TryFrom<f64> for Share {
    type Error = &'static str;

    fn try_from(share: f64) -> Result<Self, Self::Error> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err("give 0 to 1") }
    }
}

impl From<Share> for f64 {
    fn from(share: Share) -> Self {
        share.0
    }
}
