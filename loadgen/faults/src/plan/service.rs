//! The services that a plan may name.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use stickycas_model::types::ProcessId;

use stickycas_harness::run::principal;

/// A service: a container of the demo; in the kill test a process, or a simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// `server`: the one of the demo without a cluster.
    Server,
    /// `server-1`, `server-2`, ...: a server of a cluster, which has the same name there.
    ServerOfCluster(NonZeroU32),
    /// `owner`: the server that owns the instance when a step first names it, and that server in all later
    /// steps. `owner-2`: likewise the first other one that owns it after that; and so on.
    Owner(NonZeroU32),
    /// `etcd-1`, `etcd-2`, ...: a member of etcd.
    Etcd(NonZeroU32),
    /// `judge`.
    Judge,
    /// `process-1`, `process-2`, ...: the client that plays this process. Its name is its principal.
    Process(ProcessId),
}

impl Service {
    /// The server of a cluster with this number from 0.
    ///
    /// # Panics
    /// There are not so many servers.
    #[must_use]
    pub fn server_of_cluster(index: usize) -> Self {
        Self::ServerOfCluster(number(index))
    }

    /// The member of etcd with this number from 0.
    ///
    /// # Panics
    /// There are not so many members.
    #[must_use]
    pub fn etcd(index: usize) -> Self {
        Self::Etcd(number(index))
    }

    /// The process that it plays, if it is a client.
    #[must_use]
    pub const fn process(self) -> Option<ProcessId> {
        match self {
            Self::Process(process) => Some(process),
            Self::Server | Self::ServerOfCluster(_) | Self::Owner(_) | Self::Etcd(_) | Self::Judge => None,
        }
    }

    /// Of a server of a cluster or a member of etcd: its number from 0.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        match self {
            Self::ServerOfCluster(number) | Self::Etcd(number) => Some(number.get() as usize - 1),
            Self::Server | Self::Owner(_) | Self::Judge | Self::Process(_) => None,
        }
    }

    /// Of an owner: the number of owners that the instance has had when this is known.
    #[must_use]
    pub const fn owner(self) -> Option<NonZeroU32> {
        match self {
            Self::Owner(number) => Some(number),
            Self::Server | Self::ServerOfCluster(_) | Self::Etcd(_) | Self::Judge | Self::Process(_) => None,
        }
    }
}

fn number(index: usize) -> NonZeroU32 {
    u32::try_from(index + 1).ok().and_then(NonZeroU32::new).expect("there are a few")
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.pad("server"),
            Self::ServerOfCluster(number) => f.pad(&format!("server-{number}")),
            Self::Owner(NonZeroU32::MIN) => f.pad("owner"),
            Self::Owner(number) => f.pad(&format!("owner-{number}")),
            Self::Etcd(number) => f.pad(&format!("etcd-{number}")),
            Self::Judge => f.pad("judge"),
            Self::Process(process) => f.pad(&principal(*process)),
        }
    }
}

/// The name of no service.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no service {0:?}: give server, judge, process-1, process-2 and so on; of a cluster server-1, owner, etcd-1 and so on"
)]
pub struct NoService(String);

impl FromStr for Service {
    type Err = NoService;

    fn from_str(text: &str) -> Result<Self, NoService> {
        let numbered = |(kind, number): (&str, &str)| {
            let number: NonZeroU32 = number.parse().ok()?;
            match kind {
                "server" => Some(Self::ServerOfCluster(number)),
                "owner" => Some(Self::Owner(number)),
                "etcd" => Some(Self::Etcd(number)),
                "process" => ProcessId::new(number.get()).map(Self::Process),
                _ => None,
            }
        };
        let service = match text {
            "server" => Some(Self::Server),
            "owner" => Some(Self::Owner(NonZeroU32::MIN)),
            "judge" => Some(Self::Judge),
            _ => text.split_once('-').and_then(numbered),
        };
        // Each has one name: no process-07, and no owner-1.
        service.filter(|service| service.to_string() == text).ok_or_else(|| NoService(text.to_owned()))
    }
}
