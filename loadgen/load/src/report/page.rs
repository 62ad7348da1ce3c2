//! The result of a load: one page with the verdict, rates and latencies over time, and the latency curve.

use maud::{Markup, html};
use stickycas_harness::command_line::quoted;
use stickycas_harness::report::html::chart::{
    Frame, Scale, Series, Tick, bottom_axis, left_axis, line, mark,
};
use stickycas_harness::report::html::document::Document;
use stickycas_harness::report::html::figure::{Figure, Table};
use stickycas_harness::report::html::words::{counted, grouped};
use stickycas_model::judge::Outcome;

use super::table::{shown_for, time};
use crate::Measurement;
use crate::figures::{Answered, Row, answered};
use crate::measure::{Measure, Party};
use crate::recorder::Second;
use crate::result::LoadResult;

const FRAME: Frame = Figure::FRAME;
/// Shorter rows have no rate in the plot, unless all are.
const LEAST_OF_A_SECOND: f64 = 0.5;
/// The most points of a line that are marked.
const MARKS: usize = 12;
/// The measures of the latency curve, in the order of their series.
const CURVES: [Measure; 5] =
    [Measure::Instance, Measure::Service, Measure::Create, Measure::Append, Measure::Read];
/// Percentiles that the latency curve has ticks at, with how they are written.
const QUANTILES: [(f64, &str); 6] =
    [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];

pub(super) fn page(measured: &Measurement) -> Markup {
    let result = &measured.result;
    let figures = [rate(measured), latency(measured), curve(measured), in_flight(measured)];
    Document {
        kind: "load",
        name: &result.name,
        header: html! { (verdict(result)) (totals(result)) (made(result)) },
        main: html! {
            section { h2 { "Latencies" } (latencies(result).markup()) }
            @if !result.figures.failures().is_empty() {
                section { h2 { "Refused and failed" } (failures(result).markup()) }
            }
            section {
                h2 { "Over time" }
                div class="figures" { @for (number, figure) in (1..).zip(&figures) { (figure.markup(number)) } }
            }
            (profiles(&result.profiles))
        },
        footer: html! {
            "Instance latency counts from the planned start of an instance to the last decision of a correct process; "
            "service time from its actual start. The same data are in result.json, seconds.csv and latencies.hlog "
            "beside this file."
        },
    }
    .markup()
}

/// The profiles as they were run.
pub(super) fn profiles(profiles: &[String]) -> Markup {
    html! {
        section {
            h2 { "Profile" }
            @for profile in profiles { div class="scroll" tabindex="0" { pre { code { (profile) } } } }
        }
    }
}

fn verdict(result: &LoadResult) -> Markup {
    let judged = &result.judged;
    let started = counted(judged.started(), "started instance");
    let class = match (result.verdict, result.failed.is_empty()) {
        (Outcome::Valid, true) => "verdict good",
        (Outcome::Violation, _) | (_, false) => "verdict bad",
        _ => "verdict none",
    };
    html! {
        div class=(class) {
            p class="big" { span { (result.verdict) } " " (grouped(judged.instances())) " of " (started) " judged" }
            ul {
                @for warning in &result.warnings { li { (warning) } }
                @for failed in &result.failed {
                    li {
                        "condition failed: " code { (failed.condition) } ", "
                        @match failed.value {
                            Some(value) => (shown_for(&failed.condition, value)),
                            None => "nothing was measured",
                        }
                    }
                }
                @for passed in &result.passed {
                    li { "passed: not " code { (passed.condition) } ", " (shown_for(&passed.condition, passed.value)) }
                }
                @for reason in &judged.reasons { li { (reason) } }
            }
            @if let Some(why) = &result.cut_short { p class="unfinished" { (why) " before its time." } }
        }
    }
}

fn totals(result: &LoadResult) -> Markup {
    let counts = &result.figures.counts;
    let total = |name: &str, value: String| html! { div { dt { (name) } dd { (value) } } };
    html! {
        dl class="totals" {
            (total("instances a second", format!("{:.1}", result.figures.rate)))
            (total("accesses a second", grouped(result.figures.access_rate as u64)))
            (total("done", grouped(counts.done)))
            (total("errors", grouped(counts.errors())))
            (total("starts missed", grouped(counts.missed())))
            (total("whole histories judged", grouped(result.judged.histories)))
        }
    }
}

fn made(result: &LoadResult) -> Markup {
    html! {
        dl class="made" {
            dt { "Seed" } dd { (result.seed) }
            dt { "Began" } dd { (result.began) }
            dt { "Measured" } dd { (format!("{:.1} s", result.figures.seconds)) }
            @for host in &result.hosts {
                dt { "Machine" } dd { (host.line()) }
                dt { "Server" } dd { (host.server.as_deref().unwrap_or("in the same process")) }
                dt { "Command" } dd { code { (quoted(&host.arguments)) } }
            }
            @for server in &result.servers {
                dt { "Server\u{2019}s side" } dd { (server.line()) }
                @if !server.counted.is_empty() {
                    dt { "It counted" } dd {
                        @for (place, (what, count)) in server.counted.iter().enumerate() {
                            @if place > 0 { ", " } (what) " " (grouped(*count))
                        }
                    }
                }
            }
        }
    }
}

