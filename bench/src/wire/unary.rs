//! Processes that append and read by unary calls.

use std::sync::Arc;

use anyhow::Context as _;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, ReadRequest};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::Slot;
use crate::rig::{Line, Rig};
use crate::stopwatch::Sample;
use crate::work::{ACCESSES_PER_PROCESS, Saw, proposal};

/// Over a connection of its own.
pub(crate) type Client = StickyCasServiceClient<Channel>;

/// All processes through all instances, `in_flight` of them at a time.
pub(crate) async fn run(rig: &Rig, in_flight: usize) -> anyhow::Result<Sample> {
    let ids: Arc<[String]> = rig.ids.clone().into();
    let watch = rig.stopwatch();
    let mut slots = JoinSet::new();
    for line in &rig.lines {
        for slot in 0..in_flight {
            slots.spawn(play(line.clone(), ids.clone(), slot, in_flight));
        }
    }
    let mut played = Vec::new();
    while let Some(slot) = slots.join_next().await {
        played.push(slot??);
    }
    let sample = watch.stop(ids.len(), ids.len() * rig.lines.len() * ACCESSES_PER_PROCESS);
    let saw = Slot::together(played, ids.len());
    rig.judge(&saw)?;
    Ok(sample)
}

/// One process through every `stride`-th instance, one after the other.
async fn play(line: Line, ids: Arc<[String]>, slot: usize, stride: usize) -> anyhow::Result<Slot> {
    let mut client = Client::new(line.channel.clone());
    let mut saw = Vec::new();
    for instance in (slot..ids.len()).step_by(stride) {
        saw.push((instance, propose(&mut client, &line, &ids[instance], instance).await?));
    }
    Ok(Slot { process: line.process, saw })
}

/// Algorithm 1, as far as it has to go when one read returns the whole list.
pub(crate) async fn propose(
    client: &mut Client,
    line: &Line,
    id: &str,
    instance: usize,
) -> anyhow::Result<Saw> {
    let mut saw = Saw::NOTHING;
    append(client, line, id, instance, &mut saw).await?;
    let read = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
    let answer = client.read(line.request(read)).await?.into_inner();
    saw.read(answer.phase, &answer.result.context("a read without a result")?)?;
    Ok(saw)
}

/// The first half of it.
pub(crate) async fn append(
    client: &mut Client,
    line: &Line,
    id: &str,
    instance: usize,
    saw: &mut Saw,
) -> anyhow::Result<()> {
    let value = proposal(line.process, instance);
    let append = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
    let answer = client.append(line.request(append)).await?.into_inner();
    saw.appended(answer.phase, &answer.result.context("an append without a result")?)
}
