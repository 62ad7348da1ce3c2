//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use crate::draw::{ClusterSize, Load};
use crate::plan::Step;
use crate::platform::processes::ServerProgram;

/// See the module.
#[derive(Clone, Debug)]
pub struct CrashOptions {
    /// How many rounds.
    pub rounds: u64,
    /// The seed of the first; each other one has the next.
    pub seed: u64,
    /// The load of each round.
    pub load: Load,
    /// Kill the server once in each round, when all instances are under way, and start it again with its
    /// clocks so far ahead.
    pub outage: Option<Duration>,
    /// Servers of a cluster over etcd, and its faults, in place of one server.
    pub cluster: Option<ClusterSize>,
    /// The steps of every round in place of those that its seed draws.
    pub steps: Option<Vec<Step>>,
    /// Whether partitions among these faults are left out where there can be none; else it is an error.
    pub partitions_may_lack: bool,
    /// How many at a time, each with a server of its own.
    pub jobs: usize,
    /// The rejoin time of the servers.
    pub rejoin: Duration,
    /// The server.
    pub program: ServerProgram,
    /// The folder in which each round has a folder of its own as long as it runs; that of a failed round
    /// stays.
    pub out: PathBuf,
}
