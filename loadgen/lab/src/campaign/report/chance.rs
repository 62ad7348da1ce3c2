//! How likely strong validity breaks: the closed form of [`stickycas_model::chance`] as a line, through what
//! was counted with its 99 % intervals.

use crate::chance::{Rank, byzantine_entries, byzantine_entries_if_drawn, drawn_proposals};
use maud::{Markup, html};
use stickycas_harness::fault_plan::{FaultPlan, Placement};
use stickycas_harness::files::instance::Arbiter;
use stickycas_harness::proposals;
use stickycas_harness::report::html::chart::{
    Drawing, Frame, Scale, Series, bottom_axis, left_axis, line, mark, point, px, whisker,
};
use stickycas_harness::report::html::figure::Figure;
use stickycas_harness::report::html::words::counted;
use stickycas_harness::stats::{Interval, Z_99};
use stickycas_model::byzantine::{Collude, Silent, Strategy};
use stickycas_model::ground_truth::Role;
use stickycas_model::params::{AppendWindow, Params};
use stickycas_model::types::ProcessId;

use super::facets::{Column, Facet, in_common, panels, table};
use super::resilience::{distinct, largest_f};
use crate::campaign::cell::{Cell, NO_STRATEGY, Point, Sweep};

const WIDTH: f64 = 380.0;
/// The height of a line that shows how far the theorem's promise goes.
const PROMISE: f64 = 15.0;
const FRAME: Frame = Frame { left: 40.0, right: 370.0, top: 34.0, bottom: 244.0 };
/// The most entries, and the most values, that the formula is computed for: it takes milliseconds up to
/// there.
const LARGEST: (u32, u32) = (256, 16);
/// Up to this f a line has a place for every f, beyond only for those that were counted.
const FINE: u32 = 128;

/// The probability that strong validity breaks in a run of this cell, over all seeds. `None` where there is
/// no formula for it: it takes colluders who append in their first access, and an arbiter that does not
/// depend on the order of arrival.
pub(super) fn closed_form(at: &Point) -> Option<f64> {
    if at.f == 0 || at.strategy == NO_STRATEGY {
        return Some(0.0);
    }
    let Ok(Strategy::Collude(Collude { value })) = at.strategy.parse() else { return None };
    if at.window != AppendWindow::FirstAccess || at.distinct == 0 || at.f.checked_add(at.distinct)? > at.n {
        return None;
    }
    let params = at.params()?;
    if params.counted_entries() > LARGEST.0 || at.distinct > LARGEST.1 {
        return None;
    }
    let rank = Rank::of(&value, proposals::values(at.distinct));
    let entries = match (&at.arbiter, at.placement) {
        (Arbiter::FirstCome | Arbiter::Priority(_), _) | (Arbiter::ByzantineFirst, Placement::Random) => {
            return None;
        }
        (Arbiter::Uniform, Placement::Random) => {
            byzantine_entries_if_drawn(at.n, at.f, params.counted_entries())
        }
        (Arbiter::Uniform, _) => byzantine_entries(warps(at, &params)?, at.q),
        (Arbiter::ByzantineFirst, _) => {
            // As if it had no other members than those that win.
            let winners = |(members, byzantine): (u32, u32)| (members.min(at.q), byzantine.min(at.q));
            byzantine_entries(warps(at, &params)?.into_iter().map(winners), at.q)
        }
    };
    Some(drawn_proposals(&entries, at.n - at.f, at.distinct, rank))
}

/// Of each warp the number of its members and of the Byzantine ones, by the fault plan that the runs were
/// made with.
fn warps(at: &Point, params: &Params) -> Option<Vec<(u32, u32)>> {
    let mut plan = FaultPlan::default();
    plan.place(at.placement, at.f, &Role::Byzantine(Strategy::Silent(Silent)), params, 0).ok()?;
    let processes: Vec<ProcessId> = ProcessId::all(at.n).collect();
    let members = |warp: &[ProcessId]| {
        let byzantine = warp.iter().filter(|process| plan.role(**process).is_some()).count();
        (warp.len() as u32, byzantine as u32)
    };
    Some(processes.chunks(at.p as usize).map(members).collect())
}

/// The share counted in a cell, beside the computed one.
struct Counted<'a> {
    cell: &'a Cell,
    share: f64,
    interval: Interval,
    computed: Option<f64>,
}

impl<'a> Counted<'a> {
    fn of(cell: &'a Cell) -> Option<Self> {
        let (broken, runs) = (cell.counts.strong_broken, cell.counts.runs);
        let interval = Interval::wilson(broken, runs, Z_99)?;
        Some(Self { cell, share: broken as f64 / runs as f64, interval, computed: closed_form(&cell.point) })
    }

