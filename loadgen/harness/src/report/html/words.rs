//! Numbers as a reader wants them.

use std::time::{Duration, SystemTime};

pub use crate::report::table::grouped;

/// The last second that has four digits for its year: 9999-12-31T23:59:59Z.
const LAST_SECOND: u64 = 253_402_300_799;

/// "1 run", "2 runs".
pub fn counted(number: u64, thing: &str) -> String {
    format!("{}\u{a0}{thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A share in percent: less than all never reads as 100, more than nothing never as 0. `None`: of nothing.
pub fn percent(part: u64, whole: u64) -> Option<String> {
    let share = 100.0 * part as f64 / whole as f64;
    Some(match (part, whole) {
        (_, 0) => return None,
        (0, _) => "0".to_owned(),
        (part, whole) if part >= whole => "100".to_owned(),
        _ if share < 1.0 => "<1".to_owned(),
        _ if share > 99.0 => ">99".to_owned(),
        _ => format!("{share:.0}"),
    })
}

/// A moment given in seconds since 1970, in UTC.
pub fn moment(seconds: u64) -> String {
    let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
    humantime::format_rfc3339_seconds(moment).to_string()
}

/// A time that was spent.
pub fn spent(millis: u64) -> String {
    // Above ten seconds milliseconds do not matter.
    let shown = if millis < 10_000 { millis } else { millis / 1000 * 1000 };
    humantime::format_duration(Duration::from_millis(shown)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_stands_beside_its_thing() {
        assert_eq!([1, 2000].map(|number| counted(number, "run")), ["1\u{a0}run", "2,000\u{a0}runs"]);
    }

    #[test]
    fn rounding_never_claims_all_or_nothing() {
        let texts = [(0, 9), (1, 1000), (1, 2), (999, 1000), (9, 9)].map(|(a, b)| percent(a, b).unwrap());
        assert_eq!(texts, ["0", "<1", "50", ">99", "100"]);
        assert_eq!(percent(0, 0), None);
    }

    #[test]
    fn any_number_is_some_moment() {
        assert_eq!(moment(1_790_000_000), "2026-09-21T14:13:20Z");
        assert!(moment(u64::MAX).starts_with("9999"));
        assert_eq!([950, 83_400].map(spent), ["950ms", "1m 23s"]);
    }
}
