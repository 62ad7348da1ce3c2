//! Processes that append and read by unary calls.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, ReadRequest};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::fixture::{Fixture, ProcessConnection};
use crate::stopwatch::Sample;
use crate::workload::{ACCESSES_PER_PROCESS, Observation, TaskObservations, proposal};

/// The client of one process.
pub(crate) type Client = StickyCasServiceClient<Channel>;

/// Plays all instances, `in_flight` at a time.
pub(crate) async fn run(fixture: &Fixture, in_flight: usize) -> anyhow::Result<Sample> {
    let ids: Arc<[String]> = fixture.ids.clone().into();
    let watch = fixture.stopwatch();
    let mut tasks = JoinSet::new();
    for connection in &fixture.connections {
        for first in 0..in_flight {
            tasks.spawn(play(connection.clone(), ids.clone(), first, in_flight));
        }
    }
    let mut observations = Vec::new();
    while let Some(task) = tasks.join_next().await {
        observations.push(task??);
    }
    let sample = watch.stop(ids.len(), ids.len() * fixture.connections.len() * ACCESSES_PER_PROCESS);
    let observations = TaskObservations::merge(observations, ids.len());
    fixture.judge(&observations)?;
    Ok(sample)
}

/// Plays every `stride`-th instance as one process, one after the other.
async fn play(
    connection: ProcessConnection,
    ids: Arc<[String]>,
    first: usize,
    stride: usize,
) -> anyhow::Result<TaskObservations> {
    let mut client = Client::new(connection.principal.channel.clone());
    let mut observations = Vec::new();
    for instance in (first..ids.len()).step_by(stride) {
        observations.push((instance, propose(&mut client, &connection, &ids[instance], instance).await?));
    }
    Ok(TaskObservations { process: connection.process, observations })
}

/// Algorithm 1 for lists that one read returns whole.
pub(crate) async fn propose(
    client: &mut Client,
    connection: &ProcessConnection,
    id: &str,
    instance: usize,
) -> anyhow::Result<Observation> {
    let mut observed = Observation::EMPTY;
    append(client, connection, id, instance, &mut observed).await?;
    let read = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
    let answer = client.read(connection.principal.request(read)).await?.into_inner();
    observed.record_read_result(answer.phase, &answer.result.context("a read without a result")?)?;
    Ok(observed)
}

/// The first step of [`propose`].
pub(crate) async fn append(
    client: &mut Client,
    connection: &ProcessConnection,
    id: &str,
    instance: usize,
    observed: &mut Observation,
) -> anyhow::Result<()> {
    let value = proposal(connection.process, instance);
    let append = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
    let answer = client.append(connection.principal.request(append)).await?.into_inner();
    observed.record_append_result(answer.phase, &answer.result.context("an append without a result")?)
}
