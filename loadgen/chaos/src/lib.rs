//! Perturbations: operations from outside on the containers of a run, and their result.
//!
//! A [`Plan`] names the operations, their containers and their moments, the expected verdict, and the
//! evidence in the record that the plan hit. [`perturb`](fn@perturb) carries it out beside a compose project
//! that is up: it has the judge's container made anew for the plan, follows the judge's instance as an
//! observer, does each step at its moment, waits for the verdict, and puts everything back. The judge reads
//! the same plan: from it, the judge knows which processes are faulty, late, or not awaited.

pub mod docker;
mod expectations;
mod outcome;
mod owners;
pub mod plan;
mod runner;
mod schedule;

pub use self::outcome::{Done, PlanOutcome, table};
pub use self::plan::Plan;
pub use self::runner::{Target, perturb};
