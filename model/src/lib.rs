//! placeholder
pub mod access;
pub mod bounds;
pub mod byzantine;
pub mod cast;
pub mod history;
pub mod invariants;
pub mod judge;
pub mod machine;
pub mod params;
pub mod player;
pub mod process;
pub mod random;
pub mod scheduler;
pub mod sim;
pub mod sticky_cas;
pub mod types;
