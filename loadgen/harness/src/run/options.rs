//! How a scenario is run over the network.

use std::path::PathBuf;
use std::time::Duration;

/// Default for [`RunOptions::stall`].
pub const DEFAULT_STALL: Duration = Duration::from_secs(60);

/// How to run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program that plays a process when called with `client propose`, one child process for each. `None`:
    /// processes are tasks of this process.
    pub program: Option<PathBuf>,
    /// Give up waiting after so long without any event, beyond what the instance itself may wait.
    pub stall: Duration,
    /// Show no progress.
    pub quiet: bool,
}

impl RunOptions {
    /// Processes as tasks, and no progress shown.
    #[must_use]
    pub fn in_process() -> Self {
        Self { program: None, stall: DEFAULT_STALL, quiet: true }
    }
}
