//! Conditions under which a run has failed, such as `instance_p99 > 50ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::figures::Metric;

/// A condition. Its text is `FIGURE > VALUE` or `FIGURE < VALUE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FailIf {
    /// The figure that is compared.
    pub figure: Metric,
    /// On which side it must be for the condition to hold.
    pub side: Side,
    /// The value: nanoseconds for a latency, else a number.
    pub value: f64,
    /// As it was written.
    text: String,
}

/// A side of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `>`
    Above,
    /// `<`
    Below,
}

/// An error in the text of a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailIfError {
    /// There is no `>` or `<` in it.
    #[error("{0}: give FIGURE > VALUE or FIGURE < VALUE, such as instance_p99 > 50ms")]
    Form(String),
    /// There is no such figure.
    #[error("{text}: there is no figure {figure}: give {}", Metric::all_names())]
    Metric {
        /// The whole text.
        text: String,
        /// The figure.
        figure: String,
    },
    /// The value is none of this figure.
    #[error("{text}: {value} is no value of it: give {wanted}")]
    Value {
        /// The whole text.
        text: String,
        /// The value.
        value: String,
        /// The values of the figure.
        wanted: &'static str,
    },
}

/// A condition that failed the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// As it was written.
    pub condition: String,
    /// The value of its figure, in nanoseconds if it is a latency; `None`: there was nothing to measure.
    pub value: Option<f64>,
}

/// A condition that did not fail the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passed {
    /// As it was written: it did not hold.
    pub condition: String,
    /// The value of its figure, in nanoseconds if it is a latency.
    pub value: f64,
}

impl FailIf {
    /// Whether the condition holds for this value of its figure.
    #[must_use]
    pub fn is_met(&self, value: f64) -> bool {
        match self.side {
            Side::Above => value > self.value,
            Side::Below => value < self.value,
        }
    }
}

impl FromStr for FailIf {
    type Err = FailIfError;

    fn from_str(text: &str) -> Result<Self, FailIfError> {
        let text = text.trim();
        let (at, side) = match (text.find('>'), text.find('<')) {
            (Some(at), None) => (at, Side::Above),
            (None, Some(at)) => (at, Side::Below),
            _ => return Err(FailIfError::Form(text.to_owned())),
        };
        let (name, given) = (text[..at].trim(), text[at + 1..].trim());
        let figure: Metric = name
            .parse()
            .map_err(|()| FailIfError::Metric { text: text.to_owned(), figure: name.to_owned() })?;
        let value = value(figure, given).ok_or_else(|| FailIfError::Value {
            text: text.to_owned(),
            value: given.to_owned(),
            wanted: if figure.is_latency() {
                "a duration such as 50ms"
            } else {
                "a number such as 100 or 0.1%"
            },
        })?;
        Ok(Self { figure, side, value, text: text.to_owned() })
    }
}

fn value(figure: Metric, text: &str) -> Option<f64> {
    if figure.is_latency() {
        return stickycas_program::parse_duration(text)
            .ok()
            .map(|duration: Duration| duration.as_nanos() as f64);
    }
    let (digits, factor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits.trim_end(), 0.01));
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl From<FailIf> for String {
    fn from(condition: FailIf) -> Self {
        condition.text
    }
}

impl TryFrom<String> for FailIf {
    type Error = FailIfError;

    fn try_from(text: String) -> Result<Self, FailIfError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FailIf, String> {
        text.parse().map_err(|error: FailIfError| error.to_string())
    }

    #[test]
    fn latencies_are_compared_with_durations_others_with_numbers() {
        let p99 = parse("instance_p99 > 50ms").unwrap();
        assert!(p99.is_met(50_000_001.0) && !p99.is_met(50_000_000.0));
        let slow = parse("rate<100").unwrap();
        assert!(slow.is_met(99.9) && !slow.is_met(100.0));
        let errors = parse("error_rate > 0.1 %").unwrap();
        assert!(errors.is_met(0.0011) && !errors.is_met(0.001));
        assert_eq!(p99.to_string(), "instance_p99 > 50ms");
    }

    #[test]
    fn what_is_wrong_is_answered_with_what_to_do() {
        assert!(parse("instance_p99 = 4").unwrap_err().contains("give FIGURE > VALUE"));
        assert!(parse("speed > 4").unwrap_err().contains("there is no figure speed: give instance_p50"));
        assert!(parse("instance_p99 > 4").unwrap_err().contains("give a duration such as 50ms"));
        assert!(parse("errors > some").unwrap_err().contains("give a number such as"));
    }
}
