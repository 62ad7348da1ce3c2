//! The result of a load as one page: the report for people, rates and latencies over time, and the latency
//! curve. The data of the plots are in the files beside it.

use maud::{Markup, html};
use stickycas_harness::command_line::quoted;
use stickycas_harness::exit::Exit;
use stickycas_harness::report::html::chart::{
    Frame, Scale, Series, Tick, bottom_axis, left_axis, line, mark,
};
use stickycas_harness::report::html::document::Document;
use stickycas_harness::report::html::figure::{Figure, Table, again};
use stickycas_model::judge::Outcome;

use super::table::plain;
use super::words::outcome;
use crate::Measurement;
use crate::figures::answered;
use crate::measure::Measure;
use crate::recorder::Second;
use crate::verdicts::VerdictCounts;

pub(super) const FRAME: Frame = Figure::FRAME;
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

pub(super) fn figures(measured: &Measurement) -> [Figure; 4] {
    [rate(measured), latency(measured), curve(measured), in_flight(measured)]
}

pub(super) fn page(measured: &Measurement, figures: &[Figure]) -> String {
    let result = &measured.result;
    let (word, about) = outcome(result);
    let class = match result.exit() {
        _ if result.has_failed() => "verdict bad",
        Exit::Done => "verdict good",
        _ => "verdict none",
    };
    let headline = html! { span { (word) } " " (about) };
    Document {
        kind: "load",
        name: &result.name,
        header: header(class, &headline, &correctness(&result.judged), &plain(result)),
        main: html! {
            section {
                h2 { "Over time" }
                div class="figures" { @for (number, figure) in (1..).zip(figures) { (figure.markup(number)) } }
            }
            section { h2 { "Commands" } @for host in &result.hosts { (again(&quoted(&host.arguments))) } }
            (profiles(&result.profiles))
        },
        footer: html! {
            "Instance latency counts from the planned start of an instance to the last decision of a correct process; "
            "service time from its actual start. The same data are in result.json, seconds.csv and latencies.hlog "
            "beside this file, the drawings in figures/."
        },
    }
    .markup()
    .into_string()
}

/// What it comes to, large; what its instances show; the report for people.
pub(super) fn header(class: &str, headline: &Markup, correctness: &Markup, report: &str) -> Markup {
    html! {
        div class=(class) { p class="big" { (headline) } (correctness) }
        div class="scroll" tabindex="0" { pre { code { (report) } } }
    }
}

