//! Values that several files have: names, seeds, durations.

use std::time::Duration;

use super::error::Fault;
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
