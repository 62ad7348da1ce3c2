//! Unary calls that wait: seven of eight processes have sent all that they may, and the eighth does not come.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, GetRequest, ReadRequest, get_request};
use tokio::task::JoinSet;

use super::Measurement;
use super::play::proposal;
use super::program::memory;
use super::town::{PROCESSES, Principal, Town, group};

/// Accesses that a process may have waiting in one instance.
const PIPELINE: u32 = 16;
/// Instances of one group of principals: a server lets a principal have 1,024 calls at a time by default.
const INSTANCES: usize = 60;
/// Calls of one group.
const CALLS: usize = (PROCESSES as usize - 1) * INSTANCES * PIPELINE as usize;

/// Has so many calls wait, or a few more.
pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = count.div_ceil(CALLS);
    let town = Town::found(program, groups * INSTANCES, groups * PROCESSES as usize).await?;
    let rosters = (0..groups * INSTANCES).map(|number| group(number / INSTANCES)).collect();
    let ids = town.create(rosters, PIPELINE).await?;
    let before = memory(town.server.pid()).await?;
    let started = Instant::now();
    let mut calls = JoinSet::new();
    for (ids, principals) in ids.chunks(INSTANCES).zip(town.principals.chunks(PROCESSES as usize)) {
        for principal in &principals[1..] {
            for id in ids {
                for number in 1..=PIPELINE {
                    calls.spawn(call(principal.clone(), id.clone(), number.into()));
                }
            }
        }
    }
    for id in &ids {
        while waiting(&town.creator, id).await? < CALLS / INSTANCES {
            if let Some(call) = calls.try_join_next() {
                call??;
                anyhow::bail!("a call was answered that should wait");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let wall = started.elapsed();
    let after = memory(town.server.pid()).await?;
    Ok(Measurement::new("unary calls that wait", groups * CALLS, before, after, wall))
}

/// The first access appends, the others read.
async fn call(principal: Principal, instance_id: String, access_number: u64) -> anyhow::Result<()> {
    let mut client = StickyCasServiceClient::new(principal.channel.clone());
    if access_number == 1 {
        let append = AppendRequest { instance_id, access_number, value: proposal(0, 0), no_wait: false };
        client.append(principal.request(append)).await?;
    } else {
        let read = ReadRequest { instance_id, access_number, start: 0, no_wait: false };
        client.read(principal.request(read)).await?;
    }
    Ok(())
}

/// How many accesses wait in this instance.
async fn waiting(creator: &Principal, id: &str) -> anyhow::Result<usize> {
    let instance = Some(get_request::Instance::InstanceId(id.to_owned()));
    let request = creator.request(GetRequest { instance });
    let got = InstanceServiceClient::new(creator.channel.clone()).get(request).await?.into_inner();
    let status = got.status.context("no status in the answer")?;
    Ok(status.waiting.iter().map(|process| process.append_numbers.len() + process.read_numbers.len()).sum())
}
