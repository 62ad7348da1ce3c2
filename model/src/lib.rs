//! placeholder
pub mod access;
pub mod byzantine;
pub mod cast;
pub mod history;
pub mod machine;
pub mod params;
pub mod process;
pub mod scheduler;
pub mod sticky_cas;
mod sync;
pub mod types;