    fn agrees(&self) -> Option<bool> {
        self.computed.map(|computed| self.interval.contains(computed))
    }
}

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    let cells: Vec<&Cell> = sweep.cells.iter().collect();
    let values = distinct(cells.iter().map(|cell| cell.point.distinct));
    vec![Figure {
        id: id.to_owned(),
        title: html! { "The chance that strong validity breaks" },
        caption: caption(&cells),
        legend: values
            .iter()
            .enumerate()
            .map(|(number, values)| {
                (Series(number).sample(), html! { "|" i { "V" sub { "c" } } "| = " (values) })
            })
            .collect(),
        panels: panels(id, &cells, &["f", "|Vc|"], |id, facet| panel(id, facet, &values)),
        command: Some(sweep.command.clone()),
        table: table(&cells, &BROKE),
    }]
}

fn panel(id: &str, facet: &Facet<'_>, values: &[u32]) -> Markup {
    let last_f = facet.cells.iter().map(|cell| cell.point.f).max().unwrap_or(0);
    let x = Scale::linear((0.0, f64::from(last_f)), (FRAME.left, FRAME.right));
    let y = Scale::linear((0.0, 1.0), (FRAME.bottom, FRAME.top));
    let lines = values.iter().enumerate().map(|(number, values)| {
        let cells: Vec<&Cell> =
            facet.cells.iter().copied().filter(|cell| cell.point.distinct == *values).collect();
        let row = FRAME.bottom + 50.0 + PROMISE * number as f64;
        html! { (graph(&cells, Series(number), &x, &y)) (promise(&cells, Series(number), &x, row)) }
    });
    let content = html! {
        (left_axis(FRAME, &y.percent_ticks(), "runs in which strong validity breaks (%)"))
        (bottom_axis(FRAME, &x.whole_ticks(8), "f (Byzantine processes)"))
        @for line in lines { (line) }
    };
    let height = FRAME.bottom + 46.0 + PROMISE * values.len() as f64;
    let title = format!("Breaks of strong validity against f, {}", facet.label);
    let description = "A line for each number of values |Vc|: the computed probability. Points: the share that was \
                       counted, with its 99 % interval. Lines below the axis: up to which f the theorem promises \
                       that it holds. The numbers are in the table below the figure.";
    Drawing { id, title: &title, description, width: WIDTH, height }.svg(&content)
}

/// The computed line, and what was counted.
fn graph(cells: &[&Cell], series: Series, x: &Scale, y: &Scale) -> Markup {
    let computed: Vec<(f64, f64)> = match (cells.first(), cells.iter().map(|cell| cell.point.f).max()) {
        (Some(first), Some(last)) => {
            // The strategy is that of cells with Byzantine processes.
            let of = cells.iter().find(|cell| cell.point.f > 0).unwrap_or(first);
            let at = |f| closed_form(&Point { f, ..of.point.clone() }).map(|chance| (f, chance));
            let fine = if last <= FINE { (0..=last).collect() } else { Vec::new() };
            distinct(cells.iter().map(|cell| cell.point.f).chain(fine))
                .into_iter()
                .filter_map(at)
                .map(|(f, chance)| (x.at(f64::from(f)), y.at(chance)))
                .collect()
        }
        _ => Vec::new(),
    };
    let counted: Vec<Counted<'_>> = cells.iter().filter_map(|cell| Counted::of(cell)).collect();
    html! {
        (line(&computed, series))
        @for counted in &counted {
            @let place = x.at(f64::from(counted.cell.point.f));
            (whisker(place, y.at(counted.interval.low), y.at(counted.interval.high), series))
            (point((place, y.at(counted.share)), series, &words(counted)))
        }
    }
}

/// Up to which f strong validity is promised under any arbiter, as a line of its own below the axis.
fn promise(cells: &[&Cell], series: Series, x: &Scale, row: f64) -> Markup {
    let first = cells.first();
    let largest = first.and_then(|cell| largest_f(&cell.point));
    html! {
        @if let Some((cell, f)) = first.zip(largest) {
            @let end = x.at(f as f64).min(FRAME.right - 130.0);
            (line(&[(x.at(0.0), row), (end, row)], series))
            (mark((end, row), series))
            text x=(px(end + 9.0)) y=(px(row + 3.5)) { "|Vc| = " (cell.point.distinct) ": promised to f = " (f) }
        }
    }
}

fn words(counted: &Counted<'_>) -> String {
    let Counted { cell, share, interval, computed } = counted;
    let computed =
        computed.map_or("no formula".to_owned(), |chance| format!("computed {:.2} %", 100.0 * chance));
    format!(
        "f = {}, |Vc| = {}: {computed}, counted {:.2} % of {} runs, 99 % interval {:.2} to {:.2} %",
        cell.point.f,
        cell.point.distinct,
        100.0 * share,
        cell.counts.runs,
        100.0 * interval.low,
        100.0 * interval.high
    )
}

