//! The live page: one instance as the paper draws it, warps as rows of processes, phase by phase; and all instances as a
//! table. A server shows its instances on it, the load generator shows the folder of a run.
//!
//! # Who does what
//! Scripts in the browser draw and nothing else. Events come in the form that `history.ndjson` has; whoever is late, awaited or
//! accused, what the theorem promises, what was decided and why, all words included, comes from here, and so from the model.
//!
//! | to read about | look into |
//! | --- | --- |
//! | what does not change of an instance | [`setting`] |
//! | what changes, and in which pieces it is sent | [`frame`], with [`lateness`] and [`basis`] |
//! | how long a text may be | [`cut`] |
//! | the theorem with other numbers | [`promise`] |
//! | an explanation in words | [`explanation`], and [`assumed`] where the ground truth is not known |
//! | a recorded run as frames | [`recorded`] |
//! | who serves it | [`source`], `routes` with `headers`, `assets`, [`events`] |
//!
//! The scripts are in `assets/`. There is no build step, nothing is downloaded from elsewhere.

mod assets;
pub mod assumed;
pub mod basis;
pub mod cut;
pub mod events;
pub mod explanation;
pub mod frame;
mod headers;
pub mod lateness;
pub mod promise;
pub mod recorded;
mod routes;
pub mod setting;
pub mod source;

pub use self::headers::Hosts;
pub use self::routes::{router, router_with};
