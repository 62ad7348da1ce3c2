//! The result of a load for people: the verdict first, then rates, latencies, and what went wrong.

use std::fmt::Write as _;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use stickycas_harness::report::table::{align_right, grid};
use stickycas_model::judge::Outcome;
use stickycas_proto::v1::RefusalReason;

use crate::baseline::Comparison;
use crate::fail_if::Checked;
use crate::figures::{Counts, Latency, Metric, Row};
use crate::measure::{OperationOutcome, Party};
use crate::result::LoadResult;

/// The result with colours.
#[must_use]
pub fn coloured(result: &LoadResult) -> String {
    let colour = match result.verdict {
        Outcome::Valid => AnsiColor::Green,
        Outcome::Outside | Outcome::Unknown => AnsiColor::Yellow,
        Outcome::Violation => AnsiColor::Red,
    };
    write(result, Style::new().bold().fg_color(Some(colour.into())))
}

/// The result without colours.
#[must_use]
pub fn plain(result: &LoadResult) -> String {
    write(result, Style::new())
}

fn write(result: &LoadResult, emphasis: Style) -> String {
    let mut text = String::new();
    let written = verdict(&mut text, result, emphasis)
        .and_then(|()| rates(&mut text, result))
        .and_then(|()| latencies(&mut text, result))
        .and_then(|()| failures(&mut text, result))
        .and_then(|()| baseline(&mut text, result))
        .and_then(|()| conditions(&mut text, result));
    written.expect("writing to a string does not fail");
    text
}

fn verdict(text: &mut String, result: &LoadResult, emphasis: Style) -> std::fmt::Result {
    let judged = &result.judged;
    write!(text, "verdict: {emphasis}{}{emphasis:#}: {}", result.verdict, judged.line())?;
    write!(text, "; the whole history of {}", judged.histories)?;
    if judged.histories_lost > 0 {
        write!(text, ", {} histories lost", judged.histories_lost)?;
    }
    let failed: Vec<&str> = result.failed.iter().map(|failed| failed.condition.as_str()).collect();
    if !failed.is_empty() {
        write!(text, "; FAILED: {}", failed.join(", "))?;
    }
    writeln!(text)?;
    judged.reasons.iter().try_for_each(|reason| writeln!(text, "  - {reason}"))?;
    result.warnings.iter().try_for_each(|warning| writeln!(text, "warning: {warning}"))?;
    writeln!(text, "{} (seed {}), began {}", result.name, result.seed, result.began)?;
    for host in &result.hosts {
        writeln!(text, "{}", host.line())?;
    }
    for server in &result.servers {
        writeln!(text, "server: {}", server.line())?;
    }
    if let Some(why) = &result.cut_short {
        writeln!(text, "{why} before its time")?;
    }
    Ok(())
}

fn rates(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    let figures = &result.figures;
    let Counts { planned, late, dropped, begun, done, .. } = figures.counts;
    writeln!(
        text,
        "{:.1} instances/s, {:.0} accesses/s in {:.1} s",
        figures.rate, figures.access_rate, figures.seconds
    )?;
    write!(text, "{done} of {begun} instances done, {} errors", figures.counts.errors())?;
    if late + dropped > 0 {
        let share = 100.0 * figures.counts.missed_rate();
        write!(text, "; of {} starts {late} late, {dropped} dropped ({share:.2} %)", planned + dropped)?;
    }
    writeln!(text)
}

