//! Processes that append and read by unary calls.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_client::raw::Connection;
use stickycas_proto::v1::{AppendRequest, ReadRequest};

use super::steps::Steps;
use crate::fixture::Fixture;
use crate::tasks::in_parallel;
use crate::workload::{Observation, by_process, is_last, proposal};

/// Plays all instances of a fixture, `in_flight` at a time; in steps, if there are some for as many clients
/// as play at a time. Returns the observations, by process and then by instance.
pub(crate) async fn play_all(
    fixture: &Fixture,
    in_flight: usize,
    steps: Option<Arc<Steps>>,
) -> anyhow::Result<Vec<Vec<Observation>>> {
    let (principals, ids) = (fixture.principals.clone(), fixture.ids.clone());
    let (processes, instances) = (principals.len(), ids.len());
    let played = in_parallel(processes * instances, processes * in_flight, move |number| {
        let (process, instance) = (number % processes, number / processes);
        let (principal, id) = (principals[process].clone(), ids[instance].clone());
        let steps = steps.clone();
        async move { propose(&principal, &id, process, instance, steps.as_deref()).await }
    });
    Ok(by_process(processes, &played.await?))
}

async fn next(steps: Option<&Steps>) -> anyhow::Result<()> {
    match steps {
        Some(steps) => steps.next().await,
        None => Ok(()),
    }
}

/// Algorithm 1 for lists that one read returns whole.
pub(crate) async fn propose(
    principal: &Connection,
    id: &str,
    process: usize,
    instance: usize,
    steps: Option<&Steps>,
) -> anyhow::Result<Observation> {
    next(steps).await?;
    let mut observed = append(principal, id, process, instance).await?;
    next(steps).await?;
    let read = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
    let answer = principal.list().read(read).await?.into_inner();
    let read = answer.result.context("a read without a result")?;
    is_last(read.start, read.length, read.values.len(), read.sealed)?;
    observed.record_list(answer.phase, read.values.iter().map(AsRef::as_ref))?;
    Ok(observed)
}

/// The first access of [`propose`].
pub(crate) async fn append(
    principal: &Connection,
    id: &str,
    process: usize,
    instance: usize,
) -> anyhow::Result<Observation> {
    let value = proposal(process, instance);
    let append = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
    let answer = principal.list().append(append).await?.into_inner();
    let mut observed = Observation::EMPTY;
    observed.record_append_result(answer.phase, &answer.result.context("an append without a result")?)?;
    Ok(observed)
}
