//! The resilience map: in which share of the runs strong validity held, for each warp size p, number |Vc| of
//! values and number f of Byzantine processes; with the frontier of the theorem drawn in (SPEC V3).
//!
//! Each strategy that ever broke strong validity has a figure of its own, the one that did most first. All
//! others share one.

use std::collections::BTreeSet;

use maud::{Markup, html};
use stickycas_harness::report::html::chart::{Drawing, Frame, Shade, cell, px, ramp};
use stickycas_harness::report::html::figure::Figure;
use stickycas_harness::report::html::words::{counted, grouped, percent};
use stickycas_model::bounds;
use stickycas_model::byzantine::Strategy;

use super::facets::{Column, Facet, field, in_common, panels, table};
use crate::campaign::cell::{Cell, NO_STRATEGY, Point, Sweep, sum};

const WIDTH: f64 = 380.0;
const LEFT: f64 = 66.0;
const TOP: f64 = 24.0;
/// Of a row with numbers in its cells.
const ROW: f64 = 18.0;
/// Of a row in which nothing broke.
const LOW_ROW: f64 = 13.0;

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    let (nobody, cells): (Vec<&Cell>, Vec<&Cell>) =
        sweep.cells.iter().partition(|cell| cell.point.strategy == NO_STRATEGY);
    let mut strategies: Vec<(&str, Vec<&Cell>)> = Vec::new();
    for cell in cells {
        match strategies.iter_mut().find(|(strategy, _)| *strategy == cell.point.strategy) {
            Some((_, cells)) => cells.push(cell),
            None => strategies.push((&cell.point.strategy, vec![cell])),
        }
    }
    let broken = |cells: &[&Cell]| sum(cells.iter().copied(), |cell| cell.counts.strong_broken);
    let (mut harmful, harmless): (Vec<_>, Vec<_>) =
        strategies.into_iter().partition(|(_, cells)| broken(cells) > 0);
    harmful.sort_by_key(|(_, cells)| std::cmp::Reverse(broken(cells)));

    let mut figures: Vec<Figure> = (1..)
        .zip(harmful)
        .map(|(number, (strategy, cells))| {
            let map = Map { sweep, cells: [cells, nobody.clone()].concat() };
            map.figure(format!("{id}-{number}"), html! { "Strong validity against " code { (strategy) } })
        })
        .collect();
    let harmless: Vec<&Cell> = harmless.into_iter().flat_map(|(_, cells)| cells).chain(nobody).collect();
    if figures.is_empty() || harmless.iter().any(|cell| cell.point.strategy != NO_STRATEGY) {
        let map = Map { sweep, cells: harmless };
        figures.push(
            map.figure(format!("{id}-harmless"), html! { "Strategies that never broke strong validity" }),
        );
    }
    figures
}

/// The cells of one figure.
struct Map<'a> {
    sweep: &'a Sweep,
    cells: Vec<&'a Cell>,
}

