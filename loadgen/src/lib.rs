//! Whole runs of StickyCAS: set up, run, collected, judged, written down.
//!
//! A [`Scenario`] says what shall happen. [`simulate`](fn@simulate) runs it in one thread of this process, under a
//! virtual clock; [`run()`](run::run) runs it over the network, each process a child process of its own or a task of
//! this one; [`judge`](mod@judge) leaves starting them to others. All end in the same [`Record`]: the history of the
//! instance, what the processes report, and the verdict of [`stickycas_model::judge`], which was given nothing else.
//! The machine that is judged is the same in both, and so are the processes; what differs is who carries the messages.
//!
//! Results travel as typed records from end to end: nothing is read out of a log.
//!
//! A run shows that a system is right. How fast it is, with many instances at once, is what [`load`] measures.

mod atomic_files;
pub mod batch;
pub mod campaign;
pub mod cli;
mod command_line;
pub mod environment;
pub mod explain;
pub mod explore;
pub mod fault_plan;
pub mod files;
pub mod judge;
pub mod load;
pub mod need;
pub mod perturb;
pub mod progress;
pub mod proposals;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenario;
mod simulate;
pub mod stats;

pub use self::batch::{Runs, Tally, tally};
pub use self::record::{How, Record};
pub use self::scenario::Scenario;
pub use self::simulate::simulate;
