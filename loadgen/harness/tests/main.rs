//! Whole runs: their files, the scenarios that are delivered, run folders, and what is said of them.

mod explain;
mod full_block;
mod matrix;
mod metrics_under_attack;
mod random_scenarios;
mod replay;
mod run_folder;
mod scenario_files;
mod scenarios;
mod settings;
mod strategies;
mod view;
mod wire_attacks;
