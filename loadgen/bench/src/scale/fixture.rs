//! A server, principals that are connected to it, and instances with them.

use std::path::Path;
use std::sync::Arc;

use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;
use tokio::task::JoinSet;

use super::server;
use crate::principal::{Creator, InstanceSize, Principal};
use crate::serve::ServerProcess;

/// n, the number of processes of an instance.
pub(crate) const PROCESSES: u32 = 8;
/// p, the number of processes in a warp.
pub(crate) const WARP_SIZE: u32 = 2;
/// W, the number of warps, and so the length of a list.
pub(crate) const WARPS: u32 = PROCESSES / WARP_SIZE;

const SIZE: InstanceSize = InstanceSize { processes: PROCESSES, warp_size: WARP_SIZE, read_size: PROCESSES };

/// The name of a principal, by number.
pub(crate) fn name(number: usize) -> String {
    format!("principal-{number}")
}

/// See the module.
pub(crate) struct ScaleFixture {
    pub(crate) server: ServerProcess,
    pub(crate) principals: Vec<Principal>,
    pub(crate) creator: Creator,
}

impl ScaleFixture {
    /// Starts a server with room for this many instances, and connects this many principals.
    pub(crate) async fn start(program: &Path, instances: usize, principals: usize) -> anyhow::Result<Self> {
        Self::on(server::start(program, instances)?, principals).await
    }

    /// The same with this server, which is ready.
    pub(crate) async fn on(server: ServerProcess, principals: usize) -> anyhow::Result<Self> {
        server::allow_files(principals)?;
        let creator = Creator::connect(&server.url, SIZE).await?;
        let principals = connect(&server.url, principals).await?;
        Ok(Self { server, principals, creator })
    }

    /// Creates instances with these rosters, several at a time; returns their ids, in this order.
    pub(crate) async fn create(
        &self,
        rosters: Vec<Vec<usize>>,
        pipeline: u32,
    ) -> anyhow::Result<Vec<String>> {
        const AT_ONCE: usize = 32;
        let rosters = Arc::new(rosters);
        let mut creating = JoinSet::new();
        for first in 0..AT_ONCE.min(rosters.len()) {
            let (mut creator, rosters) = (self.creator.clone(), rosters.clone());
            creating.spawn(async move {
                let mut ids = Vec::new();
                for (number, roster) in rosters.iter().enumerate().skip(first).step_by(AT_ONCE) {
                    let roster = roster.iter().map(|number| name(*number)).collect();
                    ids.push((number, create_when_idle(&mut creator, roster, pipeline).await?));
                }
                anyhow::Ok(ids)
            });
        }
        let mut ids = vec![String::new(); rosters.len()];
        while let Some(created) = creating.join_next().await {
            for (number, id) in created?? {
                ids[number] = id;
            }
        }
        Ok(ids)
    }
}

/// Creates an instance. All of them are created before the first is played, and a busy server refuses a
/// creator that is so far ahead: the creation is then repeated later.
async fn create_when_idle(
    creator: &mut Creator,
    roster: Vec<String>,
    pipeline: u32,
) -> anyhow::Result<String> {
    const MOST: usize = 1_000;
    for _ in 1..MOST {
        let refused = match creator.create(roster.clone(), Some(pipeline)).await {
            Ok(id) => return Ok(id),
            Err(refused) => refused,
        };
        let refusal = refused.downcast_ref().and_then(RpcRefusal::from_status);
        let busy = refusal.filter(|refusal| refusal.reason == RefusalReason::TooManyInstances);
        let Some(wait) = busy.and_then(|refusal| refusal.retry_after) else { return Err(refused) };
        tokio::time::sleep(wait).await;
    }
    creator.create(roster, Some(pipeline)).await
}

/// Connects this many principals, each over a connection of its own.
pub(crate) async fn connect(url: &str, count: usize) -> anyhow::Result<Vec<Principal>> {
    let mut principals = Vec::with_capacity(count);
    for number in 0..count {
        principals.push(Principal::connect(url, &name(number)).await?);
    }
    Ok(principals)
}

/// The roster of group `number`: eight principals.
pub(crate) fn group(number: usize) -> Vec<usize> {
    let size = PROCESSES as usize;
    (number * size..(number + 1) * size).collect()
}
