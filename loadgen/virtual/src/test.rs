//! The kind of a run: one server on a disk of its own, or several over a model of etcd.

use std::num::NonZeroUsize;

use clap::Args;

use crate::disk::Extent;
use crate::round::{self, SeedResult};

/// See the module.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Test {
    /// Servers of a cluster over a model of etcd, in the place of one server. Needs this program with the
    /// feature `cluster`
    #[arg(long, value_name = "SERVERS")]
    cluster: Option<NonZeroUsize>,
    /// How many of the possible ends of the disk are tried whenever a server ends: so many that are drawn, or
    /// `all`. Of a cluster none, which has no disk
    #[arg(long, value_name = "N", default_value = "4")]
    crash_points: Extent,
}

impl Test {
    /// The command-line arguments of this test.
    pub(crate) fn arguments(self) -> Vec<String> {
        let cluster = self.cluster.map(|servers| ["--cluster".to_owned(), servers.to_string()]);
        let server = || ["--crash-points".to_owned(), self.crash_points.to_string()];
        cluster.unwrap_or_else(server).into()
    }

    /// Runs this seed, and returns its result and its trace. Once in a process: clock and random numbers
    /// belong to it from then on.
    pub(crate) fn run(self, seed: u64) -> anyhow::Result<(SeedResult, String)> {
        match self.cluster {
            None => round::run(seed, self.crash_points),
            #[cfg(feature = "cluster")]
            Some(servers) => crate::cluster::run(seed, servers.get()),
            #[cfg(not(feature = "cluster"))]
            Some(_) => anyhow::bail!(
                "--cluster needs this program with the feature `cluster`, which is no part of the usual build: \
                 cargo build -p stickycas-virtual --features cluster"
            ),
        }
    }
}
