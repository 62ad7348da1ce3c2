//! What append rounds buy and what they cost: for each number q of them the most Byzantine processes that
//! never broke strong validity, against the phase of the last decision; with both formulas (SPEC K2, K3).

use maud::{Markup, html};
use stickycas_harness::report::html::chart::{
    Drawing, Frame, Scale, Series, bottom_axis, left_axis, line, point, px,
};
use stickycas_harness::report::html::figure::Figure;
use stickycas_model::bounds;

use super::facets::{Column, Facet, field, in_common, panels, table};
use super::resilience::{distinct, largest_f};
use crate::campaign::cell::{Cell, Sweep};

const WIDTH: f64 = 380.0;
const FRAME: Frame = Frame { left: 40.0, right: 366.0, top: 30.0, bottom: 244.0 };

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    let cells: Vec<&Cell> = sweep.cells.iter().collect();
    let values = distinct(cells.iter().map(|cell| cell.point.distinct));
    let sample = |(number, values): (usize, &u32)| {
        (Series(number).sample(), html! { "|" i { "V" sub { "c" } } "| = " (values) })
    };
    vec![Figure {
        id: id.to_owned(),
        title: html! { "Append rounds: resilience against phases" },
        caption: caption(&cells),
        legend: values.iter().enumerate().map(sample).collect(),
        panels: panels(id, &cells, &["q", "f", "|Vc|"], |id, facet| panel(id, facet, &values)),
        command: Some(sweep.command.clone()),
        table: table(&cells, &COLUMNS),
    }]
}

/// A number of append rounds, by formula and as it was counted.
struct Rounds {
    q: u32,
    /// The phase of the last decision, and the most Byzantine processes.
    promised: (u64, u64),
    counted: Option<(u64, u64)>,
}

impl Rounds {
    /// Of cells that differ in f alone, of which there is one.
    fn of(cells: &[&Cell]) -> Option<Self> {
        let params = cells.first()?.point.params()?;
        let phases = bounds::phase_bound(&params, 0).get();
        let largest = bounds::largest_f(&params, cells.first()?.point.distinct.into());
        let broken = |cell: &&&Cell| cell.counts.strong_broken > 0;
        let first_broken = cells.iter().filter(broken).map(|cell| cell.point.f).min().unwrap_or(u32::MAX);
        let held = cells.iter().filter(|cell| cell.point.f < first_broken);
        let most = held.clone().map(|cell| u64::from(cell.point.f)).max();
        let last = held.filter_map(|cell| cell.counts.last_phase).max();
        Some(Self { q: params.append_rounds(), promised: (phases, largest), counted: last.zip(most) })
    }
}

fn panel(id: &str, facet: &Facet<'_>, values: &[u32]) -> Markup {
    let of = |values: u32| {
        let cells: Vec<&Cell> =
            facet.cells.iter().copied().filter(|cell| cell.point.distinct == values).collect();
        let rounds = distinct(cells.iter().map(|cell| cell.point.q));
        let of_rounds = |q: u32| cells.iter().copied().filter(|cell| cell.point.q == q).collect::<Vec<_>>();
        rounds.into_iter().filter_map(|q| Rounds::of(&of_rounds(q))).collect::<Vec<_>>()
    };
    let all: Vec<Vec<Rounds>> = values.iter().map(|values| of(*values)).collect();
    let places = || all.iter().flatten().flat_map(|rounds| [Some(rounds.promised), rounds.counted]).flatten();
    let most = |of: fn((u64, u64)) -> u64| places().map(of).max().unwrap_or(1).max(1) as f64;
    // The last point of a line has its label on the right.
    let x = Scale::linear((0.0, 1.25 * most(|(phase, _)| phase)), (FRAME.left, FRAME.right));
    let y = Scale::linear((0.0, 1.1 * most(|(_, f)| f)), (FRAME.bottom, FRAME.top));
    let at = |(phase, f): (u64, u64)| (x.at(phase as f64), y.at(f as f64));
    let content = html! {
        (left_axis(FRAME, &y.whole_ticks(8), "f without a break"))
        (bottom_axis(FRAME, &x.whole_ticks(8), "last decision (phase)"))
        @for (number, rounds) in all.iter().enumerate() {
            @if let Some(last) = rounds.last() {
                @let (x, y) = at(last.promised);
                text x=(px(x + 9.0)) y=(px(y + 4.0)) { "|Vc| = " (values[number]) }
            }
            (line(&rounds.iter().map(|rounds| at(rounds.promised)).collect::<Vec<_>>(), Series(number)))
            @for rounds in rounds {
                @if let Some(counted) = rounds.counted {
                    (point(at(counted), Series(number), &words(rounds, counted)))
                }
                @if number == 0 {
                    @let (x, y) = at(rounds.promised);
                    text class="end" x=(px(x - 6.0)) y=(px(y - 7.0)) { "q = " (rounds.q) }
                }
            }
        }
    };
    let title = format!("Resilience against phases for each number of append rounds, {}", facet.label);
    let description = "A line for each number of values |Vc|: by formula, the most Byzantine processes with strong \
                       validity promised against the phase of the last decision, from one append round on. Points: as \
                       they were counted. The numbers are in the table below the figure.";
    Drawing { id, title: &title, description, width: WIDTH, height: FRAME.bottom + 42.0 }.svg(&content)
}

fn words(rounds: &Rounds, (phase, f): (u64, u64)) -> String {
    let Rounds { q, promised: (bound, largest), .. } = rounds;
    format!(
        "q = {q}: no break up to f = {f}, promised up to {largest}; last decision in phase {phase}, bound {bound}"
    )
}

fn caption(cells: &[&Cell]) -> Markup {
    html! {
        p {
            "With " i { "q" } " append rounds a warp may append in its first " i { "q" } " phases, and no process wins "
            "twice. " i { "Lines" } ": by formula, phases " i { "W" } " (" i { "q" } " + \u{2308}" i { "T/r" } "\u{2309}) and "
            "the largest " i { "f" } " with " i { "f" } " (|" i { "V" sub { "c" } } "| + 1) < " i { "T" } ", for each "
            i { "q" } "; one round is the paper\u{2019}s, and as many as a warp has members are the best that any algorithm "
            "can have. " i { "Points" } ": the largest " i { "f" } " up to which no run broke strong validity, and the "
            "latest phase in which a run had its last decision. In all cells: " (in_common(cells)) "."
        }
    }
}

const COLUMNS: [Column; 4] = [
    ("proven up to f", |cell| field(largest_f(&cell.point))),
    ("broke", |cell| cell.counts.strong_broken.to_string()),
    ("latest", |cell| field(cell.counts.last_phase)),
    ("bound W(q+c)", |cell| cell.phase_bound.to_string()),
];
