//! One run of StickyCAS: set up, run, collected, judged, written down.
//!
//! A [`Scenario`] says what shall happen. [`simulate`] runs it in one thread of this process, under a virtual
//! clock; [`run()`](run::run) runs it over the network, each process a child process of its own or a task of
//! this one; [`judge`](mod@judge) leaves starting them to others. All end in the same [`Record`]: the history
//! of the instance, what the processes report, and the verdict of [`stickycas_model::judge`], which was given
//! nothing else. The machine that is judged is the same in both, and so are the processes; the carrier of the
//! messages differs.
//!
//! Results travel as typed records from end to end: nothing is read out of a log.
//!
//! The layers, each of which uses only those above it:
//!
//! | layer | modules |
//! | --- | --- |
//! | files | `files`, `fault_plan`, `proposals`, `scenario` |
//! | a run | `record`, `run` |
//! | reports | `environment`, `host`, `report`: the run folder, tables, JSON, and the parts of HTML reports |
//! | readers and makers of folders | `replay`, `explain`, `view` and `play`, `judge` |
//!
//! Besides, for every layer: `atomic_files`, `command_line`, `progress`, `stats`. Loads, campaigns and plans
//! for containers are crates of their own, which use this one and not each other.

pub mod atomic_files;
pub mod command_line;
pub mod dump;
pub mod environment;
pub mod exit;
pub mod explain;
pub mod fault_plan;
pub mod files;
pub mod host;
pub mod judge;
pub mod play;
pub mod progress;
pub mod proposals;
pub mod record;
pub mod replay;
pub mod report;
pub mod run;
pub mod scenario;
pub mod stats;
pub mod view;

pub use self::record::{ExecutionMode, Record, simulate};
pub use self::scenario::Scenario;
