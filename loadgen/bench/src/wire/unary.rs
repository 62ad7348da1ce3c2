//! Processes that append and read by unary calls.

use anyhow::Context as _;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, ReadRequest};
use tokio::task::JoinSet;

use crate::fixture::Fixture;
use crate::principal::Principal;
use crate::workload::{Observation, proposal};

/// Plays all instances of a fixture, `in_flight` at a time. Returns the observations, by process and then by
/// instance.
pub(crate) async fn play_all(fixture: &Fixture, in_flight: usize) -> anyhow::Result<Vec<Vec<Observation>>> {
    let mut tasks = JoinSet::new();
    for (process, principal) in fixture.principals.iter().enumerate() {
        for first in 0..in_flight {
            let (principal, ids) = (principal.clone(), fixture.ids.clone());
            tasks.spawn(async move {
                let mut observations = Vec::new();
                for instance in (first..ids.len()).step_by(in_flight) {
                    let seen = propose(&principal, &ids[instance], process, instance).await?;
                    observations.push((instance, seen));
                }
                anyhow::Ok((process, observations))
            });
        }
    }
    let mut all = vec![vec![Observation::EMPTY; fixture.ids.len()]; fixture.principals.len()];
    while let Some(task) = tasks.join_next().await {
        let (process, own) = task??;
        own.into_iter().for_each(|(instance, seen)| all[process][instance] = seen);
    }
    Ok(all)
}

/// Algorithm 1 for lists that one read returns whole.
pub(crate) async fn propose(
    principal: &Principal,
    id: &str,
    process: usize,
    instance: usize,
) -> anyhow::Result<Observation> {
    let mut observed = append(principal, id, process, instance).await?;
    let read = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
    let mut client = StickyCasServiceClient::new(principal.channel.clone());
    let answer = client.read(principal.request(read)).await?.into_inner();
    observed.record_read_result(answer.phase, &answer.result.context("a read without a result")?)?;
    Ok(observed)
}

/// The first step of [`propose`].
pub(crate) async fn append(
    principal: &Principal,
    id: &str,
    process: usize,
    instance: usize,
) -> anyhow::Result<Observation> {
    let value = proposal(process, instance);
    let append = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
    let mut client = StickyCasServiceClient::new(principal.channel.clone());
    let answer = client.append(principal.request(append)).await?.into_inner();
    let mut observed = Observation::EMPTY;
    observed.record_append_result(answer.phase, &answer.result.context("an append without a result")?)?;
    Ok(observed)
}
