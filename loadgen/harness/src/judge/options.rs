//! How a scenario is judged whose processes others start.

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_model::types::ProcessId;

/// How to judge.
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
