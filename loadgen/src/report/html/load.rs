//! The result of a load: one page with the verdict, rates and latencies over time, and the latency curve.

use maud::{Markup, html};
use stickycas_model::judge::Outcome;

use super::chart::{Drawing, Frame, Scale, Series, Tick, bottom_axis, left_axis, line};
use super::document::Document;
use super::figure::{Figure, Panel, Table};
use super::words::{counted, grouped};
use crate::load::Measured;
use crate::load::figures::{Answered, Row, answered};
use crate::load::measure::{Measure, Party};
use crate::load::recorder::Second;
use crate::load::result::LoadResult;
use crate::report::load::table::{shown_for, time};

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 240.0;
const FRAME: Frame = Frame { left: 50.0, right: 400.0, top: 30.0, bottom: 200.0 };
/// Shorter rows have no rate in the plot, unless all are.
const LEAST_OF_A_SECOND: f64 = 0.5;
/// The measures of the latency curve, in the order of their series.
const CURVES: [Measure; 5] =
    [Measure::Instance, Measure::Service, Measure::Create, Measure::Append, Measure::Read];
/// Percentiles that the latency curve has ticks at, with how they are written.
const QUANTILES: [(f64, &str); 6] =
    [(0.0, "0"), (0.5, "50"), (0.9, "90"), (0.99, "99"), (0.999, "99.9"), (0.9999, "99.99")];

pub(super) fn page(measured: &Measured) -> Markup {
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
                @for (number, figure) in (1..).zip(&figures) { (figure.markup(number)) }
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
                dt { "Command" } dd { code { (host.arguments.join(" ")) } }
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
    let row = |(label, count): (crate::load::measure::Label, u64)| {
        let first = result.messages.get(&label.ended).cloned().unwrap_or_default();
        vec![label.measure.name().to_owned(), label.ended.to_string(), grouped(count), first]
    };
    let rows = result.figures.failures().into_iter().map(row).collect();
    Table { head: vec!["of", "why", "how often", "the first, in words"], rows }
}