impl Map<'_> {
    fn figure(&self, id: String, title: Markup) -> Figure {
        Figure {
            panels: panels(&id, &self.cells, &["p", "|Vc|", "f"], |id, facet| self.panel(id, facet)),
            caption: self.caption(),
            title,
            legend: legend(&bound(&self.cells)),
            command: Some(self.sweep.command.clone()),
            table: table(&self.cells, &HELD),
            id,
        }
    }

    /// One row for each (p, |Vc|), one column for each f that the sweep has.
    fn panel(&self, id: &str, facet: &Facet<'_>) -> Markup {
        let columns: Vec<u32> = distinct(self.sweep.cells.iter().map(|cell| cell.point.f));
        let rows = distinct(facet.cells.iter().map(|cell| (cell.point.p, cell.point.distinct)));
        let height =
            if sum(self.cells.iter().copied(), |cell| cell.counts.strong_broken) > 0 { ROW } else { LOW_ROW };
        let bottom = TOP + height * rows.len() as f64;
        let frame = Frame { left: LEFT, right: WIDTH - 4.0, top: TOP, bottom };
        let width = (frame.right - frame.left) / columns.len().max(1) as f64;
        let top_of = |row: usize| TOP + height * row as f64;
        let left_of = |column: usize| LEFT + width * column as f64;
        let shown = facet.cells.iter().filter_map(|shown| {
            let row = rows.iter().position(|row| *row == (shown.point.p, shown.point.distinct))?;
            let column = columns.iter().position(|f| *f == shown.point.f)?;
            let held = shown.counts.runs.saturating_sub(shown.counts.strong_broken);
            let number = percent(held, shown.counts.runs).filter(|held| held != "100").unwrap_or_default();
            let number = if width < 17.0 { String::new() } else { number };
            let shade = Shade::of(shown.counts.strong_broken, shown.counts.runs);
            Some(cell((left_of(column), top_of(row)), (width, height), shade, &number, &words(shown)))
        });
        let columns_inside = rows.iter().enumerate().filter_map(|(row, (p, values))| {
            let of = |cell: &&&Cell| (cell.point.p, cell.point.distinct) == (*p, *values);
            let largest = largest_f(&facet.cells.iter().find(of)?.point)?;
            Some((row, columns.iter().filter(|f| u64::from(**f) <= largest).count()))
        });
        let frontier = columns_inside
            .map(|(row, inside)| (top_of(row), top_of(row + 1), left_of(inside)))
            .collect::<Vec<_>>();
        let content = html! {
            (axes(frame, &columns, &rows, (width, height)))
            @for cell in shown { (cell) }
            (line(&frontier))
        };
        let title = format!("Strong validity, {}", facet.label);
        Drawing { id, title: &title, description: &spoken(facet), width: WIDTH, height: bottom + 40.0 }
            .svg(&content)
    }

    fn caption(&self) -> Markup {
        let sums = Sums::over(&self.cells);
        let strategies: BTreeSet<&str> = self.cells.iter().map(|cell| cell.point.strategy.as_str()).collect();
        let strategies: Vec<&str> = strategies.into_iter().filter(|name| *name != NO_STRATEGY).collect();
        let weakest = self.cells.iter().filter(|cell| cell.counts.strong_broken > 0);
        let weakest = weakest.min_by_key(|cell| (cell.point.f, cell.number));
        html! {
            p {
                "Share of runs, in percent, in which the decision was the proposal of a correct process. A row is a "
                "warp size " i { "p" } " with a number |" i { "V" sub { "c" } }
                "| of values that correct processes propose, a column "
                "a number " i { "f" } " of Byzantine processes. A cell without a number: all runs. "
                "In all cells: " (in_common(&self.cells)) "."
            }
            p {
                "Theorem 1 promises strong validity while " (bound(&self.cells)) ", left of the line. "
                @if sums.inside > 0 {
                    "There it broke in "
                    strong { (grouped(sums.broken_inside)) " of " (counted(sums.inside, "run")) } ". "
                }
                @if sums.beyond > 0 {
                    "Right of it nothing is promised: it broke in " (grouped(sums.broken_beyond)) " of "
                    (counted(sums.beyond, "run")) "."
                }
            }
            @for strategy in strategies {
                @if let Some(described) = described(strategy) {
                    p class="aside" { (described) "." }
                }
            }
            @if let Some(weakest) = weakest {
                p class="aside" {
                    "With the fewest Byzantine processes it broke in cell " (weakest.number)
                    @if let Some(seed) = weakest.counts.example { ", first with seed " (seed) }
                    ": " code { (weakest.command) }
                }
            }
        }
    }
}

/// The content of a panel, in words.
fn spoken(facet: &Facet<'_>) -> String {
    let sums = Sums::over(&facet.cells);
    format!(
        "A map of shares of runs in which strong validity held: a row for each warp size p and number of \
         values |Vc|, a column for each number f of Byzantine processes. Inside the proven frontier it \
         broke in {} of {} runs, beyond it in {} of {}. All numbers are in the table below the figure.",
        sums.broken_inside, sums.inside, sums.broken_beyond, sums.beyond
    )
}

/// Runs on both sides of the frontier.
#[derive(Default)]
struct Sums {
    inside: u64,
    broken_inside: u64,
    beyond: u64,
    broken_beyond: u64,
}

impl Sums {
    fn over(cells: &[&Cell]) -> Self {
        let mut sums = Self::default();
        for cell in cells {
            let (point, counts) = (&cell.point, &cell.counts);
            let inside = largest_f(point).is_some_and(|f| u64::from(point.f) <= f);
            let (runs, broken) = match inside {
                true => (&mut sums.inside, &mut sums.broken_inside),
                false => (&mut sums.beyond, &mut sums.broken_beyond),
            };
            *runs += counts.runs;
            *broken += counts.strong_broken;
        }
        sums
    }
}

