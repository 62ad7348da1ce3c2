//! Unary calls that wait: seven of eight processes have sent as many accesses as may wait, and the eighth
//! does not join.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_proto::v1::instance_service_client::InstanceServiceClient;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendRequest, GetRequest, ReadRequest, get_request};
use tokio::task::JoinSet;

use super::Measurement;
use super::fixture::{PROCESSES, ScaleFixture, group};
use super::process::proposal;
use super::server::memory;
use crate::principal::Principal;

/// Accesses that a process may have waiting in one instance.
const PIPELINE: u32 = 16;
/// Instances of one group of principals: a server lets a principal have 1,024 calls at a time by default.
const INSTANCES: usize = 60;
/// Calls of one group.
const CALLS: usize = (PROCESSES as usize - 1) * INSTANCES * PIPELINE as usize;

/// Measures this many waiting calls, or a few more.
pub(super) async fn measure(program: &Path, count: usize) -> anyhow::Result<Measurement> {
    let groups = count.div_ceil(CALLS);
    let fixture = ScaleFixture::start(program, groups * INSTANCES, groups * PROCESSES as usize).await?;
    let rosters = (0..groups * INSTANCES).map(|number| group(number / INSTANCES)).collect();
    let ids = fixture.create(rosters, PIPELINE).await?;
    let before = memory(fixture.server.pid()).await?;
    let started = Instant::now();
    let mut calls = JoinSet::new();
    // The accesses of a process arrive in the order of their numbers only if each is waiting before the next
    // is sent.
    for number in 1..=PIPELINE {
        for (ids, principals) in ids.chunks(INSTANCES).zip(fixture.principals.chunks(PROCESSES as usize)) {
            for principal in &principals[1..] {
                for id in ids {
                    calls.spawn(call(principal.clone(), id.clone(), number.into()));
                }
            }
        }
        for id in &ids {
            while waiting(&fixture.creator.principal, id).await? < (PROCESSES as usize - 1) * number as usize
            {
                if let Some(call) = calls.try_join_next() {
                    call??;
                    anyhow::bail!("a call was answered that should wait");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let wall = started.elapsed();
    let after = memory(fixture.server.pid()).await?;
    Ok(Measurement::new("unary calls that wait", groups * CALLS, before, after, wall))
}

/// The first access of a process appends, the others read.
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

/// The number of accesses that wait in this instance.
async fn waiting(creator: &Principal, id: &str) -> anyhow::Result<usize> {
    let instance = Some(get_request::Instance::InstanceId(id.to_owned()));
    let request = creator.request(GetRequest { instance });
    let got = InstanceServiceClient::new(creator.channel.clone()).get(request).await?.into_inner();
    let status = got.status.context("no status in the answer")?;
    Ok(status.waiting.iter().map(|process| process.append_numbers.len() + process.read_numbers.len()).sum())
}
