//! The reports of a campaign, and the files that they stand in.
//!
//! | where | what |
//! | --- | --- |
//! | `table` | for the terminal |
//! | `page` | the page: the campaign, the results, figures in the order of the sweeps |
//! | `resilience`, `chance`, `phases`, `blame`, `listing` | a figure for each kind of sweep |
//! | `facets` | the axes of a sweep that tell panels apart |
//!
//! | file | content |
//! | --- | --- |
//! | `results.json` | [`Results`] |
//! | `results.csv` | a line for each cell |
//! | `report.html` | the same for people, in one file that needs no network |
//!
//! Each appears whole or not at all. Beside them stands the journal from which they follow, see
//! [`crate::campaign::journal`].

mod blame;
mod chance;
mod facets;
mod listing;
mod page;
mod phases;
mod resilience;
mod table;

use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::report::json::text;

pub use self::table::table;
use crate::campaign::cell::{Cell, Results, Sweep};

/// Writes the results into a folder, each file in the place of an older one.
///
/// # Errors
/// If a file cannot be written.
pub fn write(results: &Results, folder: &Path) -> anyhow::Result<()> {
    let files =
        [("results.json", json(results)), ("results.csv", csv(results)), ("report.html", html(results))];
    for (name, content) in files {
        let path = folder.join(name);
        replace_file(&path, content.as_bytes())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The content of `report.html`, whether the campaign has been finished or not.
#[must_use]
pub fn html(results: &Results) -> String {
    page::page(results).into_string()
}

/// The content of `results.json`.
#[must_use]
pub fn json(results: &Results) -> String {
    text(results)
}

/// The content of `results.csv`: the names of the columns, and a line for each cell. The columns are the
/// fields of a cell, those of its point among them, after the name of its sweep; a missing value is empty.
#[must_use]
pub fn csv(results: &Results) -> String {
    let mut table = csv::Writer::from_writer(Vec::new());
    let cells =
        results.sweeps.iter().flat_map(|sweep| sweep.cells.iter().map(move |cell| fields(sweep, cell)));
    for (line, fields) in cells.enumerate() {
        let (names, values): (Vec<&str>, Vec<String>) = fields.into_iter().unzip();
        let named = if line == 0 { table.write_record(names) } else { Ok(()) };
        let written = named.and_then(|()| table.write_record(values));
        written.expect("memory takes everything, and every line has the same columns");
    }
    let bytes = table.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("texts were written")
}

fn fields(sweep: &Sweep, cell: &Cell) -> Vec<(&'static str, String)> {
    let Cell { number, point, first_seed, phase_bound, counts, network_runs, network_differences, command } =
        cell;
    let some = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
    vec![
        ("sweep", sweep.name.clone()),
        ("number", number.to_string()),
        ("n", point.n.to_string()),
        ("p", point.p.to_string()),
        ("r", point.r.to_string()),
        ("f", point.f.to_string()),
        ("distinct", point.distinct.to_string()),
        ("strategy", point.strategy.clone()),
        ("placement", name_of(&point.placement)),
        ("arbiter", name_of(&point.arbiter)),
        ("order", name_of(&point.order)),
        ("window", name_of(&point.window)),
        ("first_seed", first_seed.to_string()),
        ("runs", counts.runs.to_string()),
        ("valid", counts.valid.to_string()),
        ("outside", counts.outside.to_string()),
        ("unknown", counts.unknown.to_string()),
        ("violation", counts.violation.to_string()),
        ("agreement_broken", counts.agreement_broken.to_string()),
        ("termination_broken", counts.termination_broken.to_string()),
        ("weak_broken", counts.weak_broken.to_string()),
        ("common_broken", counts.common_broken.to_string()),
        ("strong_broken", counts.strong_broken.to_string()),
        ("common_promised", counts.common_promised.to_string()),
        ("strong_promised", counts.strong_promised.to_string()),
        ("first_phase", some(counts.first_phase)),
        ("last_phase", some(counts.last_phase)),
        ("phase_bound", phase_bound.to_string()),
        ("culprits", counts.culprits.to_string()),
        ("named", counts.named.to_string()),
        ("blamed", counts.blamed.to_string()),
        ("accused", counts.accused.to_string()),
        ("example", some(counts.example)),
        ("network_runs", network_runs.to_string()),
        ("network_differences", network_differences.to_string()),
        ("command", command.clone()),
    ]
}

/// A name as it stands in files.
fn name_of(name: &impl Serialize) -> String {
    match serde_json::to_value(name) {
        Ok(Value::String(name)) => name,
        other => unreachable!("an axis of names has a name: {other:?}"),
    }
}
