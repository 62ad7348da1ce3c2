//! The services that a plan may name.

use std::fmt;
use std::str::FromStr;

use stickycas_model::types::ProcessId;

use stickycas_harness::run::principal;

/// A service of the demo: one container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// `server`.
    Server,
    /// `judge`.
    Judge,
    /// `process-1`, `process-2`, ...: the client that plays this process. Its name is its principal.
    Process(ProcessId),
}

impl Service {
    /// The process that it plays, if it is a client.
    #[must_use]
    pub const fn process(self) -> Option<ProcessId> {
        match self {
            Self::Process(process) => Some(process),
            Self::Server | Self::Judge => None,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.pad("server"),
            Self::Judge => f.pad("judge"),
            Self::Process(process) => f.pad(&principal(*process)),
        }
    }
}

/// What is no service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no service {0:?}: give server, judge, process-1, process-2 and so on")]
pub struct NoService(String);

impl FromStr for Service {
    type Err = NoService;

    fn from_str(text: &str) -> Result<Self, NoService> {
        let process = |text: &str| text.strip_prefix("process-")?.parse().ok().and_then(ProcessId::new);
        let service = match text {
            "server" => Some(Self::Server),
            "judge" => Some(Self::Judge),
            _ => process(text).map(Self::Process),
        };
        // A process has one name, and not also process-07.
        service.filter(|service| service.to_string() == text).ok_or_else(|| NoService(text.to_owned()))
    }
}
