//! The live page: one instance as the paper draws it, warps as rows of processes, phase by phase; and all
//! instances as a table. A server shows its instances on it, the load generator shows the folder of a run.
//!
//! # Division of the work
//! Scripts in the browser draw and nothing else. Events come in the form that `history.ndjson` has. The
//! processes that are late, awaited or accused, the promises of the theorem, the decisions and their reasons,
//! all words included, come from here, and so from the model.
//!
//! | to read about | look into |
//! | --- | --- |
//! | the facts of an instance that do not change | [`setting`] |
//! | its changes, and the pieces in which they are sent | [`frame`], with [`lateness`] and [`basis`] |
//! | how long a text may be | [`cut`] |
//! | the theorem with other numbers | [`promise`] |
//! | an explanation in words | [`explanation`], and [`assumed`] where the ground truth is not known |
//! | a recorded run as frames | [`recorded`] |
//! | the server of the page, and its data | `routes` with `headers`, `assets`, [`events`]; [`source`] |
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
