//! The phase of the last decision against the bound W*(q+c), over n, p and r (paper, Theorem 1, Termination;
//! SPEC D2, K2).

use maud::{Markup, html};
use stickycas_harness::report::html::chart::{
    Drawing, Frame, Scale, Series, Tick, bottom_axis, left_axis, line, point, whisker,
};
use stickycas_harness::report::html::figure::Figure;
use stickycas_harness::report::html::words::counted;
use stickycas_model::bounds;

use super::facets::{Column, Facet, field, in_common, panels, table};
use super::resilience::distinct;
use crate::campaign::cell::{Cell, Point, Sweep};

const WIDTH: f64 = 380.0;
const FRAME: Frame = Frame { left: 50.0, right: 368.0, top: 34.0, bottom: 264.0 };

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    let cells: Vec<&Cell> = sweep.cells.iter().collect();
    let sizes = distinct(cells.iter().map(|cell| cell.point.p));
    let scales = Scales::of(&cells);
    let sample = |(number, p): (usize, &u32)| (Series(number).sample(), html! { i { "p" } " = " (p) });
    vec![Figure {
        id: id.to_owned(),
        title: html! { "Phases until the last correct process decides" },
        caption: caption(&cells),
        legend: sizes.iter().enumerate().map(sample).collect(),
        panels: panels(id, &cells, &["n", "p"], |id, facet| panel(id, facet, &sizes, &scales)),
        command: Some(sweep.command.clone()),
        table: table(&cells, &ENDS),
    }]
}

/// The same for all panels, so that they can be compared.
struct Scales {
    x: Scale,
    y: Scale,
    /// Of n: where it was counted, unless these are too many.
    ticks: Vec<Tick>,
}

impl Scales {
    fn of(cells: &[&Cell]) -> Self {
        let phases = |cell: &&Cell| {
            let ends = [cell.counts.first_phase, cell.counts.last_phase, Some(cell.phase_bound)];
            ends.into_iter().flatten().map(|phase| phase as f64)
        };
        let sizes = distinct(cells.iter().map(|cell| cell.point.n));
        let x = around(sizes.iter().map(|n| f64::from(*n)), (FRAME.left, FRAME.right));
        Self {
            ticks: if sizes.len() <= 8 { x.ticks_at(sizes) } else { x.whole_ticks(8) },
            x,
            y: around(cells.iter().flat_map(phases), (FRAME.bottom, FRAME.top)),
        }
    }
}

/// A scale with room for all of these numbers.
fn around(numbers: impl Iterator<Item = f64>, places: (f64, f64)) -> Scale {
    let (low, high) =
        numbers.fold((f64::MAX, 1.0), |(low, high): (f64, f64), number| (low.min(number), high.max(number)));
    Scale::logarithmic((low / 1.25, high * 1.25), places)
}

fn panel(id: &str, facet: &Facet<'_>, sizes: &[u32], scales: &Scales) -> Markup {
    let graphs = sizes.iter().enumerate().map(|(number, p)| {
        let cells: Vec<&Cell> = facet.cells.iter().copied().filter(|cell| cell.point.p == *p).collect();
        graph(&cells, Series(number), scales)
    });
    let content = html! {
        (left_axis(FRAME, &scales.y.whole_ticks(8), "last decision (phase)"))
        (bottom_axis(FRAME, &scales.ticks, "n (processes)"))
        @for graph in graphs { (graph) }
    };
    let title = format!("Phases until the last decision against n, {}", facet.label);
    let description = "A line for each warp size p: the bound W*(q+c). Points: the latest phase in which a run had its \
                       last decision; whiskers go down to the earliest. Both axes are logarithmic. The numbers are in \
                       the table below the figure.";
    Drawing { id, title: &title, description, width: WIDTH, height: FRAME.bottom + 42.0 }.svg(&content)
}

fn graph(cells: &[&Cell], series: Series, scales: &Scales) -> Markup {
    let (least, most) = (cells.iter().map(|c| c.point.n).min(), cells.iter().map(|c| c.point.n).max());
    let bound: Vec<(f64, f64)> = match (cells.first(), least.zip(most)) {
        (Some(first), Some((least, most))) => {
            let bound = |n| Some((scales.x.at(f64::from(n)), scales.y.at(bound_of(&first.point, n)? as f64)));
            steps(least, most).filter_map(bound).collect()
        }
        _ => Vec::new(),
    };
    html! {
        (line(&bound, series))
        @for cell in cells {
            @let x = scales.x.at(f64::from(cell.point.n));
            @if let Some((first, last)) = cell.counts.first_phase.zip(cell.counts.last_phase) {
                @if first < last { (whisker(x, scales.y.at(first as f64), scales.y.at(last as f64), series)) }
                (point((x, scales.y.at(last as f64)), series, &words(cell, first, last)))
            }
        }
    }
}

/// W*(q+c) of an instance with n processes and the p and r of the point.
fn bound_of(point: &Point, n: u32) -> Option<u64> {
    let params = Point { n, ..point.clone() }.params()?;
    Some(bounds::phase_bound(&params, 0).get())
}

/// Every number between, or if they are very many, some of them.
fn steps(least: u32, most: u32) -> impl Iterator<Item = u32> {
    let step = ((most - least) / 500).max(1);
    (least..most).step_by(step as usize).chain([most])
}

fn words(cell: &Cell, first: u64, last: u64) -> String {
    let Point { n, p, r, .. } = &cell.point;
    format!(
        "n = {n}, p = {p}, r = {r}: last decision in phases {first} to {last}, bound {}",
        cell.phase_bound
    )
}

fn caption(cells: &[&Cell]) -> Markup {
    let ended: Vec<(u64, u64)> =
        cells.iter().filter_map(|cell| Some((cell.counts.last_phase?, cell.phase_bound))).collect();
    let beyond = ended.iter().filter(|(last, bound)| last > bound).count();
    let at = ended.iter().filter(|(last, bound)| last == bound).count();
    let has_rounds = cells.iter().any(|cell| cell.point.q > 1);
    let (rounds, entries) = if has_rounds { ("q", "T") } else { ("1", "W") };
    html! {
        p {
            i { "Lines" } ": the bound " i { "W" } " (" (rounds) " + " i { "c" } ") with " i { "W" } " = "
            "\u{2308}" i { "n/p" } "\u{2309} warps and "
            i { "c" } " = \u{2308}" i { (entries) "/r" } "\u{2309} reads, which is " @if has_rounds { "for " i { "q" } " = 1 " }
            "the paper\u{2019}s "
            "\u{398}(" i { "n" } "\u{b2}/(" i { "p" } "\u{b2}" i { "r" } ")) "
            "without its constant (Theorem 1, Termination). " i { "Points" } ": the latest phase in which any run had "
            "its last decision; whiskers lead down to the earliest. Both axes are logarithmic. "
            "In all cells: " (in_common(cells)) "."
        }
        p {
            "Of " (counted(ended.len() as u64, "cell")) ", " strong { (beyond) " went beyond the bound" } " and " (at)
            " reached it exactly."
        }
    }
}

const ENDS: [Column; 3] = [
    ("earliest", |cell| field(cell.counts.first_phase)),
    ("latest", |cell| field(cell.counts.last_phase)),
    ("bound W(q+c)", |cell| cell.phase_bound.to_string()),
];
