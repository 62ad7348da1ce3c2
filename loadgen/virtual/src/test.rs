//! The kind of a run: one server on a disk of its own, or several over a model of etcd.

use std::num::NonZeroUsize;

use stickycas_faults::RoundPlan;

#[cfg(feature = "cluster")]
use crate::cluster;
use crate::disk::Extent;
use crate::plan::Plan;
use crate::round::{self, SeedResult};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    /// One server, and how many of the possible ends of its disk are tried.
    Server(Extent),
    /// So many servers of a cluster.
    Cluster(NonZeroUsize),
}

impl Test {
    /// The test of a command line.
    pub(crate) fn of(cluster: Option<NonZeroUsize>, crash_points: Extent) -> Self {
        cluster.map_or(Self::Server(crash_points), Self::Cluster)
    }

    /// The command-line arguments of this test.
    pub(crate) fn arguments(self) -> Vec<String> {
        match self {
            Self::Server(crash_points) => vec!["--crash-points".to_owned(), crash_points.to_string()],
            Self::Cluster(servers) => vec!["--cluster".to_owned(), servers.to_string()],
        }
    }

    /// The clients of a seed, and the faults of their servers.
    ///
    /// # Errors
    /// It was not compiled in.
    pub(crate) fn plan(self, seed: u64) -> anyhow::Result<RoundPlan> {
        match self {
            Self::Server(_) => Ok(Plan::draw(seed).round),
            #[cfg(feature = "cluster")]
            Self::Cluster(servers) => Ok(cluster::ClusterPlan::draw(seed, servers.get()).round),
            #[cfg(not(feature = "cluster"))]
            Self::Cluster(_) => anyhow::bail!("{NO_CLUSTER}"),
        }
    }

    /// Runs this seed, and returns its result and its trace. Once in a process: clock and random numbers
    /// belong to it from then on.
    ///
    /// # Errors
    /// The seed cannot be run.
    pub(crate) fn run(self, seed: u64) -> anyhow::Result<(SeedResult, String)> {
        match self {
            Self::Server(crash_points) => round::run(seed, crash_points),
            #[cfg(feature = "cluster")]
            Self::Cluster(servers) => cluster::run(seed, servers.get()),
            #[cfg(not(feature = "cluster"))]
            Self::Cluster(_) => anyhow::bail!("{NO_CLUSTER}"),
        }
    }
}

#[cfg(not(feature = "cluster"))]
const NO_CLUSTER: &str = "--cluster needs this program with the feature `cluster`, which is no part of the usual build: cargo \
                          build -p stickycas-virtual --features cluster";
