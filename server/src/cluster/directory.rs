//! The cluster as this server sees it: which shard an instance belongs to, who owns it, and who the servers are.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prost_types::Duration;
use stickycas_cluster::keys::Name;
use stickycas_cluster::membership::{Membership, View};
use stickycas_cluster::shard::{ShardCount, shard_of};
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::{Owner, RpcRefusal};
use stickycas_proto::v1::{ClusterServer, GetClusterResponse, OwnedShard, RefusalReason};

use super::store::SharedStore;
use crate::instances::{Claimed, NameClaims, Placement, ShardKey};

/// See the module.
pub(super) struct Directory {
    name: Name,
    joined: OnceLock<(ShardCount, Membership)>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Directory {
    /// Of the server with this name, which has not joined its cluster yet.
    pub(super) fn new(name: Name) -> Self {
        Self { name, joined: OnceLock::new() }
    }

    /// The server has joined.
    pub(super) fn set_joined(&self, shards: ShardCount, membership: Membership) {
        let _ = self.joined.set((shards, membership));
    }

    pub(super) fn membership(&self) -> Option<&Membership> {
        self.joined.get().map(|(_, membership)| membership)
    }

    fn view(&self) -> Arc<View> {
        self.membership().map_or_else(Arc::default, |membership| membership.view().borrow().clone())
    }
}

impl Placement for Directory {
    fn shard_of(&self, id: InstanceId) -> ShardKey {
        // Before it has joined, the server has no shards.
        self.joined
            .get()
            .map_or_else(ShardKey::default, |(shards, _)| ShardKey(shard_of(id.get(), *shards).get()))
    }

    fn owner_of(&self, shard: ShardKey) -> Option<Owner> {
        let shard = self.joined.get()?.0.shard(shard.0)?;
        let view = self.view();
        let owner = view.owners.get(&shard)?;
        let address = view.servers.get(&owner.server)?.address.clone();
        Some(Owner { address, epoch: owner.epoch.0.0 })
    }

    fn other_servers(&self) -> Vec<String> {
        let view = self.view();
        let others = view.servers.iter().filter(|(name, _)| *name != self.name.as_str());
        others.map(|(_, info)| info.address.clone()).collect()
    }

    fn cluster(&self) -> GetClusterResponse {
        let Some((shards, membership)) = self.joined.get() else { return GetClusterResponse::default() };
        let view = self.view();
        let lease_left = membership.valid_until().borrow().and_then(|until| {
            let left = until.saturating_duration_since(tokio::time::Instant::now());
            Duration::try_from(left).ok()
        });
        let servers = view.servers.iter().map(|(name, info)| ClusterServer {
            name: name.clone(),
            address: info.address.clone(),
            shards: view
                .owners
                .iter()
                .filter(|(_, owner)| owner.server == *name)
                .map(|(shard, owner)| OwnedShard { shard: shard.get(), epoch: owner.epoch.0.0 })
                .collect(),
            lease_left: lease_left.filter(|_| *name == self.name.as_str()),
            draining: info.draining,
        });
        let without_owner = shards.shards().filter(|shard| !view.owners.contains_key(shard));
        GetClusterResponse {
            shards: shards.get(),
            servers: servers.collect(),
            answered_by: self.name.as_str().to_owned(),
            shards_without_owner: without_owner.map(|shard| shard.get()).collect(),
        }
    }
}

/// Names are asked for in the store.
#[derive(Debug)]
pub(super) struct Names(pub(super) Arc<dyn SharedStore>);

impl NameClaims for Names {
    fn claimed(&self, name: &InstanceName) -> Claimed {
        let holder = self.0.holder(name);
        Box::pin(async move {
            holder.await.map_err(|error| {
                let why = format!("etcd does not tell who has the name: {error}; try again");
                RpcRefusal::new(RefusalReason::Recovering, why)
            })
        })
    }
}
