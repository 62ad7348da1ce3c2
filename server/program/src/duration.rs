//! Durations as people write them, such as `250ms`, with a bound: sums of them and of the time must not
//! overflow anywhere.

use std::time::Duration;

/// The longest duration that may be given: ten years, far longer than any program runs.
pub const LONGEST_DURATION: Duration = Duration::from_secs(3_650 * 86_400);

/// A duration such as `250ms`, `2h 30min` or `30d`, of ten years at most.
///
/// # Errors
/// The error in the text.
#[expect(clippy::disallowed_methods, reason = "the bound is here")]
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= LONGEST_DURATION => Ok(duration),
        Ok(_) => Err("too long: give 3650d at most".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_bound() {
        assert_eq!(parse_duration("1h 250ms"), Ok(Duration::from_millis(3_600_250)));
        assert_eq!(parse_duration("3650d"), Ok(LONGEST_DURATION));
        for text in ["3650d 1ns", "11y", "8000y", "18446744073709551615s"] {
            assert!(parse_duration(text).unwrap_err().contains("3650d"), "{text}");
        }
        for text in ["", "1", "-1s", "x", "99999999999999999999s", "580000000000y"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
