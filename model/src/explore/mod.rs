//! Exhaustive search.

mod check;
mod key;
mod search;
mod setup;
mod steps;
mod world;

pub use self::check::Fact;
pub use self::search::{Found, Way, Witness, search};
pub use self::setup::{Adversary, Role, Setup, SetupError, Turns};
pub use self::steps::{Doing, Step};
pub use self::world::Fault;
