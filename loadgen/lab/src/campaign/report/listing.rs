//! A sweep without a drawing: its cells as a table.

use maud::html;
use stickycas_harness::report::html::figure::{Figure, Table};
use stickycas_harness::report::html::words::counted;

use super::facets::{in_common, order, placement, window};
use crate::campaign::cell::{Cell, Sweep};

pub(super) fn figures(sweep: &Sweep, id: &str) -> Vec<Figure> {
    // The cells with the most violations come first.
    let mut cells: Vec<&Cell> = sweep.cells.iter().collect();
    cells.sort_by_key(|cell| std::cmp::Reverse((cell.counts.violation, cell.counts.outside)));
    let runs = cells.iter().map(|cell| cell.counts.runs).sum();
    vec![Figure {
        id: id.to_owned(),
        title: html! { "What broke" },
        caption: html! {
            p {
                "How many runs broke which property, in " (counted(runs, "run")) " of "
                (counted(cells.len() as u64, "cell")) ". In all cells: " (in_common(&cells).join(", ")) "."
            }
        },
        legend: Vec::new(),
        panels: Vec::new(),
        command: Some(sweep.command.clone()),
        table: table(&cells),
    }]
}

fn table(cells: &[&Cell]) -> Table {
    let row = |cell: &&Cell| {
        let (point, counts) = (&cell.point, &cell.counts);
        let mut row = vec![cell.number.to_string(), point.strategy.clone(), point.arbiter.to_string()];
        row.extend([placement(point.placement), order(point.order), window(point.window)].map(str::to_owned));
        row.extend([point.n, point.p, point.r, point.distinct, point.f].map(|number| number.to_string()));
        row.extend(
            [
                counts.runs,
                counts.agreement_broken,
                counts.termination_broken,
                counts.weak_broken,
                counts.common_broken,
                counts.strong_broken,
                counts.violation,
            ]
            .map(|count| count.to_string()),
        );
        row
    };
    Table {
        head: vec![
            "cell",
            "strategy",
            "arbiter",
            "placement",
            "order",
            "window",
            "n",
            "p",
            "r",
            "|Vc|",
            "f",
            "runs",
            "agreement",
            "termination",
            "weak",
            "common-value",
            "strong",
            "violations",
        ],
        rows: cells.iter().map(row).collect(),
    }
}
