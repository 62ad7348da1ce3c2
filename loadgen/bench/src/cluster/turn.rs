//! The candidates, and one turn of each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::{GetRequest, get_request};
use tokio::task::JoinSet;

use super::counts::Counts;
use super::servers::{ClusterServers, pids_of, start_etcd};
use super::{LEASE, RETENTION};
use crate::etcd::{self, Program};
use crate::fixture::Fixture;
use crate::principal::Principal;
use crate::rounds::RoundOptions;
use crate::serve::{COORDINATOR, Launch, Layout};
use crate::stopwatch::{Programs, Sample, Stopwatch};
use crate::wire::attach;
use crate::wire::codec::HandWritten;
use crate::workload::{ACCESSES_PER_PROCESS, PROCESSES};

/// The kind of a candidate: its servers and its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Naive,
    Cluster,
    Durable,
    Memory,
    /// Get of instances of a cluster.
    Get,
}

/// A candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) kind: Kind,
    pub(crate) in_flight: usize,
}

const fn variant(kind: Kind, in_flight: usize) -> Variant {
    Variant { kind, in_flight }
}

/// In the order of their turns.
pub(crate) const VARIANTS: [Variant; 10] = [
    variant(Kind::Naive, 16),
    variant(Kind::Cluster, 16),
    variant(Kind::Durable, 16),
    variant(Kind::Memory, 16),
    variant(Kind::Get, 16),
    variant(Kind::Naive, 64),
    variant(Kind::Cluster, 64),
    variant(Kind::Durable, 64),
    variant(Kind::Memory, 64),
    variant(Kind::Get, 64),
];

/// The least instances, or calls, of a turn for each of those in flight.
const LEAST_UNITS: usize = 4;

/// Instances that are asked for by Get, at each server.
const GET_INSTANCES: usize = 64;

impl Variant {
    pub(crate) fn name(self) -> String {
        let kind = match self.kind {
            Kind::Naive => "naive",
            Kind::Cluster => "cluster",
            Kind::Durable => "durable",
            Kind::Memory => "memory",
            Kind::Get => "cluster-get",
        };
        format!("{kind}/{}", self.in_flight)
    }

    /// The same number in flight.
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Instances, or calls, in one turn: as scaled, but enough that most of the turn has as many in flight as
    /// it should.
    pub(crate) fn units(self, rounds: &RoundOptions) -> usize {
        rounds.scaled(self.unscaled()).max(LEAST_UNITS * self.in_flight)
    }

    /// Some seconds of work on two slow cores.
    fn unscaled(self) -> usize {
        match self.kind {
            Kind::Naive => 1_000,
            Kind::Cluster => 3_000,
            Kind::Durable | Kind::Memory => 6_000,
            Kind::Get => 12_000,
        }
    }
}

/// The measurement of one turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Outcome {
    #[serde(flatten)]
    pub(crate) sample: Sample,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<Counts>,
}

impl From<Sample> for Outcome {
    fn from(sample: Sample) -> Self {
        Self { sample, counts: None }
    }
}

/// The settings that all turns share.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    pub(crate) program: Program,
    pub(crate) disk: PathBuf,
    pub(crate) members: usize,
    pub(crate) servers: usize,
}

impl Turns {
    /// One turn, on programs of its own.
    pub(crate) async fn turn(
        &self,
        Variant { kind, in_flight }: Variant,
        units: usize,
    ) -> anyhow::Result<Outcome> {
        let launch = Launch::own(Layout::TwoPrograms);
        match kind {
            Kind::Naive => {
                let etcd = start_etcd(&self.program, self.members).await?;
                let programs = Programs { servers: Vec::new(), etcd: pids_of(&etcd) };
                Ok(etcd::run_on(&etcd, programs, units, in_flight).await?.into())
            }
            Kind::Cluster => cluster(self.start().await?, units, in_flight).await,
            Kind::Get => get(self.start().await?, units, in_flight).await,
            Kind::Durable => alone(&launch.durable(&self.disk), units, in_flight).await,
            Kind::Memory => alone(&launch, units, in_flight).await,
        }
    }

    async fn start(&self) -> anyhow::Result<ClusterServers> {
        let ClusterTimes { lease, retention } = ClusterTimes::DEFAULT;
        ClusterServers::start(&self.program, (self.members, self.servers), lease, retention).await
    }
}

struct ClusterTimes {
    lease: Duration,
    retention: Duration,
}

impl ClusterTimes {
    const DEFAULT: Self = Self { lease: LEASE, retention: RETENTION };
}

