//! The axes of a sweep that differ: they tell its panels apart; all other axes are named once.

use stickycas_harness::fault_plan::Placement;
use stickycas_harness::report::html::figure::Table;
use stickycas_model::params::{AppendWindow, Order};

use crate::campaign::cell::{Cell, NO_STRATEGY, Point};

/// An axis of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    N,
    P,
    R,
    F,
    Distinct,
    Strategy,
    Placement,
    Arbiter,
    Order,
    Window,
}

impl Axis {
    const ALL: [Self; 10] = [
        Self::N,
        Self::P,
        Self::R,
        Self::F,
        Self::Distinct,
        Self::Strategy,
        Self::Placement,
        Self::Arbiter,
        Self::Order,
        Self::Window,
    ];

    /// Where the point lies on this axis, as text.
    fn of(self, point: &Point) -> String {
        match self {
            Self::N => format!("n = {}", point.n),
            Self::P => format!("p = {}", point.p),
            Self::R => format!("r = {}", point.r),
            Self::F => format!("f = {}", point.f),
            Self::Distinct => format!("|Vc| = {}", point.distinct),
            Self::Strategy => point.strategy.clone(),
            Self::Placement => format!("{} placement", placement(point.placement)),
            Self::Arbiter => format!("arbiter {}", point.arbiter),
            Self::Order => format!("{} order", order(point.order)),
            Self::Window => format!("window {}", window(point.window)),
        }
    }

    /// Whether the point has a place on this axis: without Byzantine processes there is no strategy and no
    /// placement.
    fn matters_to(self, point: &Point) -> bool {
        let about_byzantine = matches!(self, Self::Strategy | Self::Placement);
        !(about_byzantine && point.strategy == NO_STRATEGY)
    }
}

/// Cells that lie on one point of all axes but some.
pub(super) struct Facet<'a> {
    /// Where that is, as far as it is not the same for all facets; empty if there is one.
    pub(super) label: String,
    pub(super) cells: Vec<&'a Cell>,
}

/// The cells by where they lie on all axes but `within`, in the order in which they come. Cells without
/// Byzantine processes belong to every strategy and placement.
pub(super) fn facets<'a>(cells: &[&'a Cell], within: &[Axis]) -> Vec<Facet<'a>> {
    let across: Vec<Axis> = Axis::ALL.into_iter().filter(|axis| !within.contains(axis)).collect();
    let differing: Vec<Axis> = across.iter().copied().filter(|axis| differs(cells, *axis)).collect();
    let together = |one: &Point, other: &Point| {
        let same = |axis: &&Axis| axis.matters_to(one) && axis.matters_to(other);
        across.iter().filter(same).all(|axis| axis.of(one) == axis.of(other))
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
            let texts: Vec<String> = differing.iter().map(|axis| axis.of(&cell.point)).collect();
            facets.push(Facet { label: texts.join(", "), cells: vec![cell] });
        }
    }
    facets
}

/// The values that all cells have in common, axis by axis.
pub(super) fn in_common(cells: &[&Cell]) -> Vec<String> {
    let Some(first) = cells.iter().find(|cell| cell.point.strategy != NO_STRATEGY).or(cells.first()) else {
        return Vec::new();
    };
    let same = |axis: &Axis| axis.matters_to(&first.point) && !differs(cells, *axis);
    Axis::ALL.into_iter().filter(same).map(|axis| axis.of(&first.point)).collect()
}

fn differs(cells: &[&Cell], axis: Axis) -> bool {
    let mut texts = cells.iter().filter(|cell| axis.matters_to(&cell.point)).map(|cell| axis.of(&cell.point));
    let first = texts.next();
    texts.any(|text| Some(text) != first)
}

/// The name of a placement. A column of a table of cells: its name, and its field of a cell.
pub(super) type Column = (&'static str, fn(&Cell) -> String);

/// The columns that every table of cells begins with.
const OF_ALL: [Column; 12] = [
    ("cell", |cell| cell.number.to_string()),
    ("strategy", |cell| cell.point.strategy.clone()),
    ("arbiter", |cell| cell.point.arbiter.to_string()),
    ("placement", |cell| placement(cell.point.placement).to_owned()),
    ("order", |cell| order(cell.point.order).to_owned()),
    ("window", |cell| window(cell.point.window).to_owned()),
    ("n", |cell| cell.point.n.to_string()),
    ("p", |cell| cell.point.p.to_string()),
    ("r", |cell| cell.point.r.to_string()),
    ("|Vc|", |cell| cell.point.distinct.to_string()),
    ("f", |cell| cell.point.f.to_string()),
    ("runs", |cell| cell.counts.runs.to_string()),
];

/// A row for each cell: where it lies, and these columns.
pub(super) fn table(cells: &[&Cell], own: &[Column]) -> Table {
    let columns = || OF_ALL.iter().chain(own);
    Table {
        head: columns().map(|(name, _)| *name).collect(),
        rows: cells.iter().map(|cell| columns().map(|(_, field)| field(cell)).collect()).collect(),
    }
}

/// A number as a field; nothing if there is none.
pub(super) fn field(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

fn placement(placement: Placement) -> &'static str {
    match placement {
        Placement::Spread => "spread",
        Placement::Packed => "packed",
        Placement::Random => "random",
    }
}

/// The name of an order of warps.
fn order(order: Order) -> &'static str {
    match order {
        Order::Ascending => "ascending",
        Order::Descending => "descending",
        Order::Shuffled => "shuffled",
    }
}

/// The name of an append window.
fn window(window: AppendWindow) -> &'static str {
    match window {
        AppendWindow::FirstAccess => "first_access",
        AppendWindow::Open => "open",
    }
}