fn latencies(result: &LoadResult) -> Table {
    let row = |Row { label, latency }: &Row| {
        let by = if label.party == Party::Byzantine { "Byzantine" } else { "correct" };
        let words =
            [label.measure.name().to_owned(), by.to_owned(), label.ended.to_string(), grouped(latency.count)];
        let points = [latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max];
        words.into_iter().chain(points.map(|nanos| time(nanos as f64))).collect()
    };
    let answered = result.figures.latencies.iter().filter(|row| row.label.ended.is_answer());
    Table {
        head: vec!["of", "by", "ended", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max"],
        rows: answered.map(row).collect(),
    }
}

fn failures(result: &LoadResult) -> Table {
    let row = |(label, count): (crate::measure::Label, u64)| {
        let first = result.messages.get(&label.ended).cloned().unwrap_or_default();
        vec![label.measure.name().to_owned(), label.ended.to_string(), grouped(count), first]
    };
    let rows = result.figures.failures().into_iter().map(row).collect();
    Table { head: vec!["of", "why", "how often", "the first, in words"], rows }
}

/// A line with its name and its points.
type Line = (&'static str, Vec<(f64, f64)>);

/// The unit of a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Things of this name, from 0 on.
    Count(&'static str),
    /// Microseconds, by their logarithm.
    Latency,
}

impl Unit {
    fn title(self) -> &'static str {
        match self {
            Self::Count(things) => things,
            Self::Latency => "latency",
        }
    }

    fn scale(self, values: impl Iterator<Item = f64> + Clone) -> Scale {
        let highest = values.clone().fold(1.0, f64::max);
        match self {
            Self::Count(_) => Scale::linear((0.0, highest), (FRAME.bottom, FRAME.top)),
            Self::Latency => {
                let lowest = values.filter(|value| *value > 0.0).fold(highest, f64::min);
                Scale::logarithmic((lowest.max(1.0), highest), (FRAME.bottom, FRAME.top))
            }
        }
    }

    fn ticks(self, scale: &Scale) -> Vec<Tick> {
        let mut ticks = scale.whole_ticks(6);
        if self == Self::Latency {
            for tick in &mut ticks {
                tick.label = tick.label.parse().map_or_else(|_| tick.label.clone(), round_time);
            }
        }
        ticks
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Count(_) => format!("{value:.1}"),
            Self::Latency => time(value * 1e3),
        }
    }
}

/// Microseconds that are a round number of some unit.
fn round_time(micros: f64) -> String {
    match micros {
        ..1e3 => format!("{micros} us"),
        ..1e6 => format!("{} ms", micros / 1e3),
        _ => format!("{} s", micros / 1e6),
    }
}

/// The seconds in which rates count: those of the warm-up have nothing but zeros.
fn measured_seconds(measured: &Measurement) -> Vec<Second> {
    let from = measured.result.measured_from;
    let counts = |second: &&Second| second.second > from + second.length / 2.0;
    let counted: Vec<Second> = measured.seconds.iter().filter(counts).cloned().collect();
    if counted.is_empty() { measured.seconds.clone() } else { counted }
}

/// A line of a figure second by second.
fn over(seconds: &[Second], name: &'static str, value: impl Fn(&Second) -> f64) -> Line {
    (name, seconds.iter().map(|second| (second.second, value(second))).collect())
}

fn rate(measured: &Measurement) -> Figure {
    let per_second = |count: u64, second: &Second| count as f64 / second.length.max(1e-3);
    // The rest of a second at the end says little, and its rate may be anything.
    let seconds = measured_seconds(measured);
    let longest = seconds.iter().map(|second| second.length).fold(0.0, f64::max);
    let least = longest.min(LEAST_OF_A_SECOND);
    let whole: Vec<Second> = seconds.into_iter().filter(|second| second.length >= least).collect();
    let lines = [
        over(&whole, "done", |second| per_second(second.done, second)),
        over(&whole, "begun", |second| per_second(second.planned, second)),
    ];
    let caption =
        "Instances that began and that came to their end in each second, without those of the warm-up.";
    drawn(measured, "rate", "Instances a second", Unit::Count("instances/s"), caption, &lines)
}

fn latency(measured: &Measurement) -> Figure {
    let micros = |millis: f64| millis * 1e3;
    let busy: Vec<Second> = measured_seconds(measured).into_iter().filter(|second| second.done > 0).collect();
    let lines = [
        over(&busy, "p50", |second| micros(second.p50_ms)),
        over(&busy, "p99", |second| micros(second.p99_ms)),
        over(&busy, "max", |second| micros(second.max_ms)),
    ];
    let caption = "Latency of the instances that came to their end in each second, from their planned start.";
    drawn(measured, "latency", "Instance latency over time", Unit::Latency, caption, &lines)
}

