//! The same consensus on etcd: 32 processes on as many connections fill a write-once list of 8 entries and
//! decide its mode. See `docs/internals/performance.md`.
//!
//! The list of an instance is the keys `INSTANCE/0` to `INSTANCE/7`. etcd has no scheduler of warps: so each
//! warp has a fixed position, its four processes compete for that key, and one that loses it does not try
//! another. A flag within this program says at no cost when all entries exist, where on etcd a process would
//! poll or watch. The same judge judges the observations, with the phases that the mapping implies: appends
//! of warp w in phase w, reads in phase 8 + w.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use stickycas_model::access::AppendAnswer;
use stickycas_model::types::Position;
use tokio::sync::Semaphore;
use tonic::transport::{Channel, Endpoint};

use self::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use self::wire::kv_client::KvClient;
use self::wire::request_op::Request;
use self::wire::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};
pub(crate) use stickycas_cluster::etcd::wire;
pub(crate) use stickycas_cluster::testing::etcd::{Etcd, Options, Program};

use crate::results::Figures;
use crate::stopwatch::Stopwatch;
use crate::tasks::in_parallel;
use crate::workload::{Observation, Shape, by_process, judge, proposal};

const SHAPE: Shape = Shape::WIRE;
const WARPS: u32 = SHAPE.warps();

/// The process ids of its members.
pub(crate) fn pids(etcd: &Etcd) -> Vec<u32> {
    (0..etcd.urls().len()).filter_map(|member| etcd.pid(member)).collect()
}

/// Plays all instances, `in_flight` at a time, on this etcd, which holds nothing of it yet. Connections are
/// to one member after the other.
pub(crate) async fn run(etcd: &Etcd, instances: usize, in_flight: usize) -> anyhow::Result<Figures> {
    let mut channels = Vec::new();
    for url in etcd.urls().iter().cycle().take(SHAPE.processes as usize) {
        channels.push(Endpoint::from_shared(url.clone())?.connect().await?);
    }
    // A permit for each entry that exists.
    let lists: Arc<[Semaphore]> = (0..instances).map(|_| Semaphore::new(0)).collect();
    let watch = Stopwatch::start(Vec::new(), pids(etcd));
    let processes = channels.len();
    let played = in_parallel(processes * instances, processes * in_flight, move |number| {
        let (process, instance) = (number % processes, number / processes);
        let (mut client, lists) = (KvClient::new(channels[process].clone()), lists.clone());
        async move { propose(&mut client, process, instance, &lists[instance]).await }
    });
    let played = played.await?;
    let (_, figures) = watch.stop(instances, instances * SHAPE.accesses());
    judge(SHAPE, &by_process(processes, &played))?;
    Ok(figures)
}

async fn propose(
    client: &mut KvClient<Channel>,
    process: usize,
    instance: usize,
    list: &Semaphore,
) -> anyhow::Result<Observation> {
    let position = u32::try_from(process)? / SHAPE.warp_size;
    let phase = u64::from(position) + 1;
    let mut observed = Observation::EMPTY;
    let won =
        client.txn(create(instance, position, proposal(process, instance))).await?.into_inner().succeeded;
    if won {
        list.add_permits(1);
        observed.record_append(phase, AppendAnswer::Success(Position::new(position)));
    } else {
        observed.record_append(phase, AppendAnswer::Failed);
    }
    drop(list.acquire_many(WARPS).await?);
    let found = client.range(all(instance)).await?.into_inner().kvs;
    for (entry, position) in found.iter().zip(0..WARPS) {
        ensure!(entry.key == key(instance, position), "entry {position} has the key {:?}", entry.key);
    }
    let values = found.iter().map(|entry| entry.value.as_ref());
    observed.record_list(u64::from(WARPS) + phase, values).context("all positions were created")?;
    Ok(observed)
}

fn key(instance: usize, position: u32) -> Bytes {
    format!("{instance:08x}/{position}").into()
}

/// Puts the value at a position that has none.
fn create(instance: usize, position: u32, value: Bytes) -> TxnRequest {
    let key = key(instance, position);
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(0)),
    };
    let put = RequestOp { request: Some(Request::RequestPut(PutRequest { key, value, lease: 0 })) };
    TxnRequest { compare: vec![compare], success: vec![put], failure: Vec::new() }
}

/// Reads all entries of an instance: `0` is the character after `/`.
fn all(instance: usize) -> RangeRequest {
    let (key, range_end) = (format!("{instance:08x}/").into(), format!("{instance:08x}0").into());
    RangeRequest { key, range_end, limit: WARPS.into(), revision: 0 }
}
