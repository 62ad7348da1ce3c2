//! The result of a search for the limit in words.

use std::fmt::Write as _;
use std::time::Duration;

use stickycas_harness::report::table::grouped;

use super::words::{time, time_or_none};
use crate::figures::Latency;
use crate::limit::{Limit, LimitProgress, Probe};

/// An interval that is a larger share of the limit than this says little.
const WIDE: f64 = 0.25;

/// The result, the limit first.
#[must_use]
pub fn text(limit: &Limit) -> String {
    let mut text = String::new();
    write(&mut text, limit).expect("writing to a string does not fail");
    text
}

fn write(text: &mut String, limit: &Limit) -> std::fmt::Result {
    let judged = &limit.judged;
    writeln!(text, "{}", found(limit))?;
    doubts(limit).iter().try_for_each(|doubt| writeln!(text, "  - {doubt}"))?;
    if limit.interrupted {
        writeln!(text, "interrupted before its time")?;
    }
    writeln!(text, "correctness: {}", judged.line())?;
    judged.reasons.iter().try_for_each(|reason| writeln!(text, "  - {reason}"))?;
    limit.probes.iter().try_for_each(|probe| writeln!(text, "  {}", line(probe)))
}

/// The result, in one line.
#[must_use]
pub fn found(limit: &Limit) -> String {
    format!("limit for {}: {}", limit.conditions.join(" and "), rate(limit))
}

/// The rate that was found, and what it is worth.
#[must_use]
pub fn rate(limit: &Limit) -> String {
    let number = |rate: f64| grouped(rate.round() as u64);
    let of = limit.searches.len();
    let rates: Vec<String> = limit.searches.iter().map(|found| number(found.held)).collect();
    let (Some(rate), Some([low, high])) = (limit.rate, limit.between) else {
        if rates.is_empty() {
            return "none found".to_owned();
        }
        let why = if limit.interrupted { "it was interrupted" } else { "no rate held" };
        let before = if of == 1 { "one".to_owned() } else { of.to_string() };
        return format!(
            "not known: {why} in search {}; the {before} before found {}/s",
            of + 1,
            rates.join(", ")
        );
    };
    let interval = match of {
        1 => "one search: no interval".to_owned(),
        // Some search has no upper end.
        _ if limit.confidence <= 0.0 => format!("{of} searches: from {} on, no interval", number(low)),
        _ => {
            let confidence = 100.0 * limit.confidence;
            format!("{} to {} with {confidence:.1} % confidence, {of} searches", number(low), number(high))
        }
    };
    let unsettled = match limit.unsettled() {
        0 => String::new(),
        unsettled if of == 1 || unsettled == of => "; NOT SETTLED".to_owned(),
        unsettled => format!("; NOT SETTLED: {unsettled} of {of}"),
    };
    format!("{}/s ({interval}{unsettled})", number(rate))
}

/// How far it is; `probe` is how long a probe takes.
#[must_use]
pub fn progress(at: LimitProgress, probe: Duration) -> String {
    let LimitProgress { search, searches, probes_left } = at;
    format!("search {search} of {searches}, about {} left", about(probe * probes_left))
}

/// How long it will take, before it begins.
#[must_use]
pub fn estimate(at: LimitProgress, probe: Duration) -> String {
    let LimitProgress { searches, probes_left, .. } = at;
    let plural = if searches == 1 { "" } else { "es" };
    let (each, whole) = (time(probe.as_secs_f64() * 1e9), about(probe * probes_left));
    format!(
        "{searches} search{plural}, some {probes_left} probes of {each}: about {whole}, more if rates hold only \
         sometimes"
    )
}

