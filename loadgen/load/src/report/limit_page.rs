//! A search for the limit: one page with what was found, how latency grows with the rate, and every probe.

use maud::{Markup, html};
use stickycas_harness::report::html::chart::{Frame, Scale, Series, bottom_axis, left_axis, line, point};
use stickycas_harness::report::html::document::Document;
use stickycas_harness::report::html::figure::{Figure, Table};
use stickycas_harness::report::html::words::{counted, grouped};
use stickycas_model::judge::Outcome;

use super::limit::{doubts, found, line as told};
use super::page::profiles;
use super::table::time;
use crate::limit::{Limit, Probe};

const FRAME: Frame = Figure::FRAME;
/// The series of the probes that held and of those that did not, in the figure of the search.
const HELD: Series = Series(2);
const BROKE: Series = Series(1);

pub(super) fn page(limit: &Limit, name: &str) -> Markup {
    let figures = [latencies(limit), course(limit)];
    Document {
        kind: "limit",
        name,
        header: html! { (verdict(limit)) (totals(limit)) },
        main: html! {
            section {
                h2 { "The search" }
                @for (number, figure) in (1..).zip(&figures) { (figure.markup(number)) }
            }
            (profiles(std::slice::from_ref(&limit.profile)))
        },
        footer: html! {
            "A rate holds if the conditions do, nothing failed and the schedule was kept; one that does not is tried "
            "once more. A search ends when both of its ends have said the same again, best of three. Latency counts "
            "from the planned start. The same data are in limit.json and probes.csv beside this file."
        },
    }
    .markup()
}

fn verdict(limit: &Limit) -> Markup {
    let class = match (limit.verdict, limit.rate) {
        (Outcome::Violation, _) => "verdict bad",
        (_, Some(_)) if doubts(limit).is_empty() => "verdict good",
        _ => "verdict none",
    };
    html! {
        div class=(class) {
            p class="big" {
                span { (limit.verdict) } " " (grouped(limit.judged.instances())) " of "
                (counted(limit.judged.started(), "started instance")) " judged"
            }
            ul {
                li { (found(limit)) }
                @for doubt in doubts(limit) { li { (doubt) } }
                @for reason in &limit.judged.reasons { li { (reason) } }
            }
            @if limit.interrupted { p class="unfinished" { "Interrupted before its time." } }
        }
    }
}

fn totals(limit: &Limit) -> Markup {
    let total = |name: &str, value: String| html! { div { dt { (name) } dd { (value) } } };
    let rate = |rate: f64| grouped(rate.round() as u64);
    html! {
        dl class="totals" {
            @if let Some(found) = limit.rate { (total("instances a second", rate(found))) }
            @if let Some([low, high]) = limit.between {
                (total("between", format!("{} \u{2013} {}", rate(low), rate(high))))
            }
            (total("confidence", format!("{:.1} %", 100.0 * limit.confidence)))
            (total("searches", grouped(limit.searches.len() as u64)))
            (total("not settled", grouped(limit.unsettled() as u64)))
            (total("probes", grouped(limit.probes.len() as u64)))
        }
    }
}

/// How latency grows with the rate.
fn latencies(limit: &Limit) -> Figure {
    let measured: Vec<(&Probe, f64, f64)> = limit
        .probes
        .iter()
        .filter_map(|probe| {
            let latency = probe.instance?;
            Some((probe, latency.p50 as f64 / 1e3, latency.p99 as f64 / 1e3))
        })
        .collect();
    let rates = || limit.probes.iter().map(|probe| probe.rate);
    let x = Scale::linear((0.0, rates().fold(1.0, f64::max)), (FRAME.left, FRAME.right));
    let values = || measured.iter().flat_map(|(_, p50, p99)| [*p50, *p99]);
    let highest = values().fold(1.0, f64::max);
    let y =
        Scale::logarithmic((values().fold(highest, f64::min).max(1.0), highest), (FRAME.bottom, FRAME.top));
    let title = "Latency by rate";
    let caption = "Instance latency of each probe, by the rate that was asked for.";
    let content = html! {
        (left_axis(FRAME, &y.whole_ticks(6), "latency (us)"))
        (bottom_axis(FRAME, &x.whole_ticks(8), "instances/s asked for"))
        @for (probe, p50, p99) in &measured {
            @for (series, name, micros) in [(0, "p50", p50), (1, "p99", p99)] {
                (point(
                    (x.at(probe.rate), y.at(*micros)),
                    Series(series),
                    &format!("{name} {} at {:.1}/s", time(micros * 1e3), probe.rate),
                ))
            }
        }
    };
    let legend = [(Series(0), "p50"), (Series(1), "p99")];
    Figure::plot("latency", title, caption, &legend, &content, Table::default())
}

/// Which rate was tried when, and its result.
fn course(limit: &Limit) -> Figure {
    let probes: Vec<(f64, &Probe)> = (1_u32..).map(f64::from).zip(&limit.probes).collect();
    let last = probes.last().map_or(1.0, |(number, _)| *number);
    let x = Scale::linear((0.0, last), (FRAME.left, FRAME.right));
    let highest = limit.probes.iter().map(|probe| probe.rate).fold(1.0, f64::max);
    let y = Scale::linear((0.0, highest), (FRAME.bottom, FRAME.top));
    let series = |probe: &Probe| if probe.held { HELD } else { BROKE };
    let content = html! {
        (left_axis(FRAME, &y.whole_ticks(6), "instances/s asked for"))
        (bottom_axis(FRAME, &x.whole_ticks(10), "probe"))
        @if let Some(rate) = limit.rate {
            (line(&[(FRAME.left, y.at(rate)), (FRAME.right, y.at(rate))], Series(0)))
        }
        @for (number, probe) in &probes {
            (point((x.at(*number), y.at(probe.rate)), series(probe), &told(probe)))
        }
    };
    let legend = [(HELD, "holds"), (BROKE, "does not hold"), (Series(0), "the limit")];
    let row = |(number, probe): &(f64, &Probe)| {
        let latency = |nanos: Option<u64>| nanos.map_or(String::new(), |nanos| time(nanos as f64));
        vec![
            number.to_string(),
            probe.repeat.to_string(),
            format!("{:.1}", probe.rate),
            format!("{:.1}", probe.done),
            latency(probe.instance.map(|latency| latency.p50)),
            latency(probe.instance.map(|latency| latency.p99)),
            if probe.held { "holds".to_owned() } else { probe.broke.join(", ") },
        ]
    };
    let table = Table {
        head: vec!["probe", "search", "asked for", "done", "p50", "p99", "says"],
        rows: probes.iter().map(row).collect(),
    };
    let caption = "The rates in the order in which they were tried. Each search begins near the limit of the one \
                   before.";
    Figure::plot("course", "Probe by probe", caption, &legend, &content, table)
}
