//! The same consensus on etcd: 32 processes on as many connections fill a write-once list of 8 entries and decide its mode.
//!
//! | here | on etcd |
//! | --- | --- |
//! | the list of an instance | the keys `INSTANCE/0` to `INSTANCE/7` |
//! | append, by a process of warp w | a transaction that puts the key of position w-1 if it does not exist: the four of a warp compete for it, one wins |
//! | read | a range over `INSTANCE/`, linearizable, which is the default |
//! | decide | the mode of the eight, the smallest of several |
//!
//! etcd has no scheduler of warps, so each warp has its position from the start; who loses it does not try another, as
//! here. Whatever could be chosen is chosen in etcd's favour:
//! - It has no list to be created; its keys come into being with the appends.
//! - A process must not read before all eight stand. On etcd it would have to ask again and again, or watch. Here it is
//!   told for nothing, by a flag within this program, when the last of them was created, and then reads once. So there are
//!   exactly two operations for each process, as many as on StickyCAS, where the read itself waits.
//! - It is one etcd, with nobody to replicate to; its clients are not authenticated and have no quota; decisions are not
//!   reported.
//!
//! With fsync, etcd's default, an answer means that the entry is on the disk. StickyCAS keeps its list in memory, so the
//! candidate without fsync stands beside it. What processes saw goes before the same judge as ours, with the phases that
//! the mapping implies: appends of warp w in phase w, reads in phase 8 + w.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use stickycas_model::access::AppendAnswer;
use stickycas_model::types::Position;
use tokio::sync::SetOnce;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use super::wire::compare::{CompareResult, CompareTarget, TargetUnion};
use super::wire::kv_client::KvClient;
use super::wire::request_op::Request;
use super::wire::{Compare, PutRequest, RangeRequest, RequestOp, TxnRequest};
use super::{Etcd, Program};
use crate::rig::connect;
use crate::stopwatch::{Sample, Stopwatch};
use crate::wire::Slot;
use crate::work::{self, ACCESSES_PER_PROCESS, PROCESSES, Saw, WARP_SIZE, WARPS, proposal};

/// How the list of an instance fills up.
#[derive(Default)]
struct Filling {
    created: AtomicU32,
    full: SetOnce<()>,
}

impl Filling {
    /// One more position stands.
    fn created(&self) {
        if self.created.fetch_add(1, Ordering::AcqRel) + 1 == WARPS {
            // Nobody else counts to the last one.
            let _first = self.full.set(());
        }
    }
}

/// All processes through all instances, `in_flight` of them at a time, on an etcd that is started for it.
pub(crate) async fn run(
    program: &Program,
    fsync: bool,
    instances: usize,
    in_flight: usize,
) -> anyhow::Result<Sample> {
    let etcd: Etcd = program.start(fsync).await?;
    let channels = connect(&etcd.url).await?;
    let lists: Arc<[Filling]> = (0..instances).map(|_| Filling::default()).collect();
    let watch = Stopwatch::start(Some(etcd.pid()));
    let mut slots = JoinSet::new();
    for (process, channel) in channels.into_iter().enumerate() {
        for slot in 0..in_flight {
            slots.spawn(play(process, channel.clone(), lists.clone(), slot, in_flight));
        }
    }
    let mut played = Vec::new();
    while let Some(slot) = slots.join_next().await {
        played.push(slot??);
    }
    let sample = watch.stop(instances, instances * PROCESSES as usize * ACCESSES_PER_PROCESS);
    work::judge(&Slot::together(played, instances), instances)?;
    Ok(sample)
}

/// One process through every `stride`-th instance, one after the other.
async fn play(
    process: usize,
    channel: Channel,
    lists: Arc<[Filling]>,
    slot: usize,
    stride: usize,
) -> anyhow::Result<Slot> {
    let mut client = KvClient::new(channel);
    let mut saw = Vec::new();
    for instance in (slot..lists.len()).step_by(stride) {
        saw.push((instance, propose(&mut client, process, instance, &lists[instance]).await?));
    }
    Ok(Slot { process, saw })
}

async fn propose(
    client: &mut KvClient<Channel>,
    process: usize,
    instance: usize,
    list: &Filling,
) -> anyhow::Result<Saw> {
    let position = u32::try_from(process)? / WARP_SIZE;
    let phase = u64::from(position) + 1;
    let mut saw = Saw::NOTHING;
    let won =
        client.txn(create(instance, position, proposal(process, instance))).await?.into_inner().succeeded;
    if won {
        list.created();
        saw.appended_with(phase, AppendAnswer::Success(Position::new(position)));
    } else {
        saw.appended_with(phase, AppendAnswer::Failed);
    }
    list.full.wait().await;
    let found = client.range(all(instance)).await?.into_inner().kvs;
    for (entry, position) in found.iter().zip(0..WARPS) {
        ensure!(entry.key == key(instance, position), "entry {position} stands at {:?}", entry.key);
    }
    let values = found.iter().map(|entry| entry.value.as_ref());
    saw.read_all(u64::from(WARPS) + phase, values).context("all positions were created")?;
    Ok(saw)
}

fn key(instance: usize, position: u32) -> Bytes {
    format!("{instance:08x}/{position}").into()
}

/// Puts the value where nothing stands.
fn create(instance: usize, position: u32, value: Bytes) -> TxnRequest {
    let key = key(instance, position);
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.clone(),
        target_union: Some(TargetUnion::CreateRevision(0)),
    };
    let put = RequestOp { request: Some(Request::RequestPut(PutRequest { key, value })) };
    TxnRequest { compare: vec![compare], success: vec![put] }
}

/// All entries of an instance: `0` is the character after `/`.
fn all(instance: usize) -> RangeRequest {
    let (key, range_end) = (format!("{instance:08x}/").into(), format!("{instance:08x}0").into());
    RangeRequest { key, range_end, limit: WARPS.into() }
}
