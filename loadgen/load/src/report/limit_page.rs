//! A search for the limit: one page with what was found, and how latency grows with the rate.

use maud::html;
use stickycas_harness::report::html::chart::{Scale, Series, bottom_axis, left_axis, line, point};
use stickycas_harness::report::html::document::Document;
use stickycas_harness::report::html::figure::{Figure, Table};
use stickycas_model::judge::Outcome;

use super::limit::{doubts, line as told, rate, text};
use super::page::{FRAME, correctness, header, latency_ticks, linear, logarithmic, profiles};
use super::words::time;
use crate::limit::{Limit, Probe};

/// The series of the probes that held and of those that did not, in the figure of the search.
const HELD: Series = Series(2);
const BROKE: Series = Series(1);

pub(super) fn figures(limit: &Limit) -> [Figure; 2] {
    [latencies(limit), course(limit)]
}

pub(super) fn page(limit: &Limit, name: &str, figures: &[Figure]) -> String {
    let class = match (limit.verdict, limit.rate) {
        (Outcome::Violation, _) => "verdict bad",
        (_, Some(_)) if doubts(limit).is_empty() => "verdict good",
        _ => "verdict none",
    };
    let found = rate(limit);
    let (number, worth) = match limit.rate {
        Some(_) => found.split_once(' ').unwrap_or((&found, "")),
        None => ("NO LIMIT", found.as_str()),
    };
    let headline = html! { span { (number) } " " (worth) };
    Document {
        kind: "limit",
        name,
        header: header(class, &headline, &correctness(&limit.judged), &text(limit)),
        main: html! {
            section {
                h2 { "The search" }
                @for (number, figure) in (1..).zip(figures) { (figure.markup(number)) }
            }
            (profiles(std::slice::from_ref(&limit.profile)))
        },
        footer: html! {
            "A rate holds if the conditions do, nothing failed and the schedule was kept; one that does not is tried "
            "once more. A search ends when both of its ends have said the same again, best of three. Latency counts "
            "from the planned start. The same data are in limit.json and probes.csv beside this file, the drawings in figures/."
        },
    }
    .markup()
    .into_string()
}

/// How latency grows with the rate.
fn latencies(limit: &Limit) -> Figure {
    let measured = || {
        limit.probes.iter().flat_map(|probe| {
            let points = probe.instance.map(|latency| [(0, "p50", latency.p50), (1, "p99", latency.p99)]);
            let points = points.into_iter().flatten();
            points.map(|(series, name, nanos)| (probe.rate, Series(series), name, nanos as f64))
        })
    };
    let rates = limit.probes.iter().map(|probe| probe.rate);
    let x = Scale::linear((0.0, rates.fold(1.0, f64::max)), (FRAME.left, FRAME.right));
    let y = logarithmic(measured().map(|(_, _, _, nanos)| nanos / 1e3));
    let content = html! {
        (left_axis(FRAME, &latency_ticks(&y), "latency"))
        (bottom_axis(FRAME, &x.whole_ticks(8), "instances/s asked for"))
        @for (rate, series, name, nanos) in measured() {
            (point((x.at(rate), y.at(nanos / 1e3)), series, &format!("{name} {} at {rate:.1}/s", time(nanos))))
        }
    };
    let caption = "Instance latency of each probe, by the rate that was asked for.";
    let legend = [(Series(0), "p50"), (Series(1), "p99")];
    Figure::plot("latency", "Latency by rate", caption, &legend, &content, Table::default())
}

/// Which rate was tried when, and its result.
fn course(limit: &Limit) -> Figure {
    let probes: Vec<(f64, &Probe)> = (1_u32..).map(f64::from).zip(&limit.probes).collect();
    let last = probes.last().map_or(1.0, |(number, _)| *number);
    let x = Scale::linear((0.0, last), (FRAME.left, FRAME.right));
    let y = linear(limit.probes.iter().map(|probe| probe.rate));
    let content = html! {
        (left_axis(FRAME, &y.whole_ticks(6), "instances/s asked for"))
        (bottom_axis(FRAME, &x.whole_ticks(10), "probe"))
        @if let Some(rate) = limit.rate {
            (line(&[(FRAME.left, y.at(rate)), (FRAME.right, y.at(rate))], Series(0)))
        }
        @for (number, probe) in &probes {
            (point((x.at(*number), y.at(probe.rate)), if probe.held { HELD } else { BROKE }, &told(probe)))
        }
    };
    let legend = [(HELD, "holds"), (BROKE, "does not hold"), (Series(0), "the limit")];
    let caption = "The rates in the order in which they were tried. Each search begins near the limit of the one \
                   before.";
    Figure::plot("course", "Probe by probe", caption, &legend, &content, Table::default())
}
