//! The reports of a campaign and of a load for people: one HTML file each that needs nothing else, neither network nor
//! scripts.
//!
//! | where | what |
//! | --- | --- |
//! | `load` | the page of a load |
//! | `page` | the page of a campaign: what was run, what came of it, figures in the order of the sweeps |
//! | `resilience`, `chance`, `phases`, `blame`, `listing` | a figure for each kind of sweep |
//! | `figure` | what all figures have: caption, legend, the command that makes it again, its data as a table |
//! | `facets` | which axes of a sweep tell panels apart |
//! | `chart/` | scales, axes and marks, as SVG |
//! | `style.css` | how it looks: light, dark, printed, on a telephone |
//!
//! All text passes through `maud`, which escapes it: names, strategies and commands come out of files.

mod blame;
mod chance;
mod chart;
mod facets;
mod figure;
mod listing;
mod load;
mod page;
mod phases;
mod resilience;
mod words;

use crate::campaign::cell::Results;
use crate::load::Measured;

/// The report of a campaign, whether it has been finished or not.
#[must_use]
pub fn html(results: &Results) -> String {
    page::page(results).into_string()
}

/// The report of a load.
#[must_use]
pub fn load(measured: &Measured) -> String {
    load::page(measured).into_string()
}
