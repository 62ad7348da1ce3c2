//! Runs in bulk: tallies, campaigns and their reports, the exhaustive search.

mod batch;
mod campaign;
mod campaign_files;
mod chance;
mod chance_forms;
mod chance_simulated;
mod explore;
mod report;