/// A line with its name and its points.
type Line = (&'static str, Vec<(f64, f64)>);

/// A line of a figure second by second.
fn over(seconds: &[Second], name: &'static str, value: impl Fn(&Second) -> f64) -> Line {
    (name, seconds.iter().map(|second| (second.second, value(second))).collect())
}

fn rate(measured: &Measured) -> Figure {
    let per_second = |count: u64, second: &Second| count as f64 / second.length.max(1e-3);
    // What is left of a second at the end says little, and its rate anything.
    let longest = measured.seconds.iter().map(|second| second.length).fold(0.0, f64::max);
    let least = longest.min(LEAST_OF_A_SECOND);
    let whole: Vec<Second> =
        measured.seconds.iter().filter(|second| second.length >= least).cloned().collect();
    let lines = [
        over(&whole, "done", |second| per_second(second.done, second)),
        over(&whole, "begun", |second| per_second(second.planned, second)),
    ];
    let caption =
        "Instances that began and that came to their end in each second, without those of the warm-up.";
    drawn(measured, "rate", "Instances a second", "instances/s", caption, &lines, false)
}

fn latency(measured: &Measured) -> Figure {
    let micros = |millis: f64| millis * 1e3;
    let busy: Vec<Second> = measured.seconds.iter().filter(|second| second.done > 0).cloned().collect();
    let lines = [
        over(&busy, "p50", |second| micros(second.p50_ms)),
        over(&busy, "p99", |second| micros(second.p99_ms)),
        over(&busy, "max", |second| micros(second.max_ms)),
    ];
    let caption = "Latency of the instances that came to their end in each second, from their planned start.";
    drawn(measured, "latency", "Instance latency over time", "latency (us)", caption, &lines, true)
}

fn in_flight(measured: &Measured) -> Figure {
    let lines = [
        over(&measured.seconds, "in flight", |second| second.in_flight as f64),
        over(&measured.seconds, "errors", |second| second.errors as f64),
        over(&measured.seconds, "starts missed", |second| (second.late + second.dropped) as f64),
    ];
    let caption = "Instances under way at the end of each second; errors and missed starts within it.";
    drawn(measured, "in-flight", "Under way, errors, missed starts", "instances", caption, &lines, false)
}

/// A figure over time.
fn drawn(
    measured: &Measured,
    id: &str,
    title: &'static str,
    unit: &'static str,
    caption: &'static str,
    lines: &[Line],
    logarithmic: bool,
) -> Figure {
    let last = measured.seconds.last().map_or(1.0, |second| second.second);
    let x = Scale::linear((0.0, last), (FRAME.left, FRAME.right));
    let ticks = x.whole_ticks(10);
    let drawing = chart(id, title, caption, unit, lines, (&x, &ticks, "seconds"), logarithmic);
    figure(id, title, caption, lines, drawing, "second")
}

fn figure(
    id: &str,
    title: &'static str,
    caption: &'static str,
    lines: &[Line],
    drawing: Markup,
    first: &'static str,
) -> Figure {
    let rows = lines.first().map_or(0, |(_, points)| points.len());
    let row = |place: usize| {
        let x = lines[0].1[place].0;
        let values = lines
            .iter()
            .map(|(_, points)| points.get(place).map_or(String::new(), |(_, y)| format!("{y:.1}")));
        std::iter::once(format!("{x:.2}")).chain(values).collect()
    };
    Figure {
        id: id.to_owned(),
        title: html! { (title) },
        caption: html! { p { (caption) } },
        legend: lines
            .iter()
            .enumerate()
            .map(|(place, (name, _))| (Series(place).sample(), html! { (name) }))
            .collect(),
        panels: vec![Panel { label: String::new(), drawing }],
        command: None,
        table: Table {
            head: std::iter::once(first).chain(lines.iter().map(|(name, _)| *name)).collect(),
            rows: (0..rows).map(row).collect(),
        },
    }
}

/// Lines on a frame.
fn chart(
    id: &str,
    title: &str,
    description: &str,
    unit: &str,
    lines: &[Line],
    (x, x_ticks, x_title): (&Scale, &[Tick], &str),
    logarithmic: bool,
) -> Markup {
    let values = || lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y);
    let highest = values().fold(1.0, f64::max);
    let y = if logarithmic {
        let lowest = values().filter(|value| *value > 0.0).fold(highest, f64::min);
        Scale::logarithmic((lowest.max(1.0), highest), (FRAME.bottom, FRAME.top))
    } else {
        Scale::linear((0.0, highest), (FRAME.bottom, FRAME.top))
    };
    let content = html! {
        (left_axis(FRAME, &y.whole_ticks(6), unit))
        (bottom_axis(FRAME, x_ticks, x_title))
        @for (place, (_, points)) in lines.iter().enumerate() {
            (line(&points.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect::<Vec<_>>(), Series(place)))
        }
    };
    Drawing { id: &format!("{id}-chart"), title, description, width: WIDTH, height: HEIGHT }.svg(&content)
}

/// How far out one in so many is: what spreads the high percentiles out.
fn one_in(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}

fn curve(measured: &Measured) -> Figure {
    let points = |measure| -> Vec<(f64, f64)> {
        let histogram = answered(&measured.histograms, measure);
        let steps = histogram.iter_quantiles(4);
        let points = steps.filter(|step| step.quantile() < 1.0);
        points.map(|step| (step.quantile(), step.value_iterated_to() as f64 / 1e3)).collect()
    };
    let shown = |measure: &Measure| {
        measured.result.figures.answered.iter().any(|row: &Answered| row.measure == *measure)
    };
    let curves: Vec<Line> =
        CURVES.into_iter().filter(shown).map(|measure| (measure.name(), points(measure))).collect();
    let farthest =
        curves.iter().flat_map(|(_, points)| points).map(|(q, _)| one_in(*q)).fold(100.0, f64::max);
    let x = Scale::logarithmic((1.0, farthest), (FRAME.left, FRAME.right));
    let ticks: Vec<Tick> = QUANTILES
        .iter()
        .filter(|(quantile, _)| one_in(*quantile) <= farthest * 1.001)
        .map(|(quantile, label)| Tick { at: x.at(one_in(*quantile)), label: (*label).to_owned() })
        .collect();
    let placed: Vec<Line> = curves
        .iter()
        .map(|(name, points)| (*name, points.iter().map(|(q, value)| (one_in(*q), *value)).collect()))
        .collect();
    let caption = "The latency that so many percent of the requests did not exceed, by answers to correct processes. \
                   The axis is stretched towards the slowest.";
    let title = "Latency by percentile";
    let drawing = chart("curve", title, caption, "latency (us)", &placed, (&x, &ticks, "percentile"), true);
    Figure { table: quantiles(measured), ..figure("curve", title, caption, &curves, drawing, "percentile") }
}

/// The curve in numbers, at its ticks: curves have points of their own elsewhere.
fn quantiles(measured: &Measured) -> Table {
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
