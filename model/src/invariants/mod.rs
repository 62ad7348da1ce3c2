//! The rules of SPEC as predicates over a history, each under its id.
//!
//! [`Invariants`] takes in one event after another and reports the first that breaks a rule, with the rule
//! and the reason. The tests of the machine, the simulation and the judge all use this one check.
//!
//! It is a second implementation of the rules, on purpose: written from SPEC and not from [`crate::machine`],
//! and it shares no step of the machine. From the accepted accesses it computes which processes are awaited,
//! which accesses wait, which phase may come next, which append wins and how each access must be answered. So
//! a mistake of the machine is not repeated here. The predicates that other evidence is checked by as well
//! stand in [`crate::predicates`]. It shares with the machine only what SPEC pins as pure functions: the
//! schedule ([`crate::scheduler`]), the arbiter's hash and the checks of [`Params`]. A rule that changes has
//! to be changed in both. The check costs a constant number of operations per event, plus what the
//! [`CachedSchedule`](crate::scheduler::CachedSchedule) takes for a jump over dead warps.
//!
//! An event that is due by time alone is recorded when the machine is called next, which may be later. So the
//! time of such an event says only that it was not before its due time; the time of an acceptance is exact.
//!
//! Not checked here, because it takes the time between events: that a step happens as soon as it may (F3),
//! and how much of a patience has drained; only that it cannot have drained while processes were away after a
//! restart. [`crate::sim`] compares a whole replay for that.

mod admission;
mod phase_oracle;
mod state;
mod step;

use std::sync::Arc;

pub use self::state::{BrokenRule, Invariants};
use crate::history::Recorded;
use crate::params::Params;

/// Checks a whole history. A history that is not complete may stop anywhere.
///
/// # Errors
/// The first rule broken.
pub fn check(params: &Arc<Params>, history: &[Recorded], complete: bool) -> Result<(), BrokenRule> {
    let mut invariants = Invariants::new(Arc::clone(params));
    history.iter().try_for_each(|recorded| invariants.observe(recorded))?;
    if complete { invariants.finish() } else { Ok(()) }
}
