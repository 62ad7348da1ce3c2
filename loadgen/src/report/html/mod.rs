//! The reports of a campaign and of a load for people: one HTML file each that needs nothing else, neither network nor
//! scripts.
//!
//! | where | what |
//! | --- | --- |
//! | `load`, `limit` | the page of a load, and that of a search for the limit |
//! | `page` | the page of a campaign: what was run, what came of it, figures in the order of the sweeps |
//! | `resilience`, `chance`, `phases`, `blame`, `listing` | a figure for each kind of sweep |
//! | `document` | what every page has |
//! | `figure` | what all figures have: caption, legend, the command that makes it again, its data as a table |
//! | `facets` | which axes of a sweep tell panels apart |
//! | `chart/` | scales, axes and marks, as SVG |
//! | `style.css` | how it looks: light, dark, printed, on a telephone |
//!
//! All text passes through `maud`, which escapes it: names, strategies and commands come out of files.

mod blame;
mod chance;
mod chart;
mod document;
mod facets;
mod figure;
mod limit;
mod listing;
mod load;
mod page;
mod phases;
mod resilience;
mod words;

use crate::campaign::cell::Results;
use crate::load::Measured;
use crate::load::limit::Limit;

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

/// The report of a search for the limit.
#[must_use]
pub fn limit(limit: &Limit, name: &str) -> String {
    limit::page(limit, name).into_string()
}
