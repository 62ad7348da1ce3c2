//! Perturbations: what is done from outside to the containers of a run that goes on, and what is expected of it.

pub mod plan;

pub use self::plan::Plan;
