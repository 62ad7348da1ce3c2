//! A cluster: members of etcd, and servers that are programs of their own.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use stickycas_client::{Client, ClusterInfo};

use super::counts::Counts;
use crate::etcd::{Etcd, Options, Program};
use crate::serve::{COORDINATOR, ETCD_QUOTA, ServerProcess};
use crate::stopwatch::Programs;

/// The time within which all shards have their owners.
const SPREAD_WITHIN: Duration = Duration::from_secs(60);
/// The time between two questions who owns what.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// So often the same owners have to be found, one after the other: then no shard moves any more.
const SAME_OWNERS: usize = 10;

/// A member of a cluster.
pub(crate) struct ClusterServer {
    pub(crate) url: String,
    /// Its address for operators.
    operators: String,
    process: ServerProcess,
}

/// See the module. Everything ends when this is dropped.
pub(crate) struct ClusterServers {
    pub(crate) servers: Vec<ClusterServer>,
    etcd: Etcd,
    lease: Duration,
    retention: Duration,
}

/// Members of etcd whose processor time counts.
pub(crate) fn pids_of(etcd: &Etcd) -> Vec<u32> {
    (0..etcd.urls().len()).filter_map(|member| etcd.pid(member)).collect()
}

/// Starts etcd with so many members.
pub(crate) async fn start_etcd(program: &Program, members: usize) -> anyhow::Result<Etcd> {
    program.start(&Options { members, quota_bytes: Some(ETCD_QUOTA), ..Options::default() }).await
}

impl ClusterServers {
    /// Starts etcd and servers, and waits until the shards are spread over them.
    pub(crate) async fn start(
        program: &Program,
        (members, servers): (usize, usize),
        lease: Duration,
        retention: Duration,
    ) -> anyhow::Result<Self> {
        let etcd = start_etcd(program, members).await?;
        let mut cluster = Self { servers: Vec::new(), etcd, lease, retention };
        for number in 0..servers {
            cluster.join(number).await?;
        }
        cluster.spread().await?;
        Ok(cluster)
    }

    /// Starts a server with this number.
    pub(crate) async fn join(&mut self, number: usize) -> anyhow::Result<()> {
        let name = format!("server-{number}");
        let mut command = Command::new(std::env::current_exe()?);
        let time = |time: Duration| humantime::format_duration(time).to_string();
        command
            .args(["serve", "stickycas", "--server-name", &name, "--etcd", &self.etcd.urls().join(",")])
            .args(["--lease", &time(self.lease), "--retention", &time(self.retention)])
            .stdin(Stdio::piped());
        let start = || ServerProcess::start(command, |line| line.contains(' ').then(|| line.to_owned()));
        let process = tokio::task::block_in_place(start)?;
        let (url, operators) = process.url.split_once(' ').context("no address for operators")?;
        let (url, operators) = (url.to_owned(), operators.to_owned());
        self.servers.push(ClusterServer { url, operators, process });
        Ok(())
    }

    /// Waits until all servers own about as many shards each, and none moves any more.
    pub(crate) async fn spread(&self) -> anyhow::Result<()> {
        let last = self.servers.last().context("there is no server")?;
        let client = Client::builder(&last.url).principal(COORDINATOR).connect_lazy()?;
        let until = Instant::now() + SPREAD_WITHIN;
        let (mut same, mut before) = (0, None);
        while same < SAME_OWNERS {
            ensure!(Instant::now() < until, "the shards have no owners within {SPREAD_WITHIN:?}");
            tokio::time::sleep(ASK_EVERY).await;
            let Ok(told) = client.cluster().await else { continue };
            let owners = self.is_spread(&told).then(|| {
                told.servers
                    .iter()
                    .map(|server| (server.name.clone(), server.shards.clone()))
                    .collect::<Vec<_>>()
            });
            same = if owners.is_some() && owners == before { same + 1 } else { 0 };
            before = owners;
        }
        Ok(())
    }

    fn is_spread(&self, told: &ClusterInfo) -> bool {
        let owned = told.servers.iter().filter(|server| !server.draining).map(|server| server.shards.len());
        let (least, most) = (owned.clone().min().unwrap_or(0), owned.clone().max().unwrap_or(0));
        told.shards_without_owner.is_empty()
            && owned.count() == self.servers.len()
            && least > 0
            && most - least <= 1
    }

    /// The addresses for clients.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.url.clone()).collect()
    }

    /// The programs whose processor time counts.
    pub(crate) fn programs(&self) -> Programs {
        Programs {
            servers: self.servers.iter().map(|server| server.process.pid()).collect(),
            etcd: pids_of(&self.etcd),
        }
    }

    /// The counts of the servers and etcd so far.
    pub(crate) async fn counts(&self) -> anyhow::Result<Counts> {
        let mut counts = Counts::of_etcd(&self.etcd).await?;
        for server in &self.servers {
            counts.add_server(&server.operators).await?;
        }
        Ok(counts)
    }
}
