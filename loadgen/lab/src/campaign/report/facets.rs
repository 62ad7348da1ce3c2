//! The axes of a sweep that differ: they tell its panels apart; all other axes are named once.

use maud::Markup;
use stickycas_harness::files::schema::word;
use stickycas_harness::report::html::figure::{Panel, Table};

use crate::campaign::cell::{Cell, NO_STRATEGY, Point};

/// An axis of a campaign: its name, and where a point lies on it.
type Axis = (&'static str, fn(&Point) -> String);

const AXES: [Axis; 11] = [
    ("n", |point| point.n.to_string()),
    ("p", |point| point.p.to_string()),
    ("r", |point| point.r.to_string()),
    (ROUNDS, |point| point.q.to_string()),
    ("|Vc|", |point| point.distinct.to_string()),
    ("f", |point| point.f.to_string()),
    ("strategy", |point| point.strategy.clone()),
    ("placement", |point| word(&point.placement)),
    ("arbiter", |point| word(&point.arbiter)),
    ("order", |point| word(&point.order)),
    ("window", |point| word(&point.window)),
];

/// The axis of append rounds.
const ROUNDS: &str = "q";

/// The axes of these cells: that of append rounds only if any cell has several.
fn axes(cells: &[&Cell]) -> impl Iterator<Item = Axis> + Clone {
    let has_rounds = cells.iter().any(|cell| cell.point.q > 1);
    AXES.into_iter().filter(move |(name, _)| has_rounds || *name != ROUNDS)
}

/// Where the point lies on an axis, with its name.
fn label((name, value): Axis, point: &Point) -> String {
    let value = value(point);
    match name {
        "strategy" => value,
        "arbiter" | "window" => format!("{name} {value}"),
        "placement" | "order" => format!("{value} {name}"),
        _ => format!("{name} = {value}"),
    }
}

/// Whether the point has a place on an axis: without Byzantine processes there is no strategy and no
/// placement.
fn matters_to((name, _): Axis, point: &Point) -> bool {
    !(matches!(name, "strategy" | "placement") && point.strategy == NO_STRATEGY)
}

/// Cells that lie on one point of all axes but some.
pub(super) struct Facet<'a> {
    /// Where that is, as far as it is not the same for all facets; empty if there is one.
    pub(super) label: String,
    pub(super) cells: Vec<&'a Cell>,
}

/// A panel for each facet of these cells, each drawn under an id of its own. `within`: the names of the axes
/// within a panel.
pub(super) fn panels<'a>(
    id: &str,
    cells: &[&'a Cell],
    within: &[&str],
    draw: impl Fn(&str, &Facet<'a>) -> Markup,
) -> Vec<Panel> {
    let panel = |(number, facet): (usize, Facet<'a>)| Panel {
        drawing: draw(&format!("{id}-{number}"), &facet),
        label: facet.label,
    };
    facets(cells, within).into_iter().enumerate().map(panel).collect()
}

/// The cells by where they lie on all axes but `within`, in the order in which they come. Cells without
/// Byzantine processes belong to every strategy and placement.
fn facets<'a>(cells: &[&'a Cell], within: &[&str]) -> Vec<Facet<'a>> {
    let across: Vec<Axis> = axes(cells).filter(|(name, _)| !within.contains(name)).collect();
    let together = |one: &Point, other: &Point| {
        let same = |axis: &&Axis| matters_to(**axis, one) && matters_to(**axis, other);
        across.iter().filter(same).all(|(_, value)| value(one) == value(other))
    };
    let mut facets: Vec<Facet<'a>> = Vec::new();
    // Those without Byzantine processes last: they join the facets that there are.
    let (nobody, somebody): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().copied().partition(|cell| cell.point.strategy == NO_STRATEGY);
    for cell in somebody.into_iter().chain(nobody) {
        let mut joined = false;
        for facet in facets.iter_mut().filter(|facet| together(&facet.cells[0].point, &cell.point)) {
            facet.cells.push(cell);
            joined = true;
        }
        if !joined {
            let differing = across.iter().filter(|axis| differs(cells, **axis));
            let texts: Vec<String> = differing.map(|axis| label(*axis, &cell.point)).collect();
            facets.push(Facet { label: texts.join(", "), cells: vec![cell] });
        }
    }
    facets
}

/// The values that all cells have in common, axis by axis.
pub(super) fn in_common(cells: &[&Cell]) -> String {
    let Some(first) = cells.iter().find(|cell| cell.point.strategy != NO_STRATEGY).or(cells.first()) else {
        return String::new();
    };
    let same = axes(cells).filter(|axis| matters_to(*axis, &first.point) && !differs(cells, *axis));
    same.map(|axis| label(axis, &first.point)).collect::<Vec<_>>().join(", ")
}

fn differs(cells: &[&Cell], axis: Axis) -> bool {
    let points = cells.iter().map(|cell| &cell.point).filter(|point| matters_to(axis, point));
    let mut values = points.map(axis.1);
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// A column of a table of cells: its name, and its field of a cell.
pub(super) type Column = (&'static str, fn(&Cell) -> String);

/// A row for each cell: where it lies, and these columns.
pub(super) fn table(cells: &[&Cell], own: &[Column]) -> Table {
    let row = |cell: &&Cell| {
        let place = axes(cells).map(|(_, value)| value(&cell.point));
        let own = own.iter().map(|(_, field)| field(cell));
        let numbers = |number: u64| std::iter::once(number.to_string());
        numbers(cell.number).chain(place).chain(numbers(cell.counts.runs)).chain(own).collect()
    };
    let names = axes(cells).map(|(name, _)| name).chain(["runs"]).chain(own.iter().map(|(name, _)| *name));
    Table { head: ["cell"].into_iter().chain(names).collect(), rows: cells.iter().map(row).collect() }
}

/// A number as a field; nothing if there is none.
pub(super) fn field(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
