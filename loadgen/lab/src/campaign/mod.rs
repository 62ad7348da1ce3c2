//! Campaigns: many runs over the axes of a scenario, counted.
//!
//! A campaign file names sweeps; a sweep names the values of its axes; each combination of them is a cell,
//! and a cell is a scenario that is run with many seeds. It goes
//!
//! 1. [`Campaign::load`]: every cell with its seeds, or what is wrong with the file, and where;
//! 2. [`cost`]: its time, measured; a campaign that does not fit its budget is refused before it begins;
//! 3. [`engine`]: all cells in the simulator, on all cores; a cell that is done stands in the [`journal`] at
//!    once, so an interrupted campaign goes on where it was;
//! 4. [`network`]: a sample of its runs over the network, compared with their replay and their simulation;
//! 5. [`results`] and their [`report`]: the counts as JSON, as CSV, and as a page.
//!
//! The results follow from the file and the seed alone, byte by byte, apart from where and when they were
//! made.

mod axis;
pub mod cell;
mod check;
pub mod cost;
pub mod engine;
mod file;
pub mod journal;
pub mod network;
mod plan;
mod points;
mod read;
pub mod remaining;
pub mod report;
pub mod results;
pub mod run;

use stickycas_harness::files::schema_of;

pub use self::journal::CampaignSource;
pub use self::plan::{Campaign, CellPlan, Limits, SweepPlan};
pub use self::run::{CampaignOptions, CampaignRun, run};

/// The JSON Schema of a campaign file.
#[must_use]
pub fn schema() -> schemars::Schema {
    schema_of::<file::File>()
}
