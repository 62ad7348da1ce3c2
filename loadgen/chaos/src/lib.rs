//! Perturbations: what is done from outside to the containers of a run, and its result.
//!
//! A [`Plan`] says what is done to which containers and when, which verdict is expected, and what of the record shows
//! that it hit. [`perturb`](fn@perturb) carries it out beside a compose project that is up: it has the judge's
//! container made anew for the plan, follows the judge's instance as an observer, does each step when its moment has
//! come, waits for the verdict, and puts everything back. What is judged is judged by the judge, which reads the same
//! plan: it knows from it which processes are faulty, late, or not awaited.

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
