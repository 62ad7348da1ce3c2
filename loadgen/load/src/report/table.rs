//! The result of a load for people: whether it passed and whether its instances were correct, then rates,
//! latencies, and what went wrong.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use comfy_table::{LineStyle, TableStyle};
use stickycas_harness::host::Host;
use stickycas_harness::report::grid::{align_right, counted, grid, leave_out, width, wrapped};
use stickycas_model::judge::Outcome;
use stickycas_proto::v1::RefusalReason;

use super::words::{condition, cure_of_missed, time, value};
use crate::baseline::Comparison;
use crate::figures::{Counts, Latency, Metric, Row};
use crate::measure::{OperationOutcome, Party};
use crate::result::LoadResult;

/// The styles of what passed, what failed, and what is neither.
struct Styles {
    good: Style,
    bad: Style,
    neither: Style,
}

/// The result with colours.
#[must_use]
pub fn coloured(result: &LoadResult) -> String {
    let bold = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
    write(
        result,
        &Styles { good: bold(AnsiColor::Green), bad: bold(AnsiColor::Red), neither: bold(AnsiColor::Yellow) },
    )
}

/// The result without colours.
#[must_use]
pub fn plain(result: &LoadResult) -> String {
    write(result, &Styles { good: Style::new(), bad: Style::new(), neither: Style::new() })
}

fn write(result: &LoadResult, styles: &Styles) -> String {
    let mut text = String::new();
    let written = outcome(&mut text, result, styles)
        .and_then(|()| setting(&mut text, result))
        .and_then(|()| rates(&mut text, result))
        .and_then(|()| latencies(&mut text, result))
        .and_then(|()| failures(&mut text, result))
        .and_then(|()| baseline(&mut text, result));
    written.expect("writing to a string does not fail");
    text
}

/// The conditions that failed the load, those that did not, and what its instances show; a promise that broke
/// comes before them.
fn outcome(
    text: &mut String,
    result: &LoadResult,
    Styles { good, bad, neither }: &Styles,
) -> std::fmt::Result {
    let is_violation = result.verdict == Outcome::Violation;
    if is_violation {
        correctness(text, result, bad)?;
    }
    for failed in &result.failed {
        writeln!(text, "{bad}FAILED{bad:#}: {}", condition(failed))?;
        if failed.condition.starts_with(&Metric::Missed.to_string()) {
            writeln!(text, "  {}", cure_of_missed(&result.figures.counts))?;
        }
    }
    for passed in &result.passed {
        writeln!(text, "{good}ok{good:#}: {}", condition(passed))?;
    }
    match result.verdict {
        Outcome::Violation => Ok(()),
        Outcome::Valid => correctness(text, result, good),
        Outcome::Outside | Outcome::Unknown => correctness(text, result, neither),
    }?;
    if let Some(why) = &result.cut_short {
        writeln!(text, "{neither}{why}{neither:#} before its time")?;
    }
    result.warnings.iter().try_for_each(|warning| writeln!(text, "warning: {warning}"))
}

fn correctness(text: &mut String, result: &LoadResult, style: &Style) -> std::fmt::Result {
    let judged = &result.judged;
    writeln!(text, "correctness: {style}{}{style:#}", judged.line())?;
    if judged.histories + judged.histories_lost > 0 {
        write!(text, "  {} judged by the server's whole history", judged.histories)?;
        let lost = judged.histories_lost;
        writeln!(text, "{}", if lost > 0 { format!("; {lost} histories lost") } else { String::new() })?;
    }
    judged.reasons.iter().try_for_each(|reason| writeln!(text, "  - {reason}"))
}

fn setting(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    writeln!(text, "{} (seed {}), began {}", result.name, result.seed, result.began)?;
    let hosts = result.hosts.iter().map(Host::line);
    let servers = result.servers.iter().map(|server| format!("server: {}", server.line()));
    hosts.chain(servers).try_for_each(|line| text.write_str(&wrapped(&line, width(), "", "  ")))
}

