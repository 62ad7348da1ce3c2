//! Campaigns: many runs over the axes of a scenario.

pub mod cell;