fn caption(cells: &[&Cell]) -> Markup {
    let judged: Vec<bool> = cells.iter().filter_map(|cell| Counted::of(cell)?.agrees()).collect();
    let agree = judged.iter().filter(|agrees| **agrees).count();
    html! {
        p {
            "The paper's proof lets a Byzantine process win every warp that it is in; its Remarks suggest \u{201c}a "
            "more optimistic probabilistic fault model, where, e.g., all threads have equal chances of "
            "success\u{201d}. This is "
            "that model. " i { "Lines" } ": the probability of a break, computed in closed form, averaged over the "
            "draws of proposals. " i { "Points" } ": the share of runs that broke, with its 99 % interval (Wilson). "
            i { "Below the axis" } ": up to which f strong validity is promised, whoever wins. "
            "In all cells: " (in_common(cells)) "."
        }
        @if !judged.is_empty() {
            p {
                "The closed form lies within the interval "
                "at " strong { (agree) " of " (counted(judged.len() as u64, "point")) }
                "; with 99 % intervals, " (format!("{:.1}", judged.len() as f64 / 100.0)) " of them are expected to "
                "miss it. Derivation: docs/theory/chance.md."
            }
        }
    }
}

const BROKE: [Column; 5] = [
    ("broke", |cell| cell.counts.strong_broken.to_string()),
    ("broke, %", |cell| of(cell, |counted| percent(counted.share))),
    ("99 % interval, %", |cell| {
        of(cell, |counted| format!("{} to {}", percent(counted.interval.low), percent(counted.interval.high)))
    }),
    ("computed, %", |cell| of(cell, |counted| counted.computed.map(percent).unwrap_or_default())),
    ("within", |cell| {
        let word = |agrees| if agrees { "yes" } else { "no" };
        of(cell, |counted| counted.agrees().map(word).unwrap_or_default().to_owned())
    }),
];

fn of(cell: &Cell, field: impl FnOnce(&Counted<'_>) -> String) -> String {
    Counted::of(cell).map(|counted| field(&counted)).unwrap_or_default()
}

fn percent(chance: f64) -> String {
    format!("{:.3}", 100.0 * chance)
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::Order;

    use super::*;

    fn at(n: u32, p: u32, f: u32, arbiter: Arbiter) -> Point {
        Point {
            n,
            p,
            r: 1,
            f,
            distinct: 1,
            strategy: "collude(value=0)".to_owned(),
            placement: Placement::Spread,
            arbiter,
            order: Order::Ascending,
            window: AppendWindow::FirstAccess,
            q: 1,
        }
    }

    fn is(chance: Option<f64>, expected: f64) -> bool {
        chance.is_some_and(|chance| (chance - expected).abs() < 1e-12)
    }

    #[test]
    fn the_fault_plan_says_how_many_byzantine_members_each_warp_has() {
        // Warps 1 2 | 3 4 | 5: two of three entries break it; processes 1, 3 and 5 collude, and 5 is alone.
        assert!(is(closed_form(&at(5, 2, 3, Arbiter::Uniform)), 0.75));
        assert!(is(closed_form(&at(5, 2, 3, Arbiter::ByzantineFirst)), 1.0));
        let packed = Point { placement: Placement::Packed, ..at(5, 2, 3, Arbiter::Uniform) };
        assert!(is(closed_form(&packed), 0.5));
        let larger =
            Point { strategy: "collude(value=z)".to_owned(), ..at(4, 2, 2, Arbiter::ByzantineFirst) };
        assert!(is(closed_form(&larger), 1.0));
        let proposed = Point { strategy: "collude(value=v1)".to_owned(), ..larger };
        assert!(is(closed_form(&proposed), 0.0));
        assert!(is(closed_form(&at(5, 2, 0, Arbiter::FirstCome)), 0.0));
        // In two append rounds all five win: three of five entries break it, and two do not.
        let rounds = |f, arbiter| closed_form(&Point { q: 2, ..at(5, 2, f, arbiter) });
        assert!(is(rounds(3, Arbiter::Uniform), 1.0));
        assert!(is(rounds(2, Arbiter::ByzantineFirst), 0.0));
    }

    #[test]
    fn where_there_is_no_formula_none_is_made_up() {
        let none = [
            at(5, 2, 3, Arbiter::FirstCome),
            Point { strategy: "silent".to_owned(), ..at(5, 2, 3, Arbiter::Uniform) },
            Point { placement: Placement::Random, ..at(5, 2, 3, Arbiter::ByzantineFirst) },
            Point { window: AppendWindow::Open, ..at(5, 2, 3, Arbiter::Uniform) },
            at(5, 0, 3, Arbiter::Uniform),
            at(5, 2, 9, Arbiter::Uniform),
        ];
        assert!(none.iter().all(|point| closed_form(point).is_none()));
    }
}