/// Plays instances on one server.
async fn alone(launch: &Launch, instances: usize, in_flight: usize) -> anyhow::Result<Outcome> {
    let fixture = Fixture::start(instances, launch).await?;
    let sample = fixture.with_commits(attach::run::<HandWritten>(&fixture, in_flight, true)).await?;
    Ok(sample.into())
}

/// The part of a number that the one with this index among so many gets.
fn share(all: usize, of: usize, index: usize) -> usize {
    all / of + usize::from(index < all % of)
}

/// Plays instances on all servers at once.
async fn cluster(cluster: ClusterServers, instances: usize, in_flight: usize) -> anyhow::Result<Outcome> {
    let urls = cluster.urls();
    let mut fixtures = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        // As many for each in flight, so that all servers are busy until the end.
        let own = (instances * share(in_flight, urls.len(), index)).div_ceil(in_flight);
        fixtures.push(Arc::new(Fixture::elsewhere(url.clone(), own).await?));
    }
    let instances: usize = fixtures.iter().map(|fixture| fixture.ids.len()).sum();
    let before = cluster.counts().await?;
    let watch = Stopwatch::of(cluster.programs());
    let mut playing = JoinSet::new();
    for (index, fixture) in fixtures.iter().enumerate() {
        let (fixture, own) = (fixture.clone(), share(in_flight, urls.len(), index));
        playing.spawn(async move {
            anyhow::Ok((index, attach::observe::<HandWritten>(&fixture, own, true).await?))
        });
    }
    let mut observed = Vec::new();
    while let Some(played) = playing.join_next().await {
        observed.push(played??);
    }
    let sample = watch.stop(instances, instances * PROCESSES as usize * ACCESSES_PER_PROCESS);
    let counts = cluster.counts().await?.since(&before);
    for (index, observations) in &observed {
        fixtures[*index].judge(observations)?;
    }
    Ok(Outcome { sample: Sample { log: Some(counts.log), ..sample }, counts: Some(counts) })
}

/// Asks for instances at all servers at once. A call counts as an instance and as an access.
async fn get(cluster: ClusterServers, calls: usize, in_flight: usize) -> anyhow::Result<Outcome> {
    let urls = cluster.urls();
    let mut asked = Vec::new();
    for url in &urls {
        let fixture = Fixture::elsewhere(url.clone(), GET_INSTANCES).await?;
        asked.push((Principal::connect(url, COORDINATOR).await?, Arc::<[String]>::from(fixture.ids)));
    }
    let before = cluster.counts().await?;
    let watch = Stopwatch::of(cluster.programs());
    let mut asking = JoinSet::new();
    for number in 0..in_flight {
        let (principal, ids) = asked[number % asked.len()].clone();
        asking.spawn(get_each(principal, ids, number, share(calls, in_flight, number)));
    }
    while let Some(done) = asking.join_next().await {
        done??;
    }
    let sample = watch.stop(calls, calls);
    let counts = cluster.counts().await?.since(&before);
    Ok(Outcome { sample, counts: Some(counts) })
}

async fn get_each(
    principal: Principal,
    ids: Arc<[String]>,
    first: usize,
    calls: usize,
) -> anyhow::Result<()> {
    let mut client = InstanceServiceClient::new(principal.channel.clone());
    for id in ids.iter().cycle().skip(first % ids.len()).take(calls) {
        let request = GetRequest { instance: Some(get_request::Instance::InstanceId(id.clone())) };
        client.get(principal.request(request)).await.with_context(|| format!("Get of {id}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        rounds: RoundOptions,
    }

    #[test]
    fn every_candidate_has_its_number_in_flight_at_every_scale() {
        for scale in ["0.000001", "0.02", "0.2", "1", "3"] {
            let Program { rounds } = Program::parse_from(["program", "--scale", scale]);
            for variant in VARIANTS {
                assert!(variant.units(&rounds) >= 4 * variant.in_flight, "{scale}: {}", variant.name());
            }
        }
        let Program { rounds } = Program::parse_from(["program", "--scale", "2"]);
        assert_eq!(variant(Kind::Naive, 64).units(&rounds), 2_000);
    }

    #[test]
    fn shares_are_even_and_nothing_is_left() {
        for (all, of) in [(16, 3), (64, 3), (2, 3), (7, 1)] {
            let shares: Vec<usize> = (0..of).map(|index| share(all, of, index)).collect();
            assert_eq!(shares.iter().sum::<usize>(), all, "{shares:?}");
            assert!(shares[0] - shares[of - 1] <= 1, "{shares:?}");
        }
    }
}