/// The most Byzantine processes with strong validity still promised; `None` if there is no such instance.
pub(super) fn largest_f(point: &Point) -> Option<u64> {
    Some(bounds::largest_f(&point.params()?, point.distinct.into()))
}

/// Each once, in order.
pub(super) fn distinct<T: Ord>(items: impl Iterator<Item = T>) -> Vec<T> {
    items.collect::<BTreeSet<T>>().into_iter().collect()
}

fn described(strategy: &str) -> Option<&'static str> {
    Strategy::describe(strategy.split('(').next()?)
}

/// The bound of strong validity (V3); with several append rounds that of K3.
fn bound(cells: &[&Cell]) -> Markup {
    let cost = html! { i { "f" } " (|" i { "V" sub { "c" } } "| + 1) " };
    match cells.iter().any(|cell| cell.point.q > 1) {
        false => html! { (cost) i { "p" } " < " i { "n" } },
        true => html! { (cost) "< " i { "T" } },
    }
}

fn legend(bound: &Markup) -> Vec<(Markup, Markup)> {
    let line = html! {
        svg aria-hidden="true" viewBox="0 0 34 14" width="34" height="14" {
            path class="frontier" d="M1 12H17V2H33" {}
        }
    };
    vec![
        (ramp(), html! { "from: held in all runs, to: in none" }),
        (line, html! { "the proven frontier, " (bound) " on its left" }),
    ]
}

fn words(cell: &Cell) -> String {
    let Point { p, f, distinct, .. } = &cell.point;
    let held = cell.counts.runs.saturating_sub(cell.counts.strong_broken);
    format!("p = {p}, |Vc| = {distinct}, f = {f}: held in {held} of {} runs", cell.counts.runs)
}

/// Numbers of rows and columns, and what they count.
fn axes(frame: Frame, columns: &[u32], rows: &[(u32, u32)], (width, height): (f64, f64)) -> Markup {
    // Numbers must not touch each other.
    let every = (20.0 / width).ceil().max(1.0) as usize;
    let row_of = |row: usize| frame.top + height * row as f64;
    html! {
        g class="axis" {
            text class="title" x="2" y=(px(frame.top - 9.0)) { "p" }
            text class="title end" x=(px(frame.left - 8.0)) y=(px(frame.top - 9.0)) { "|Vc|" }
            @for (row, (p, values)) in rows.iter().enumerate() {
                @if row == 0 || rows[row - 1].0 != *p {
                    @if row > 0 { path class="grid" d=(format!("M0 {}H{}", px(row_of(row)), px(frame.right))) {} }
                    text x="2" y=(px(row_of(row) + height / 2.0 + 3.8)) { (p) }
                }
                text class="end" x=(px(frame.left - 8.0)) y=(px(row_of(row) + height / 2.0 + 3.8)) { (values) }
            }
            @for (column, f) in columns.iter().enumerate().step_by(every) {
                text class="mid" x=(px(frame.left + width * (column as f64 + 0.5))) y=(px(frame.bottom + 14.0)) { (f) }
            }
            text class="title mid" x=(px(f64::midpoint(frame.left, frame.right))) y=(px(frame.bottom + 31.0)) {
                "f (Byzantine processes)"
            }
        }
    }
}

/// Along the right ends of what is inside, row by row; on a wider line in the colour of the page, so that it
/// is seen on every shade.
fn line(rows: &[(f64, f64, f64)]) -> Markup {
    let mut path = String::new();
    for (top, bottom, x) in rows {
        let start =
            if path.is_empty() { format!("M{} {}", px(*x), px(*top)) } else { format!("H{}", px(*x)) };
        path.push_str(&start);
        path.push_str(&format!("V{}", px(*bottom)));
    }
    html! {
        @if !path.is_empty() {
            path class="halo" d=(path) {}
            path class="frontier" d=(path) {}
        }
    }
}

const HELD: [Column; 3] = [
    ("proven up to f", |Cell { point, .. }| field(largest_f(point))),
    ("held", |Cell { counts, .. }| counts.runs.saturating_sub(counts.strong_broken).to_string()),
    ("a seed that broke it", |cell| field(cell.counts.example)),
];
