//! The judge of processes that others have started.
//!
//! As in [`run`](mod@crate::run), there is a scenario, an instance of it and a verdict. But the processes are
//! started by others, in any order, before or after the judge: by compose, by hand, in another language. All
//! of them know the name of the instance and the roster, in which process i is `process-i`.
//!
//! [`judge`] follows one instance from its first event on. A process has ended when it has reported to the
//! [`ReportService`], or a moment after it has left without a report. A [`SeriesCheckpoint`] is one instance
//! after another, and the state on disk from which a judge that is restarted goes on with the same instance.
//!
//! If a server lost its memory, or a correct process was started again without a plan, the judge cannot know
//! enough: the run proves nothing, and the verdict says so. A correct process that plays another part than
//! the scenario gives it makes the scenario no ground truth, and what breaks then is no bug.

mod checkpoint;
mod completion;
mod connection_limit;
mod instance;
mod report_service;
mod role_check;
mod run;

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_model::types::ProcessId;

pub use self::checkpoint::{JudgedInstance, SeriesCheckpoint, SeriesRequest};
pub use self::completion::REPORT_GRACE;
pub use self::instance::{REPORTS_FOR_OTHERS, judge};
pub use self::report_service::ReportService;
pub use self::run::{Subject, run};

/// How a scenario is judged whose processes others start.
#[derive(Clone, Debug)]
pub struct JudgeOptions {
    /// Give up waiting after so long without any event, beyond what the instance itself may wait.
    pub stall: Duration,
    /// Processes that are killed for good, so that their ends are not awaited.
    pub gone: BTreeSet<ProcessId>,
    /// Show no progress.
    pub quiet: bool,
    /// Says what people want to know besides.
    pub tell: fn(&str),
}
