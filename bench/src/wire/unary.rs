//! Processes that append and read by unary calls.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, ReadRequest};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::rig::{Line, Rig, Sample, Stopwatch, check_agreement, decide, proposal};

/// All processes through all instances, `in_flight` of them at a time.
pub(crate) async fn run(rig: &Rig, in_flight: usize) -> anyhow::Result<Sample> {
    let ids: Arc<[String]> = rig.ids.clone().into();
    let watch = Stopwatch::start();
    let mut slots = JoinSet::new();
    for line in &rig.lines {
        for slot in 0..in_flight {
            slots.spawn(play(line.clone(), ids.clone(), slot, in_flight));
        }
    }
    let mut decisions = vec![vec![Bytes::new(); ids.len()]; rig.lines.len()];
    let mut decided = Vec::new();
    while let Some(slot) = slots.join_next().await {
        decided.push(slot??);
    }
    let sample = watch.stop(rig.accesses());
    for (process, instance, decision) in decided.into_iter().flatten() {
        decisions[process][instance] = decision;
    }
    check_agreement(&decisions, ids.len())?;
    Ok(sample)
}

/// One process through every `stride`-th instance, one after the other.
async fn play(
    line: Line,
    ids: Arc<[String]>,
    slot: usize,
    stride: usize,
) -> anyhow::Result<Vec<(usize, usize, Bytes)>> {
    let mut client = StickyCasServiceClient::new(line.channel.clone());
    let mut decided = Vec::new();
    for instance in (slot..ids.len()).step_by(stride) {
        let decision = propose(&mut client, &line, &ids[instance], proposal(line.process, instance)).await?;
        decided.push((line.process, instance, decision));
    }
    Ok(decided)
}

/// Algorithm 1, as far as it has to go when one read returns the whole list.
async fn propose(
    client: &mut StickyCasServiceClient<Channel>,
    line: &Line,
    id: &str,
    value: Bytes,
) -> anyhow::Result<Bytes> {
    let append = AppendRequest { instance_id: id.to_owned(), access_number: 1, value, no_wait: false };
    client.append(line.request(append)).await?;
    let read = ReadRequest { instance_id: id.to_owned(), access_number: 2, start: 0, no_wait: false };
    let answer = client.read(line.request(read)).await?.into_inner();
    decide(&answer.result.context("a read without a result")?)
}