/// What the instances show, in the colour of that.
pub(super) fn correctness(judged: &VerdictCounts) -> Markup {
    let (class, says) = match judged.verdict() {
        Outcome::Valid if judged.valid == judged.started() => {
            ("good", format!("correct: {} of {} instances valid", judged.valid, judged.started()))
        }
        Outcome::Valid => ("good", format!("correctness: {}", judged.line())),
        Outcome::Violation => ("bad", format!("correctness: {}", judged.line())),
        Outcome::Outside | Outcome::Unknown => ("none", format!("correctness: {}", judged.line())),
    };
    html! { p class={ "correctness " (class) } { (says) } }
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

/// The vertical scale of values from 0 on.
pub(super) fn linear(values: impl Iterator<Item = f64>) -> Scale {
    Scale::linear((0.0, values.fold(1.0, f64::max)), (FRAME.bottom, FRAME.top))
}

/// The vertical scale of latencies in microseconds.
pub(super) fn logarithmic(values: impl Iterator<Item = f64> + Clone) -> Scale {
    let highest = values.clone().fold(1.0, f64::max);
    let lowest = values.filter(|value| *value > 0.0).fold(highest, f64::min);
    Scale::logarithmic((lowest.max(1.0), highest), (FRAME.bottom, FRAME.top))
}

/// Ticks of a scale of microseconds.
pub(super) fn latency_ticks(scale: &Scale) -> Vec<Tick> {
    scale.whole_ticks_as(6, |micros| match micros {
        ..1e3 => format!("{micros} us"),
        ..1e6 => format!("{} ms", micros / 1e3),
        _ => format!("{} s", micros / 1e6),
    })
}

/// A line with its name and its points.
type Line = (&'static str, Vec<(f64, f64)>);
/// The value of a line in a second, if it has one.
type Value<'a> = &'a dyn Fn(&Second) -> Option<f64>;

fn values(lines: &[Line]) -> impl Iterator<Item = f64> + Clone {
    lines.iter().flat_map(|(_, points)| points).map(|(_, y)| *y)
}

/// Lines over the seconds in which rates count: those of the warm-up have nothing but zeros.
fn over_time<const N: usize>(
    measured: &Measurement,
    lines: [(&'static str, Value<'_>); N],
) -> (Scale, [Line; N]) {
    let from = measured.result.measured_from;
    let counts = |second: &&Second| second.second > from + second.length / 2.0;
    let mut seconds: Vec<&Second> = measured.recorder.seconds.iter().filter(counts).collect();
    if seconds.is_empty() {
        seconds = measured.recorder.seconds.iter().collect();
    }
    let first = seconds.first().map_or(0.0, |second| (second.second - second.length).max(0.0));
    let last = seconds.last().map_or(1.0, |second| second.second);
    let points = |value: Value<'_>| {
        seconds.iter().filter_map(|second| Some((second.second, value(second)?))).collect()
    };
    let lines = lines.map(|(name, value)| (name, points(value)));
    (Scale::linear((first, last), (FRAME.left, FRAME.right)), lines)
}

fn rate(measured: &Measurement) -> Figure {
    // The rest of a second at the end says little, and its rate may be anything.
    let longest = measured.recorder.seconds.iter().map(|second| second.length).fold(0.0, f64::max);
    let least = longest.min(LEAST_OF_A_SECOND);
    let per_second = |count: u64, second: &Second| {
        (second.length >= least).then(|| count as f64 / second.length.max(1e-3))
    };
    let (x, lines) = over_time(
        measured,
        [
            ("done", &|second| per_second(second.done, second)),
            ("begun", &|second| per_second(second.planned, second)),
        ],
    );
    let caption =
        "Instances that began and that came to their end in each second, without those of the warm-up.";
    let y = linear(values(&lines));
    let graph = graph(&lines, (&y, &y.whole_ticks(6), "instances/s"), (&x, &x.whole_ticks(10), "seconds"));
    plot("rate", "Instances a second", caption, &lines, &graph)
}

fn latency(measured: &Measurement) -> Figure {
    let micros = |millis: f64, second: &Second| (second.done > 0).then_some(millis * 1e3);
    let (x, lines) = over_time(
        measured,
        [
            ("p50", &|second| micros(second.p50_ms, second)),
            ("p99", &|second| micros(second.p99_ms, second)),
            ("max", &|second| micros(second.max_ms, second)),
        ],
    );
    let caption = "Latency of the instances that came to their end in each second, from their planned start.";
    let y = logarithmic(values(&lines));
    let graph = graph(&lines, (&y, &latency_ticks(&y), "latency"), (&x, &x.whole_ticks(10), "seconds"));
    plot("latency", "Instance latency over time", caption, &lines, &graph)
}

fn in_flight(measured: &Measurement) -> Figure {
    let (x, lines) = over_time(
        measured,
        [
            ("in flight", &|second| Some(second.in_flight as f64)),
            ("errors", &|second| Some(second.errors as f64)),
            ("starts missed", &|second| Some((second.late + second.dropped) as f64)),
        ],
    );
    let caption = "Instances under way at the end of each second; errors and missed starts within it.";
    let y = linear(values(&lines));
    let graph = graph(&lines, (&y, &y.whole_ticks(6), "instances"), (&x, &x.whole_ticks(10), "seconds"));
    plot("in-flight", "Under way, errors, missed starts", caption, &lines, &graph)
}

/// The N of "one in N" beyond a quantile: this scale spreads the high percentiles out.
fn one_in(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}

fn curve(measured: &Measurement) -> Figure {
    // By how many requests one is slower: the axis is stretched towards the slowest.
    let points = |measure| -> Vec<(f64, f64)> {
        let histogram = answered(&measured.recorder.histograms, measure);
        let steps = histogram.iter_quantiles(4).filter(|step| step.quantile() < 1.0);
        steps.map(|step| (one_in(step.quantile()), step.value_iterated_to() as f64 / 1e3)).collect()
    };
    let shown = |measure: &Measure| measured.result.figures.latency(*measure).is_some();
    let lines: Vec<Line> =
        CURVES.into_iter().filter(shown).map(|measure| (measure.name(), points(measure))).collect();
    let farthest = lines.iter().flat_map(|(_, points)| points).map(|(x, _)| *x).fold(100.0, f64::max);
    let x = Scale::logarithmic((1.0, farthest), (FRAME.left, FRAME.right));
    let ticks: Vec<Tick> = QUANTILES
        .iter()
        .filter(|(quantile, _)| one_in(*quantile) <= farthest * 1.001)
        .map(|(quantile, label)| Tick { at: x.at(one_in(*quantile)), label: (*label).to_owned() })
        .collect();
    let caption = "The latency that so many percent of the requests did not exceed, by answers to correct processes. \
                   The axis is stretched towards the slowest.";
    let y = logarithmic(values(&lines));
    let graph = graph(&lines, (&y, &latency_ticks(&y), "latency"), (&x, &ticks, "percentile"));
    plot("curve", "Latency by percentile", caption, &lines, &graph)
}

fn plot(id: &str, title: &str, caption: &str, lines: &[Line], graph: &Markup) -> Figure {
    let legend: Vec<(Series, &str)> = (0..).map(Series).zip(lines.iter().map(|(name, _)| *name)).collect();
    Figure::plot(id, title, caption, &legend, graph, Table::default())
}

/// The axes and the lines.
fn graph(
    lines: &[Line],
    (y, y_ticks, y_title): (&Scale, &[Tick], &str),
    (x, x_ticks, x_title): (&Scale, &[Tick], &str),
) -> Markup {
    html! {
        (left_axis(FRAME, y_ticks, y_title))
        (bottom_axis(FRAME, x_ticks, x_title))
        @for (series, (_, points)) in (0..).map(Series).zip(lines) {
            @let places: Vec<(f64, f64)> = points.iter().map(|(at, value)| (x.at(*at), y.at(*value))).collect();
            (line(&places, series))
            @for place in places.iter().skip(series.0).step_by(places.len().div_ceil(MARKS).max(1)) {
                (mark(*place, series))
            }
        }
    }
}
