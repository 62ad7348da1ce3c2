//! The results of a campaign for the terminal: a line for each sweep.

use stickycas_harness::report::table::{align_right, grid};
use stickycas_model::printable::printable;

use crate::campaign::cell::{Cell, Results, Sweep, sum};

/// A line for each sweep, and what people should know besides.
#[must_use]
pub fn table(results: &Results) -> String {
    let mut table = grid([
        "sweep",
        "cells",
        "runs",
        "valid",
        "broken, not\npromised",
        "proves\nnothing",
        "violation",
        "strong\nbroken",
        "on the\nnetwork",
        "differ",
    ]);
    for sweep in &results.sweeps {
        table.add_row(row(sweep));
    }
    align_right(&mut table, 1..);
    let left_out = |count: fn(&Sweep) -> u64| results.sweeps.iter().map(count).sum::<u64>();
    let (impossible, repeated) = (left_out(|sweep| sweep.impossible), left_out(|sweep| sweep.repeated));
    let seconds = results.made.busy_millis as f64 / 1000.0;
    format!(
        "{}: {}\n{table}\nleft out: {impossible} points that cannot be, {repeated} that are there already; \
         {seconds:.1} s on {} processors\n",
        printable(&results.name),
        printable(&results.about),
        results.made.platform.cpus
    )
}

fn row(sweep: &Sweep) -> Vec<String> {
    let sum = |count: fn(&Cell) -> u64| sum(&sweep.cells, count).to_string();
    vec![
        sweep.name.clone(),
        format!("{}/{}", sweep.cells.len(), sweep.planned),
        sum(|cell| cell.counts.runs),
        sum(|cell| cell.counts.valid),
        sum(|cell| cell.counts.outside),
        sum(|cell| cell.counts.unknown),
        sum(|cell| cell.counts.violation),
        sum(|cell| cell.counts.strong_broken),
        sum(|cell| cell.network_runs),
        sum(|cell| cell.network_differences),
    ]
}