fn latencies(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    let rows: Vec<&Row> = result.figures.latencies.iter().filter(|row| row.label.ended.is_answer()).collect();
    if rows.is_empty() {
        return writeln!(text, "nothing was measured");
    }
    let mut table = grid(["latency", "ended", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
    for Row { label, latency } in rows {
        let of = match label.party {
            Party::Correct => label.measure.name().to_owned(),
            Party::Byzantine => format!("{} (Byzantine)", label.measure.name()),
        };
        let Latency { count, p50, p90, p99, p999, p9999, max, .. } = *latency;
        let points = [p50, p90, p99, p999, p9999, max].map(|nanos| time(nanos as f64));
        table.add_row([of, label.ended.to_string(), count.to_string()].into_iter().chain(points));
    }
    align_right(&mut table, 2..9);
    writeln!(text, "{table}")
}

fn failures(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    let failures = result.figures.failures();
    if failures.is_empty() && result.messages.is_empty() {
        return Ok(());
    }
    writeln!(text, "refused and failed:")?;
    for (label, count) in &failures {
        let by = if label.party == Party::Byzantine { " (Byzantine)" } else { "" };
        writeln!(text, "  {count:>10}  {}{by}: {}", label.measure.name(), label.ended)?;
    }
    for (ended, message) in &result.messages {
        writeln!(text, "  the first {ended}: {message}")?;
    }
    let mut told: Vec<&str> = failures.iter().filter_map(|(label, _)| advice(label.ended)).collect();
    told.dedup();
    told.iter().try_for_each(|advice| writeln!(text, "  {advice}"))?;
    for server in &result.servers {
        let counted: Vec<String> =
            server.counted.iter().map(|(what, count)| format!("{what} {count}")).collect();
        if !counted.is_empty() {
            writeln!(text, "the server counted meanwhile, whoever's it was: {}", counted.join(", "))?;
        }
    }
    Ok(())
}

/// The advice on a refusal that has more to do with the limits of the server than with its power.
fn advice(ended: OperationOutcome) -> Option<&'static str> {
    match ended {
        OperationOutcome::Refused(RefusalReason::TooManyInstances) => Some(
            "either the server had no time to spare, and sheds what it cannot do; or too many live: finished \
             instances count until their retention ends, so start the server with a short --retention",
        ),
        OperationOutcome::Refused(RefusalReason::RateExceeded) => Some(
            "a principal may send only so much: give more rosters, or start the server with more \
             --requests-per-second",
        ),
        _ => None,
    }
}

fn baseline(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    for Comparison { figure, before, now, worse } in &result.baseline {
        let change = if *before > 0.0 { 100.0 * (now / before - 1.0) } else { 0.0 };
        let says = if *worse { ", worse" } else { "" };
        writeln!(
            text,
            "baseline: {figure} {} -> {} ({change:+.1} %{says})",
            shown(figure, *before),
            shown(figure, *now)
        )?;
    }
    Ok(())
}

fn conditions(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    let shown = |Checked { condition, value }: &Checked| {
        let name = condition.split(['<', '>', ' ']).next().unwrap_or_default();
        value.map_or_else(|| "nothing was measured".to_owned(), |value| shown(name, value))
    };
    for failed in &result.failed {
        writeln!(text, "failed: {}: {}", failed.condition, shown(failed))?;
    }
    for passed in &result.passed {
        writeln!(text, "passed: not {}: {}", passed.condition, shown(passed))?;
    }
    Ok(())
}

/// The value of the figure with this name for people.
fn shown(figure: &str, value: f64) -> String {
    let is_latency = figure.parse().is_ok_and(Metric::is_latency);
    if is_latency { time(value) } else { number(value) }
}

/// Nanoseconds for people.
#[must_use]
pub fn time(nanos: f64) -> String {
    let duration = Duration::from_nanos(nanos.max(0.0) as u64);
    match nanos {
        ..1e6 => format!("{:.0} us", nanos / 1e3),
        ..1e8 => format!("{:.2} ms", nanos / 1e6),
        ..1e9 => format!("{:.0} ms", nanos / 1e6),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

/// A count or a share for people.
fn number(number: f64) -> String {
    if number.fract() == 0.0 || number >= 1000.0 { format!("{number:.0}") } else { format!("{number:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_as_many_digits_as_say_something() {
        let shown = [850.0, 12_345.0, 1_234_567.0, 345_678_901.0, 12_345_678_901.0].map(time);
        assert_eq!(shown, ["1 us", "12 us", "1.23 ms", "346 ms", "12.35 s"]);
        assert_eq!([3.0, 0.0123].map(number), ["3", "0.0123"]);
    }
}
