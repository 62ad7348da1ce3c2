//! Runs of StickyCAS in bulk, nearly all of them in the simulator.
//!
//! | where | what |
//! | --- | --- |
//! | [`batch`] | many runs of one scenario, which differ by their seeds, counted |
//! | [`campaign`] | sweeps over the axes of a scenario, cell by cell, and their report |
//! | [`chance`] | how likely strong validity breaks where the winner is drawn: the theorem's question as a probability |
//! | [`explore`] | the exhaustive searches of the model on all cores |
//! | [`resource_estimate`] | the memory and the disk that runs need, said before they begin |

pub mod batch;
pub mod campaign;
pub mod chance;
pub mod explore;
pub mod resource_estimate;
mod workers;

pub use self::batch::{Runs, Tally, tally};
