//! Exhaustive search.

mod check;
mod claims;
mod key;
mod search;
mod setup;
mod steps;
#[cfg(test)]
mod tests;
mod world;

pub use self::check::Fact;
pub use self::claims::{Claim, Expected, Task, section_9, tasks};
pub use self::search::{Found, Way, Witness, search};
pub use self::setup::{Adversary, Role, Setup, SetupError, Turns};
pub use self::steps::{Doing, Step};
pub use self::world::Fault;
