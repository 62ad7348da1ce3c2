//! A sweep without a drawing: its cells as a table.

use maud::html;
use stickycas_harness::report::html::figure::Figure;
use stickycas_harness::report::html::words::counted;

use super::facets::{Column, in_common, table};
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
                (counted(cells.len() as u64, "cell")) ". In all cells: " (in_common(&cells)) "."
            }
        },
        legend: Vec::new(),
        panels: Vec::new(),
        command: Some(sweep.command.clone()),
        table: table(&cells, &BROKEN),
    }]
}

const BROKEN: [Column; 6] = [
    ("agreement", |cell| cell.counts.agreement_broken.to_string()),
    ("termination", |cell| cell.counts.termination_broken.to_string()),
    ("weak", |cell| cell.counts.weak_broken.to_string()),
    ("common-value", |cell| cell.counts.common_broken.to_string()),
    ("strong", |cell| cell.counts.strong_broken.to_string()),
    ("violations", |cell| cell.counts.violation.to_string()),
];
