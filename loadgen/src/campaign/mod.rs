//! Campaigns: many runs over the axes of a scenario.

mod axis;
pub mod cell;
mod check;
mod file;
mod plan;
mod points;

pub use self::plan::{Campaign, CellPlan, SweepPlan, Wishes};
