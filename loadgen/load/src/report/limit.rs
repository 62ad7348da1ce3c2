//! The result of a search for the limit in words.

use std::fmt::Write as _;

use super::table::time;
use crate::limit::{Limit, Probe};

/// An interval that is a larger share of the limit than this says little.
const WIDE: f64 = 0.25;

/// The result, the verdict first.
#[must_use]
pub fn text(limit: &Limit) -> String {
    let mut text = String::new();
    write(&mut text, limit).expect("writing to a string does not fail");
    text
}

fn write(text: &mut String, limit: &Limit) -> std::fmt::Result {
    let judged = &limit.judged;
    writeln!(text, "verdict: {}: {}", limit.verdict, judged.line())?;
    judged.reasons.iter().try_for_each(|reason| writeln!(text, "  - {reason}"))?;
    for probe in &limit.probes {
        writeln!(text, "  {}", line(probe))?;
    }
    if limit.interrupted {
        writeln!(text, "interrupted before its time")?;
    }
    writeln!(text, "{}", found(limit))?;
    doubts(limit).iter().try_for_each(|doubt| writeln!(text, "  - {doubt}"))
}

/// The result, in one line.
#[must_use]
pub fn found(limit: &Limit) -> String {
    let conditions = limit.conditions.join(" and ");
    match (limit.rate, limit.between) {
        (Some(rate), Some([low, high])) => format!(
            "limit for {conditions}: {rate:.0} instances/s, between {low:.0} and {high:.0} ({:.1} % confidence, \
             {} searches)",
            100.0 * limit.confidence,
            limit.searches.len()
        ),
        _ if limit.searches.is_empty() => format!("limit for {conditions}: none found"),
        _ => {
            let ended = limit.searches.len();
            let rates: Vec<String> =
                limit.searches.iter().map(|found| format!("{:.0}", found.held)).collect();
            let why = if limit.interrupted { "it was interrupted" } else { "no rate held" };
            format!(
                "limit for {conditions}: not known: {why} in search {}; the {} before found {} instances/s",
                ended + 1,
                if ended == 1 { "one".to_owned() } else { ended.to_string() },
                rates.join(", ")
            )
        }
    }
}

/// The reasons why the result is worth less than its confidence says, in words.
#[must_use]
pub fn doubts(limit: &Limit) -> Vec<String> {
    let mut doubts = Vec::new();
    if limit.unsettled() > 0 {
        doubts.push(format!(
            "{} of {} searches did not settle: the same rate now held and now did not; make probes longer or the \
             machine quieter",
            limit.unsettled(),
            limit.searches.len()
        ));
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
    let latency = instance.map_or_else(String::new, |latency| {
        format!("  p50 {}  p99 {}", time(latency.p50 as f64), time(latency.p99 as f64))
    });
    let says = if *held { "holds".to_owned() } else { format!("does not hold: {}", broke.join(", ")) };
    format!("search {repeat}: {rate:.1}/s asked for, {done:.1}/s done{latency}  {says}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Counts, Figures};
    use crate::limit::{LimitRequest, ProbeResult, find};
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
            find(&profile, &wanted, probe, |_| {}).await.unwrap()
        };
        let none = after(2).await;
        assert_eq!((none.interrupted, found(&none)), (true, "limit for rate > 10: none found".to_owned()));
        let mut some = after(200).await;
        some.interrupted = true;
        some.searches.truncate(2);
        some.rate = None;
        let says = found(&some);
        let expected = "limit for rate > 10: not known: it was interrupted in search 3; the 2 before found ";
        assert!(says.starts_with(expected) && says.ends_with(" instances/s"), "{says}");
    }
}
