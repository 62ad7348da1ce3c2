//! Conditions under which a run has failed, such as `instance_p99 > 50ms`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::figures::Metric;

/// A condition. Its text is `FIGURE > VALUE` or `FIGURE < VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    /// The figure that is compared.
    pub figure: Metric,
    /// Whether the condition holds above the value; else below it.
    pub(crate) above: bool,
    /// The value: nanoseconds for a latency, else a number.
    pub(crate) value: f64,
    /// As it was written.
    text: String,
}

/// A condition with the value of its figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// As it was written.
    pub condition: String,
    /// The value of its figure, in nanoseconds if it is a latency; `None`: there was nothing to measure.
    pub value: Option<f64>,
}

impl FailIf {
    /// Whether the condition holds for this value of its figure.
    #[must_use]
    pub fn is_met(&self, value: f64) -> bool {
        if self.above { value > self.value } else { value < self.value }
    }
}

impl FromStr for FailIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let sides = (text.split_once('>'), text.split_once('<'));
        let (above, (name, given)) = match sides {
            (Some(sides), None) => (true, sides),
            (None, Some(sides)) => (false, sides),
            _ => {
                return Err(format!(
                    "{text}: give FIGURE > VALUE or FIGURE < VALUE, such as instance_p99 > 50ms"
                ));
            }
        };
        let (name, given) = (name.trim(), given.trim());
        let no_figure = |()| match Metric::meant_by(name) {
            Some(meant) => format!("{text}: there is no figure {name}: did you mean {meant}?"),
            None => format!("{text}: there is no figure {name}: give {}", Metric::all_names()),
        };
        let figure: Metric = name.parse().map_err(no_figure)?;
        let (value, wanted) = if figure.is_latency() {
            let duration = stickycas_program::parse_duration(given).ok();
            (duration.map(|duration| duration.as_nanos() as f64), "a duration such as 50ms")
        } else {
            (number(given), "a number such as 100 or 0.1%")
        };
        let value = value.ok_or_else(|| format!("{text}: {given} is no value of it: give {wanted}"))?;
        Ok(Self { figure, above, value, text: text.to_owned() })
    }
}

fn number(text: &str) -> Option<f64> {
    let (digits, factor) = text.strip_suffix('%').map_or((text, 1.0), |digits| (digits.trim_end(), 0.01));
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<FailIf, String> {
        text.parse()
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
        assert!(parse("p99 > 50ms").unwrap_err().ends_with("p99: did you mean instance_p99?"));
        assert!(parse("eror_rate > 0").unwrap_err().ends_with("eror_rate: did you mean error_rate?"));
        assert!(parse("speed > 4").unwrap_err().contains("there is no figure speed: give instance_p50"));
        assert!(parse("instance_p99 > 4").unwrap_err().contains("give a duration such as 50ms"));
        assert!(parse("errors > some").unwrap_err().contains("give a number such as"));
    }
}