fn rates(text: &mut String, result: &LoadResult) -> std::fmt::Result {
    let figures = &result.figures;
    let Counts { planned, late, dropped, begun, done, .. } = figures.counts;
    writeln!(
        text,
        "{:.1} instances/s, {:.0} accesses/s in {:.1} s",
        figures.rate, figures.access_rate, figures.seconds
    )?;
    write!(text, "{done} of {begun} instances done, {}", counted(figures.counts.errors(), "error"))?;
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
    let mut table = grid(["latency", "count", "p50", "p90", "p99", "p99.9", "max"]);
    // Without lines around its columns it fits into 80 characters.
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('\u{2500}')));
    for Row { label, latency } in rows {
        let by = if label.party == Party::Byzantine { "Byzantine " } else { "" };
        let how =
            if label.ended == OperationOutcome::Done { String::new() } else { format!(" {}", label.ended) };
        let Latency { count, p50, p90, p99, p999, max, .. } = *latency;
        let points = [p50, p90, p99, p999, max].map(|nanos| time(nanos as f64));
        let first = [format!("{by}{}{how}", label.measure.name()), count.to_string()];
        table.add_row(first.into_iter().chain(points));
    }
    align_right(&mut table, 1..7);
    leave_out(&mut table, &[5, 3]);
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
        let shown = |of: f64| figure.parse().map_or_else(|()| of.to_string(), |figure| value(figure, of));
        writeln!(text, "baseline: {figure} {} -> {} ({change:+.1} %{says})", shown(*before), shown(*now))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::figures::Figures;
    use crate::measure::{Histograms, Label, Measure, Messages, empty};
    use crate::profile::{Flags, Profile};
    use crate::recorder::Recorder;
    use crate::verdicts::VerdictCounts;
    use crate::{LoadOutcome, Measurement};

    /// A load with these starts, of which all ended well.
    fn result(planned: u64, late: u64) -> LoadResult {
        let profile = Profile::load(None, &Flags::of(&[("rate", "30"), ("seed", "1")])).unwrap();
        let mut histograms = Histograms::new();
        let correct = Measure::ALL.map(|measure| Label::own(measure, OperationOutcome::Done));
        let append = |party, ended| Label { measure: Measure::Append, party, ended };
        let longest = [Party::Correct, Party::Byzantine].map(|party| append(party, OperationOutcome::Limit));
        for label in correct.into_iter().chain(longest) {
            let histogram = histograms.entry(label).or_insert_with(empty);
            histogram.record_n(99_940_000, 12_345_678).unwrap();
        }
        let counts = Counts { planned, late, ..Counts::default() };
        let loaded = LoadOutcome {
            figures: Figures::of(&histograms, counts, 10.0, (planned, 0)),
            recorder: Recorder::new(SystemTime::UNIX_EPOCH),
            judged: VerdictCounts { valid: planned, ..VerdictCounts::default() },
            messages: Messages::new(),
            evidence: Vec::new(),
            server: None,
            cut_short: None,
        };
        Measurement::of(&profile, loaded, None).result
    }

    fn first_lines(result: &LoadResult, lines: usize) -> Vec<String> {
        plain(result).lines().take(lines).map(str::to_owned).collect()
    }

    #[test]
    fn a_failed_load_says_so_first_and_correctness_second() {
        let expected = [
            "FAILED: missed_rate 16.4 % (limit 1 %)",
            "  the generator was late, not the server: fewer programs, or --late-after 50ms",
            "ok: error_rate 0 % (limit 1 %)",
            "correctness: VALID (360 of 360)",
        ];
        assert_eq!(first_lines(&result(360, 59), 4), expected);
        let passed = ["ok: error_rate 0 % (limit 1 %)", "ok: missed_rate 0 % (limit 1 %)"];
        assert_eq!(first_lines(&result(360, 0), 2), passed);
    }

    #[test]
    fn a_broken_promise_comes_before_every_condition() {
        let mut result = result(360, 59);
        result.judged.violation = 2;
        result.judged.reasons = vec!["instance 3: why".to_owned()];
        result.verdict = result.judged.verdict();
        let expected = ["correctness: VIOLATION (2 of 362)", "  - instance 3: why"];
        assert_eq!(first_lines(&result, 2), expected);
        assert!(first_lines(&result, 3)[2].starts_with("FAILED: missed_rate"));
    }

    #[test]
    fn the_table_fits_into_80_columns() {
        let text = plain(&result(10, 0));
        let is_of_table = |line: &&str| line.contains('\u{2500}') || line.ends_with(" ms ");
        let rows: Vec<&str> = text.lines().filter(is_of_table).collect();
        assert!(rows.len() > 8, "{text}");
        rows.iter().for_each(|row| assert!((70..=80).contains(&row.chars().count()), "{row}"));
    }
}
