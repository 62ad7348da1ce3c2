//! Blame: of the culprits whose strategy commits an offence of SPEC B2's closed list, the share that is named
//! (recall); of the named processes, the share that is Byzantine (precision).

use std::collections::BTreeMap;

use maud::{Markup, html};
use stickycas_harness::report::html::chart::{Drawing, Series, bar, px};
use stickycas_harness::report::html::figure::{Figure, Panel, Table};
use stickycas_harness::report::html::words::{counted, grouped, percent};

use super::facets::in_common;
use crate::campaign::cell::{Cell, NO_STRATEGY, Sweep, sum};

const WIDTH: f64 = 380.0;
const TOP: f64 = 26.0;
const ROW: f64 = 34.0;

/// The cells of each strategy.
type Strategies<'a> = BTreeMap<&'a str, Vec<&'a Cell>>;

fn runs(cells: &[&Cell]) -> u64 {
    sum(cells.iter().copied(), |cell| cell.counts.runs)
}

fn culprits(cells: &[&Cell]) -> u64 {
    sum(cells.iter().copied(), |cell| cell.counts.culprits)
}

fn named(cells: &[&Cell]) -> u64 {
    sum(cells.iter().copied(), |cell| cell.counts.named)
}

fn blamed(cells: &[&Cell]) -> u64 {
    sum(cells.iter().copied(), |cell| cell.counts.blamed)
}

fn accused(cells: &[&Cell]) -> u64 {
    sum(cells.iter().copied(), |cell| cell.counts.accused)
}

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    let mut strategies = Strategies::new();
    for cell in &sweep.cells {
        strategies.entry(&cell.point.strategy).or_default().push(cell);
    }
    let recall = Measure {
        title: "Recall",
        unit: "culprits that are named (%)",
        none: "commits no offence that anyone could prove",
        of: |cells| (named(cells), culprits(cells)),
        series: Series(0),
    };
    let precision = Measure {
        title: "Precision",
        unit: "processes named that are Byzantine (%)",
        none: "nobody is named",
        of: |cells| (blamed(cells).saturating_sub(accused(cells)), blamed(cells)),
        series: Series(2),
    };
    let panel = |measure: Measure| Panel {
        label: measure.title.to_owned(),
        drawing: measure.drawing(&format!("{id}-{}", measure.title.to_lowercase()), &strategies),
    };
    vec![Figure {
        id: id.to_owned(),
        title: html! { "Blame: who is named, and rightly so" },
        caption: caption(sweep, &strategies),
        legend: Vec::new(),
        panels: if strategies.is_empty() { Vec::new() } else { vec![panel(recall), panel(precision)] },
        command: Some(sweep.command.clone()),
        table: table(&strategies),
    }]
}

/// Recall or precision.
struct Measure {
    title: &'static str,
    unit: &'static str,
    /// The meaning of a share of nothing.
    none: &'static str,
    of: fn(&[&Cell]) -> (u64, u64),
    series: Series,
}

impl Measure {
    /// A bar for each strategy, its name above it.
    fn drawing(&self, id: &str, strategies: &Strategies<'_>) -> Markup {
        let length = 220.0;
        let bottom = TOP + ROW * strategies.len() as f64;
        let content = html! {
            g class="axis" { text class="title" x="2" y="12" { (self.unit) } }
            @for (row, (strategy, cells)) in strategies.iter().enumerate() {
                @let top = TOP + ROW * row as f64;
                @let (part, whole) = (self.of)(cells);
                g {
                    title { (strategy) ": " (part) " of " (whole) }
                    text class="code" x="2" y=(px(top + 8.0)) { (short(strategy)) }
                    @match percent(part, whole) {
                        Some(percent) => {
                            (bar((2.0, top + 14.0), length, part as f64 / whole as f64, self.series))
                            text x=(px(length + 10.0)) y=(px(top + 23.0)) {
                                (percent) " %, " (grouped(part)) " of " (grouped(whole))
                            }
                        }
                        None => { text class="faint" x="2" y=(px(top + 23.0)) { (self.none) } }
                    }
                }
            }
        };
        let description =
            format!("A bar for each strategy: {}. The numbers are in the table below.", self.unit);
        Drawing { id, title: self.title, description: &description, width: WIDTH, height: bottom + 6.0 }
            .svg(&content)
    }
}

/// As much of a strategy as fits.
fn short(strategy: &str) -> String {
    const MOST: usize = 54;
    match strategy.char_indices().nth(MOST) {
        None => strategy.to_owned(),
        Some((end, _)) => format!("{}\u{2026}", &strategy[..end]),
    }
}

fn caption(sweep: &Sweep, strategies: &Strategies<'_>) -> Markup {
    let with = strategies.iter().filter(|(strategy, _)| **strategy != NO_STRATEGY).count();
    let cells: Vec<&Cell> = sweep.cells.iter().collect();
    html! {
        p {
            "An offence is something that the server can prove from what it saw: a late or repeated append, a "
            "malformed value, a false report. To append a wrong value, or to say nothing, is "
            "none. " i { "Recall" } ": of the "
            "Byzantine processes whose strategy commits an offence, how many are named. " i { "Precision" } ": of all "
            "that are named, how many are Byzantine. In all cells: " (in_common(&cells)) "."
        }
        p {
            (with) " strategies, " (counted(runs(&cells), "run")) ": "
            (grouped(named(&cells))) " of " (counted(culprits(&cells), "culprit")) " named; "
            strong { (grouped(accused(&cells))) " correct processes accused" } "."
        }
    }
}

fn share(part: u64, whole: u64) -> String {
    percent(part, whole).unwrap_or_else(|| "none".to_owned())
}

fn table(strategies: &Strategies<'_>) -> Table {
    let row = |(strategy, cells): (&&str, &Vec<&Cell>)| {
        let (culprits, named) = (culprits(cells), named(cells));
        let (blamed, accused) = (blamed(cells), accused(cells));
        let numbers = [runs(cells), culprits, named, blamed, accused].map(|number| number.to_string());
        let shares = [share(named, culprits), share(blamed.saturating_sub(accused), blamed)];
        [(*strategy).to_owned()].into_iter().chain(numbers).chain(shares).collect()
    };
    Table {
        head: vec![
            "strategy",
            "runs",
            "culprits",
            "culprits named",
            "processes named",
            "correct ones among them",
            "recall, %",
            "precision, %",
        ],
        rows: strategies.iter().map(row).collect(),
    }
}