/// A duration in its largest unit.
fn about(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..6_000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

/// The reasons why the result is worth less than its confidence says, in words.
#[must_use]
pub fn doubts(limit: &Limit) -> Vec<String> {
    let mut doubts = Vec::new();
    if limit.unsettled() > 0 {
        let open = limit.searches.iter().any(|found| found.failed.is_none());
        doubts.push(if open {
            "a search ended with every rate holding: begin with a higher --rate".to_owned()
        } else {
            format!(
                "{} of {} searches did not settle: the same rate now held and now did not; make probes longer or the \
                 machine quieter",
                limit.unsettled(),
                limit.searches.len()
            )
        });
    }
    if let (Some(rate), Some([low, high])) = (limit.rate, limit.between)
        && high - low > WIDE * rate
    {
        doubts.push(format!(
            "the interval is {:.0} % of the limit: whatever else the machine did weighs more than the rate",
            100.0 * (high - low) / rate
        ));
    }
    doubts
}

/// One probe in one line.
#[must_use]
pub fn line(probe: &Probe) -> String {
    let Probe { repeat, rate, done, held, broke, instance } = probe;
    let point = |point: fn(&Latency) -> u64| time_or_none(instance.as_ref().map(|it| point(it) as f64));
    let (p50, p99) = (point(|it| it.p50), point(|it| it.p99));
    let broke: Vec<String> = broke.iter().map(|condition| broken(condition)).collect();
    let says = if *held { "holds".to_owned() } else { format!("fails: {}", broke.join(", ")) };
    format!("search {repeat}: {rate:.1}/s asked, {done:.1}/s done  p50 {p50}  p99 {p99}  {says}")
}

/// The condition that a probe met instead of the one it should have kept: `instance_p99 >= 20ms`.
fn broken(condition: &str) -> String {
    match condition.strip_prefix("not ") {
        Some(wanted) if wanted.contains('<') => wanted.replacen('<', ">=", 1),
        Some(wanted) => wanted.replacen('>', "<=", 1),
        None => condition.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::judge::Outcome;

    use super::*;
    use crate::figures::{Counts, Figures};
    use crate::limit::{Found, LIMIT_VERSION, LimitRequest, ProbeResult, find};
    use crate::profile::{Flags, Profile};
    use crate::verdicts::VerdictCounts;

    #[tokio::test]
    async fn an_interrupt_keeps_what_the_searches_before_found() {
        let profile = Profile::load(None, &Flags::of(&[("rate", "50")])).unwrap();
        let wanted =
            LimitRequest { conditions: vec!["rate > 10".parse().unwrap()], repeats: 5, precision: 0.05 };
        let after = async |probes: usize| {
            let mut left = probes;
            let probe = |_| {
                let (rate, counts) = (
                    if left.is_multiple_of(3) { 5.0 } else { 20.0 },
                    Counts { begun: 1, done: 1, ..Counts::default() },
                );
                let figures = Figures { rate, counts, ..Figures::default() };
                let probed = ProbeResult { figures, judged: VerdictCounts::default() };
                left = left.saturating_sub(1);
                std::future::ready(Ok((left > 0).then_some(probed)))
            };
            find(&profile, &wanted, probe, |_, _| {}).await.unwrap()
        };
        let none = after(2).await;
        assert_eq!((none.interrupted, found(&none)), (true, "limit for rate > 10: none found".to_owned()));
        let mut some = after(200).await;
        some.interrupted = true;
        some.searches.truncate(2);
        some.rate = None;
        let says = found(&some);
        let expected = "limit for rate > 10: not known: it was interrupted in search 3; the 2 before found ";
        assert!(says.starts_with(expected) && says.ends_with("/s"), "{says}");
    }

    #[test]
    fn a_limit_that_did_not_settle_says_so() {
        let of = |searches: Vec<Found>| {
            let (rate, between) = (Some(2_499.4), Some([2_380.0, 2_620.0]));
            let confidence = if searches.len() == 1 { 0.0 } else { 0.75 };
            rate_of(&Limit { rate, between, confidence, searches, ..limit() })
        };
        let found = |settled| Found { held: 2_499.4, failed: Some(2_620.0), settled };
        assert_eq!(of(vec![found(false)]), "2,499/s (one search: no interval; NOT SETTLED)");
        assert_eq!(of(vec![found(true)]), "2,499/s (one search: no interval)");
        let interval = "2,380 to 2,620 with 75.0 % confidence, 3 searches";
        assert_eq!(of(vec![found(true); 3]), format!("2,499/s ({interval})"));
        let one = vec![found(true), found(false), found(true)];
        assert_eq!(of(one), format!("2,499/s ({interval}; NOT SETTLED: 1 of 3)"));
    }

    fn rate_of(limit: &Limit) -> String {
        let rate = rate(limit);
        assert_eq!(limit.is_settled(), !rate.contains("NOT SETTLED"), "{rate}");
        rate
    }

    fn limit() -> Limit {
        Limit {
            version: LIMIT_VERSION,
            verdict: Outcome::Valid,
            judged: VerdictCounts::default(),
            conditions: vec!["instance_p99 < 20ms".to_owned()],
            rate: None,
            between: None,
            confidence: 0.0,
            searches: Vec::new(),
            probes: Vec::new(),
            interrupted: false,
            profile: String::new(),
        }
    }

    #[test]
    fn what_is_left_is_told_in_its_largest_unit() {
        let at = LimitProgress { search: 2, searches: 5, probes_left: 36 };
        assert_eq!(progress(at, Duration::from_secs(10)), "search 2 of 5, about 6 min left");
        assert_eq!(progress(at, Duration::from_secs(2)), "search 2 of 5, about 72 s left");
        assert_eq!(
            estimate(at, Duration::from_mins(5)),
            "5 searches, some 36 probes of 300 s: about 3.0 h, more if rates hold only sometimes"
        );
    }

    #[test]
    fn a_probe_that_fails_says_what_was_the_case() {
        let probe = |instance, broke: &[&str]| Probe {
            repeat: 2,
            rate: 100.0,
            done: 0.0,
            held: broke.is_empty(),
            broke: broke.iter().map(ToString::to_string).collect(),
            instance,
        };
        assert_eq!(
            line(&probe(None, &["not instance_p99 < 20ms", "missed_rate > 0.01", "3 errors"])),
            "search 2: 100.0/s asked, 0.0/s done  p50 -  p99 -  fails: instance_p99 >= 20ms, missed_rate > 0.01, 3 errors"
        );
        let latency = Latency { p50: 1_234_567, p99: 12_345_678, ..Latency::default() };
        assert_eq!(
            line(&probe(Some(latency), &[])),
            "search 2: 100.0/s asked, 0.0/s done  p50 1.23 ms  p99 12.3 ms  holds"
        );
    }
}
