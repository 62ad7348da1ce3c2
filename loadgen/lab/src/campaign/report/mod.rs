//! The reports of a campaign, and the files that they stand in.
//!
//! | where | what |
//! | --- | --- |
//! | `table` | for the terminal |
//! | `page` | the page: the campaign, the results, figures in the order of the sweeps |
//! | `resilience`, `chance`, `phases`, `blame`, `tradeoff`, `listing` | a figure for each kind of sweep |
//! | `facets` | the axes of a sweep that tell panels apart |
//!
//! | file | content |
//! | --- | --- |
//! | `results.json` | [`Results`] |
//! | `results.csv` | a line for each cell |
//! | `report.html` | the same for people, in one file that needs no network |
//! | `figures/` | its drawings, as SVG |
//!
//! Each file appears whole or not at all. Beside them stands the journal from which they follow, see
//! [`crate::campaign::journal`].

mod blame;
mod chance;
mod facets;
mod listing;
mod page;
mod phases;
mod resilience;
mod table;
mod tradeoff;

use std::path::Path;

use anyhow::Context;
use stickycas_harness::atomic_files::replace_file;
use stickycas_harness::report::html::svg;
use stickycas_harness::report::json::text;

pub use self::table::table;
use crate::campaign::cell::{Cell, Results};

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
    let figures = page::figures(results);
    svg::write(figures.iter().map(|(number, figure)| (*number, figure)), folder)
        .with_context(|| format!("cannot write {}", folder.join("figures").display()))
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
    let mut table = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    let mut written = table.write_record(COLUMNS.split_whitespace());
    for (sweep, cell) in
        results.sweeps.iter().flat_map(|sweep| sweep.cells.iter().map(move |cell| (sweep, cell)))
    {
        let Cell { number, point, first_seed, phase_bound, counts, .. } = cell;
        let network = (cell.network_runs, cell.network_differences);
        let row =
            (&sweep.name, number, point, first_seed.to_string(), phase_bound, counts, network, &cell.command);
        written = written.and_then(|()| table.serialize(row));
    }
    written.expect("memory takes everything, and every line has the same columns");
    let bytes = table.into_inner().expect("memory takes everything");
    String::from_utf8(bytes).expect("texts were written")
}

/// The columns of `results.csv`: the fields of a sweep and of its cell, in their order.
const COLUMNS: &str = "\
sweep number n p r f distinct strategy placement arbiter order window q first_seed phase_bound runs valid outside unknown \
violation agreement_broken termination_broken weak_broken common_broken strong_broken common_promised strong_promised \
first_phase last_phase culprits named blamed accused example network_runs network_differences command";
