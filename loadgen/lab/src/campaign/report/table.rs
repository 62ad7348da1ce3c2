//! The results of a campaign for the terminal: a line for each sweep.

use stickycas_harness::report::grid::{align_right, counted, fits, grid, grouped, leave_out, width, wrapped};
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
    // The runs over the network, if there are none; then what matters least.
    let made_none = results.cells().all(|cell| cell.network_runs == 0);
    leave_out(&mut table, if made_none { &[8, 9, 1, 7] } else { &[1, 7] });
    let table = if fits(&table) { format!("{table}\n") } else { lines(results) };
    let about = wrapped(&printable(&results.about), width(), "  ", "  ");
    format!("{}\n{about}{table}{}{}\n", printable(&results.name), left_out(results), took(results))
}

/// The same where a table does not fit.
fn lines(results: &Results) -> String {
    let line = |sweep: &Sweep| {
        let sum = |count: fn(&Cell) -> u64| grouped(sum(&sweep.cells, count));
        let text = format!(
            "{}: {}: {} valid, {} broken, not promised, {} proves nothing, {}; over the network {}, of which {} differ",
            sweep.name,
            counted(sweep.cells.iter().map(|cell| cell.counts.runs).sum(), "run"),
            sum(|cell| cell.counts.valid),
            sum(|cell| cell.counts.outside),
            sum(|cell| cell.counts.unknown),
            counted(sweep.cells.iter().map(|cell| cell.counts.violation).sum(), "violation"),
            sum(|cell| cell.network_runs),
            sum(|cell| cell.network_differences),
        );
        wrapped(&text, width(), "  ", "    ")
    };
    results.sweeps.iter().map(line).collect()
}

/// The points of the axes that are no cells, if there are any.
fn left_out(results: &Results) -> String {
    let points = |count: fn(&Sweep) -> u64| results.sweeps.iter().map(count).sum::<u64>();
    let impossible = points(|sweep| sweep.impossible);
    let repeated = points(|sweep| sweep.repeated);
    match (impossible, repeated) {
        (0, 0) => String::new(),
        (impossible, 0) => format!("left out: {}\n", counted(impossible, "impossible point")),
        (0, repeated) => format!("left out: {}\n", counted(repeated, "repeated point")),
        (impossible, repeated) => format!(
            "left out: {}, {}\n",
            counted(impossible, "impossible point"),
            counted(repeated, "repeated point")
        ),
    }
}

fn took(results: &Results) -> String {
    let seconds = results.made.busy_millis as f64 / 1000.0;
    format!("{seconds:.1} s on {}", counted(results.made.platform.cpus, "processor"))
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
