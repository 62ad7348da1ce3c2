//! The cluster as this server sees it: the shard of an instance, the owner of a shard, and the servers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use prost_types::Duration;
use stickycas_cluster::keys::Name;
use stickycas_cluster::maintenance::{Fullness, Space};
use stickycas_cluster::membership::{Membership, View};
use stickycas_cluster::shard::{ShardCount, ShardId, id_in_shard, shard_of};
use stickycas_proto::names::InstanceId;
use stickycas_proto::status::Owner;
use stickycas_proto::v1::{ClusterServer, GetClusterResponse, OwnedShard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::instances::{Placement, ShardKey};

/// So long all new instances are of one shard. Those that begin together have steps at the same time, and
/// each shard that has some costs a batch of its own.
pub(super) const TURN: std::time::Duration = std::time::Duration::from_millis(100);

/// See the module.
pub(super) struct Directory {
    name: Name,
    /// Since when shards take turns.
    since: Instant,
    joined: OnceLock<(ShardCount, Membership)>,
    /// Whether etcd has refused the last write for want of space.
    refuses: watch::Receiver<bool>,
    /// Once the server looks after the space of etcd.
    space: OnceLock<watch::Receiver<Space>>,
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Directory {
    /// Of the server with this name, which has not joined its cluster yet.
    pub(super) fn new(name: Name, refuses: watch::Receiver<bool>) -> Self {
        Self { name, since: Instant::now(), joined: OnceLock::new(), refuses, space: OnceLock::new() }
    }

    /// The server looks after the space of etcd.
    pub(super) fn set_space(&self, space: watch::Receiver<Space>) {
        let _ = self.space.set(space);
    }

    /// The space of etcd, as far as it is known.
    pub(super) fn space(&self) -> Space {
        self.space.get().map(|space| space.borrow().clone()).unwrap_or_default()
    }

    /// The name of the server.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// The number of shards, once the server has joined.
    pub(super) fn shards(&self) -> Option<ShardCount> {
        self.joined.get().map(|(shards, _)| *shards)
    }

    /// The server has joined.
    pub(super) fn set_joined(&self, shards: ShardCount, membership: Membership) {
        let _ = self.joined.set((shards, membership));
    }

    pub(super) fn membership(&self) -> Option<&Membership> {
        self.joined.get().map(|(_, membership)| membership)
    }

    /// Whether the server hands all its shards over.
    pub(super) fn is_draining(&self) -> bool {
        self.last_view().servers.get(self.name.as_str()).is_some_and(|info| info.draining)
    }

    /// Whether the server has a lease: without one it owns nothing, and does not know the owners of shards.
    pub(super) fn has_lease(&self) -> bool {
        self.lease_left().is_some_and(|left| !left.is_zero())
    }

    /// The time that is left of the lease; `None`: the server has not joined.
    pub(super) fn lease_left(&self) -> Option<std::time::Duration> {
        let valid_until = *self.membership()?.valid_until().borrow();
        Some(
            valid_until
                .map_or_else(Default::default, |until| until.saturating_duration_since(Instant::now())),
        )
    }

    /// The owners of shards now, as far as this server knows: none without a lease.
    pub(super) fn current_view(&self) -> Arc<View> {
        let view = self.last_view();
        if self.has_lease() {
            view
        } else {
            Arc::new(View { owners: BTreeMap::default(), ..(*view).clone() })
        }
    }

    /// The view that this server was told last, which may be old: nothing that must be true may follow from
    /// it.
    pub(super) fn last_view(&self) -> Arc<View> {
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

    fn id_in(&self, shard: ShardKey, random: u128) -> InstanceId {
        let joined = self.joined.get().and_then(|(shards, _)| Some((*shards, shards.shard(shard.0)?)));
        InstanceId::new(joined.map_or(random, |(shards, shard)| id_in_shard(random, shard, shards)))
    }

    fn turn(&self, _created: usize) -> usize {
        usize::try_from(self.since.elapsed().as_millis() / TURN.as_millis()).unwrap_or_default()
    }

    fn owner_of(&self, shard: ShardKey) -> Option<Owner> {
        let shard = self.joined.get()?.0.shard(shard.0)?;
        let view = self.last_view();
        let owner = view.owners.get(&shard).filter(|owner| owner.server != self.name.as_str())?;
        let address = view.servers.get(&owner.server)?.address.clone();
        Some(Owner { address, epoch: owner.epoch.0.0 })
    }

    fn shard_count(&self) -> u32 {
        // Before it has joined, it does not know of how many shards it has none.
        self.shards().map_or(1, ShardCount::get)
    }

    fn is_owner(&self, shard: ShardKey) -> bool {
        let Some((shards, membership)) = self.joined.get() else { return false };
        shards.shard(shard.0).is_some_and(|shard| membership.owns(shard))
    }

    fn no_space(&self) -> Option<String> {
        let space = self.space.get().map(|space| space.borrow());
        let is_full = space.as_ref().is_some_and(|space| space.fullness() == Fullness::Full);
        (is_full || *self.refuses.borrow()).then(|| {
            let used = space.map(|space| format!(" ({} of {} bytes are in use)", space.used(), space.quota));
            format!(
                "etcd, which has the logs of the cluster, is full{}: no instance is created until space is free",
                used.unwrap_or_default()
            )
        })
    }

    fn other_servers(&self) -> Vec<String> {
        let view = self.last_view();
        let others = view.servers.iter().filter(|(name, _)| *name != self.name.as_str());
        others.map(|(_, info)| info.address.clone()).collect()
    }

    fn cluster(&self) -> GetClusterResponse {
        let Some((shards, _)) = self.joined.get() else { return GetClusterResponse::default() };
        let view = self.current_view();
        let lease_left = self.lease_left().and_then(|left| Duration::try_from(left).ok());
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
            shards_without_owner: without_owner.map(ShardId::get).collect(),
        }
    }
}
