//! Times, numbers, conditions and the outcome of a load as people read them.

use stickycas_harness::report::table::grouped;
use stickycas_model::judge::Outcome;

use crate::engine::CutShort;
use crate::fail_if::{Checked, FailIf};
use crate::figures::{Counts, Metric};
use crate::result::LoadResult;

/// Stands where there is no value.
const NONE: &str = "-";

/// Nanoseconds, in at most 7 characters up to an hour.
pub(super) fn time(nanos: f64) -> String {
    if nanos < 1e6 {
        return format!("{:.0} us", nanos / 1e3);
    }
    let (value, unit) = if nanos < 1e9 { (nanos / 1e6, "ms") } else { (nanos / 1e9, "s") };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// The same, if there is one.
pub(super) fn time_or_none(nanos: Option<f64>) -> String {
    nanos.map_or_else(|| NONE.to_owned(), time)
}

/// The value of a figure.
pub(super) fn value(figure: Metric, value: f64) -> String {
    match figure {
        Metric::Latency(..) => time(value),
        Metric::ErrorRate | Metric::MissedRate => percent(value),
        _ if value.fract() == 0.0 || value >= 1e3 => grouped(value.round() as u64),
        _ => format!("{value:.1}"),
    }
}

/// A share, to three digits.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digits = match percent {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        _ => 4,
    };
    short(&format!("{percent:.digits$} %"))
}

/// A number with its unit, without zeros at the end of its fraction.
fn short(text: &str) -> String {
    let (number, unit) =
        text.split_once(' ').map_or((text, String::new()), |(number, unit)| (number, format!(" {unit}")));
    let number =
        if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    format!("{number}{unit}")
}

/// A figure, its value and its limit, such as `missed_rate 16.4 % (limit 1 %)`.
pub(super) fn condition(checked: &Checked) -> String {
    let Ok(parsed) = checked.condition.parse::<FailIf>() else { return of_no_figure(checked) };
    let (figure, limit) = (parsed.figure, short(&value(parsed.figure, parsed.value)));
    let shown = match checked.value {
        None => "not measured".to_owned(),
        Some(measured) => {
            let shown = value(figure, measured);
            let differ = if measured > parsed.value { "just over " } else { "just under " };
            let same = short(&shown) == limit && measured.total_cmp(&parsed.value).is_ne();
            format!("{}{shown}", if same { differ } else { "" })
        }
    };
    format!("{figure} {shown} ({} {limit})", if parsed.above { "limit" } else { "at least" })
}

/// A condition of the load itself: that something ended, or that a figure is as good as the baseline's.
fn of_no_figure(Checked { condition, value: measured }: &Checked) -> String {
    let (name, says) = condition.split_once(' ').unwrap_or((condition, ""));
    match (name.parse::<Metric>(), measured) {
        (Ok(figure), Some(measured)) => format!("{name} {} ({says})", value(figure, *measured)),
        _ => "no instance came to its end".to_owned(),
    }
}

/// The cure of missed starts, which are those of the generator or of too many instances under way.
pub(super) fn cure_of_missed(counts: &Counts) -> &'static str {
    if counts.late >= counts.dropped {
        "the generator was late, not the server: fewer programs, or --late-after 50ms"
    } else {
        "too many instances were under way: a lower --rate, or a higher --max-in-flight"
    }
}

/// Whether a load passed: one word, and what it is about.
pub(super) fn outcome(result: &LoadResult) -> (&'static str, String) {
    let conditions = match result.failed.len() {
        0 => None,
        failed => {
            let all = failed + result.passed.len();
            Some(format!("{failed} of {all} condition{}", if all == 1 { "" } else { "s" }))
        }
    };
    let promise = (result.verdict == Outcome::Violation).then(|| "a promise broke".to_owned());
    let failures: Vec<String> = promise.into_iter().chain(conditions).collect();
    let word = match result.cut_short {
        _ if result.has_failed() => "FAILED",
        Some(CutShort::Interrupted) => "INTERRUPTED",
        _ if result.verdict == Outcome::Unknown => Outcome::Unknown.title(),
        _ => "PASSED",
    };
    (word, failures.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_as_many_digits_as_say_something() {
        let shown = [850.0, 12_345.0, 1_234_567.0, 12_345_678.0, 345_678_901.0, 12_345_678_901.0].map(time);
        assert_eq!(shown, ["1 us", "12 us", "1.23 ms", "12.3 ms", "346 ms", "12.3 s"]);
        for nanos in [999_999.0, 9_999_999.0, 99_999_999.0, 999_999_999.0, 9_999_999_999.0, 3.6e12] {
            assert!(time(nanos).len() <= 7, "{}", time(nanos));
        }
    }

    #[test]
    fn a_condition_shows_its_figure_its_value_and_its_limit() {
        let shown = |condition: &str, value: f64| {
            super::condition(&Checked { condition: condition.to_owned(), value: Some(value) })
        };
        assert_eq!(shown("missed_rate > 0.01", 0.1636), "missed_rate 16.4 % (limit 1 %)");
        assert_eq!(shown("missed_rate > 1%", 0.010_000_1), "missed_rate just over 1 % (limit 1 %)");
        assert_eq!(shown("error_rate > 0.01", 0.0), "error_rate 0 % (limit 1 %)");
        assert_eq!(shown("error_rate > 0.1%", 0.000_012), "error_rate 0.0012 % (limit 0.1 %)");
        assert_eq!(shown("error_rate > 0.1", 1.0), "error_rate 100 % (limit 10 %)");
        assert_eq!(shown("instance_p99 > 50ms", 1.5e9), "instance_p99 1.50 s (limit 50 ms)");
        assert_eq!(shown("rate < 1000", 812.34), "rate 812.3 (at least 1,000)");
        assert_eq!(shown("errors > 3", 4.0), "errors 4 (limit 3)");
        assert_eq!(
            shown("rate worse than the baseline by more than 10 %", 90.25),
            "rate 90.2 (worse than the baseline by more than 10 %)"
        );
        let unmeasured =
            |condition: &str| super::condition(&Checked { condition: condition.to_owned(), value: None });
        assert_eq!(unmeasured("read_p50 > 1s"), "read_p50 not measured (limit 1 s)");
        assert_eq!(unmeasured("instances < 1"), "no instance came to its end");
    }

    #[test]
    fn missed_starts_are_blamed_on_who_missed_them() {
        let cure = |late, dropped| cure_of_missed(&Counts { late, dropped, ..Counts::default() });
        assert!(cure(5, 1).starts_with("the generator was late, not the server"));
        assert!(cure(1, 5).starts_with("too many instances were under way"));
    }
}