fn in_flight(measured: &Measurement) -> Figure {
    let seconds = measured_seconds(measured);
    let lines = [
        over(&seconds, "in flight", |second| second.in_flight as f64),
        over(&seconds, "errors", |second| second.errors as f64),
        over(&seconds, "starts missed", |second| (second.late + second.dropped) as f64),
    ];
    let caption = "Instances under way at the end of each second; errors and missed starts within it.";
    drawn(
        measured,
        "in-flight",
        "Under way, errors, missed starts",
        Unit::Count("instances"),
        caption,
        &lines,
    )
}

/// A figure of lines over the seconds that count.
fn drawn(measured: &Measurement, id: &str, title: &str, unit: Unit, caption: &str, lines: &[Line]) -> Figure {
    let seconds = measured_seconds(measured);
    let first = seconds.first().map_or(0.0, |second| (second.second - second.length).max(0.0));
    let last = seconds.last().map_or(1.0, |second| second.second);
    let x = Scale::linear((first, last), (FRAME.left, FRAME.right));
    let rows = lines.first().map_or(0, |(_, points)| points.len());
    let row = |place: usize| {
        let values =
            lines.iter().map(|(_, points)| points.get(place).map_or(String::new(), |(_, y)| unit.show(*y)));
        std::iter::once(format!("{:.2}", lines[0].1[place].0)).chain(values).collect()
    };
    let table = Table {
        head: std::iter::once("second").chain(lines.iter().map(|(name, _)| *name)).collect(),
        rows: (0..rows).map(row).collect(),
    };
    let content = graph(unit, lines, (&x, &x.whole_ticks(10), "seconds"));
    Figure::plot(id, title, caption, &legend(lines), &content, table)
}

fn legend(lines: &[Line]) -> Vec<(Series, &'static str)> {
    lines.iter().enumerate().map(|(place, (name, _))| (Series(place), *name)).collect()
}

/// The axes and the lines.
fn graph(unit: Unit, lines: &[Line], (x, x_ticks, x_title): (&Scale, &[Tick], &str)) -> Markup {
    let y = unit.scale(lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y));
    let places = |points: &[(f64, f64)]| -> Vec<(f64, f64)> {
        points.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect()
    };
    html! {
        (left_axis(FRAME, &unit.ticks(&y), unit.title()))
        (bottom_axis(FRAME, x_ticks, x_title))
        @for (series, (_, points)) in lines.iter().enumerate() {
            @let places = places(points);
            (line(&places, Series(series)))
            @for place in places.iter().skip(series).step_by(places.len().div_ceil(MARKS).max(1)) {
                (mark(*place, Series(series)))
            }
        }
    }
}

/// The N of "one in N" beyond a quantile: this scale spreads the high percentiles out.
fn one_in(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}

fn curve(measured: &Measurement) -> Figure {
    // By how many requests one is slower: the axis is stretched towards the slowest.
    let points = |measure| -> Vec<(f64, f64)> {
        let histogram = answered(&measured.histograms, measure);
        let steps = histogram.iter_quantiles(4);
        let points = steps.filter(|step| step.quantile() < 1.0);
        points.map(|step| (one_in(step.quantile()), step.value_iterated_to() as f64 / 1e3)).collect()
    };
    let shown = |measure: &Measure| {
        measured.result.figures.answered.iter().any(|row: &Answered| row.measure == *measure)
    };
    let curves: Vec<Line> =
        CURVES.into_iter().filter(shown).map(|measure| (measure.name(), points(measure))).collect();
    let farthest = curves.iter().flat_map(|(_, points)| points).map(|(x, _)| *x).fold(100.0, f64::max);
    let x = Scale::logarithmic((1.0, farthest), (FRAME.left, FRAME.right));
    let ticks: Vec<Tick> = QUANTILES
        .iter()
        .filter(|(quantile, _)| one_in(*quantile) <= farthest * 1.001)
        .map(|(quantile, label)| Tick { at: x.at(one_in(*quantile)), label: (*label).to_owned() })
        .collect();
    let caption = "The latency that so many percent of the requests did not exceed, by answers to correct processes. \
                   The axis is stretched towards the slowest.";
    let content = graph(Unit::Latency, &curves, (&x, &ticks, "percentile"));
    Figure::plot("curve", "Latency by percentile", caption, &legend(&curves), &content, quantiles(measured))
}

/// The curve in numbers, at its ticks: curves have points of their own elsewhere.
fn quantiles(measured: &Measurement) -> Table {
    let row = |answered: &Answered| {
        let latency = &answered.latency;
        let points = [latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max];
        std::iter::once(answered.measure.name().to_owned())
            .chain(points.map(|nanos| time(nanos as f64)))
            .collect()
    };
    Table {
        head: vec!["of", "50", "90", "99", "99.9", "99.99", "100"],
        rows: measured.result.figures.answered.iter().map(row).collect(),
    }
}
