//! A server, its instances and 32 connections to it, one for each process.

use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use crate::principal::{Creator, InstanceSize, Principal};
use crate::serve::{Launch, RunningServer, Service};
use crate::stopwatch::{Sample, Stopwatch};
use crate::workload::{self, Observation, PROCESSES, READ_SIZE, WARP_SIZE};

/// See the module. The server ends when this is dropped.
pub(crate) struct Fixture {
    /// By process.
    pub(crate) connections: Vec<ProcessConnection>,
    /// The ids of the instances.
    pub(crate) ids: Vec<String>,
    /// Whether the server knows instances with these ids: the floor does not.
    pub(crate) real: bool,
    server: RunningServer,
}

/// The connection of one process, from 0.
#[derive(Clone)]
pub(crate) struct ProcessConnection {
    pub(crate) process: usize,
    pub(crate) principal: Principal,
}

const SIZE: InstanceSize = InstanceSize { processes: PROCESSES, warp_size: WARP_SIZE, read_size: READ_SIZE };

/// One connection for each process, to one of these addresses after the other.
pub(crate) async fn connect(urls: &[String]) -> anyhow::Result<Vec<Channel>> {
    let mut channels = Vec::new();
    for url in urls.iter().cycle().take(PROCESSES as usize) {
        channels.push(Endpoint::from_shared(url.clone())?.connect().await?);
    }
    Ok(channels)
}

/// One connection for each process, with the name of its principal.
async fn connections(server: &RunningServer) -> anyhow::Result<Vec<ProcessConnection>> {
    let mut connections = Vec::new();
    for process in 0..PROCESSES as usize {
        let principal = Principal::certified(&server.url, &principal(process), server.clients()).await?;
        connections.push(ProcessConnection { process, principal });
    }
    Ok(connections)
}

impl Fixture {
    /// StickyCAS, with this many instances.
    pub(crate) async fn start(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = RunningServer::start(Service::Stickycas, launch).await?;
        let ids = create(&Creator::certified(&server.url, SIZE, server.clients()).await?, instances).await?;
        Ok(Self { connections: connections(&server).await?, ids, real: true, server })
    }

    /// The same on a server that somebody else has started and ends.
    pub(crate) async fn elsewhere(url: String, instances: usize) -> anyhow::Result<Self> {
        let server = RunningServer::elsewhere(url);
        let ids = create(&Creator::connect(&server.url, SIZE).await?, instances).await?;
        Ok(Self { connections: connections(&server).await?, ids, real: true, server })
    }

    /// The floor, with ids that belong to no instance.
    pub(crate) async fn start_baseline(instances: usize, launch: &Launch) -> anyhow::Result<Self> {
        let server = RunningServer::start(Service::Baseline, launch).await?;
        let ids = (0..instances).map(|number| format!("{number:032x}")).collect();
        Ok(Self { connections: connections(&server).await?, ids, real: false, server })
    }

    /// Creates further instances.
    pub(crate) async fn creator(&self) -> anyhow::Result<Creator> {
        Creator::certified(&self.server.url, SIZE, self.server.clients()).await
    }

    /// Measures `turn`, and adds to its sample what the log of the server has committed meanwhile.
    pub(crate) async fn with_commits(
        &self,
        turn: impl Future<Output = anyhow::Result<Sample>>,
    ) -> anyhow::Result<Sample> {
        let before = self.server.commits().await?;
        let sample = turn.await?;
        let after = self.server.commits().await?;
        Ok(Sample { log: after.zip(before).map(|(after, before)| after.since(&before)), ..sample })
    }

    /// Starts a stopwatch that also counts the processor time of the server.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch::start(self.server.pid())
    }

    /// Judges the observations, by process and then by instance. Those of the floor only have to be equal.
    pub(crate) fn judge(&self, observations: &[Vec<Observation>]) -> anyhow::Result<()> {
        let judge = if self.real { workload::judge } else { workload::agree };
        judge(observations, self.ids.len())
    }
}

/// Creates so many instances, several at a time, so that a log commits many of them at once. Returns their
/// ids in the order in which they were wanted, which is about that of their creation.
async fn create(creator: &Creator, instances: usize) -> anyhow::Result<Vec<String>> {
    const AT_ONCE: usize = 64;
    let mut creating = JoinSet::new();
    for first in 0..AT_ONCE {
        let mut creator = creator.clone();
        creating.spawn(async move {
            let mut ids = Vec::new();
            for number in (first..instances).step_by(AT_ONCE) {
                ids.push((number, creator.create(roster(), None).await?));
            }
            anyhow::Ok(ids)
        });
    }
    let mut ids = Vec::with_capacity(instances);
    while let Some(created) = creating.join_next().await {
        ids.extend(created??);
    }
    ids.sort_unstable_by_key(|(number, _)| *number);
    Ok(ids.into_iter().map(|(_, id)| id).collect())
}

/// The principal of the process with this number, from 0.
pub(crate) fn principal(process: usize) -> String {
    format!("process-{}", process + 1)
}

/// The roster of every instance.
pub(crate) fn roster() -> Vec<String> {
    (0..PROCESSES as usize).map(principal).collect()
}
