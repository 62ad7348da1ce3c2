//! What the metrics tell of the cluster.

use super::Cluster;
use crate::instances::Placement as _;
use crate::metrics::{ClusterSample, ShardMoves};

impl Cluster {
    /// How the shards of this server have moved.
    pub(crate) fn moves(&self) -> &ShardMoves {
        &self.moves
    }

    /// The cluster as this server sees it now.
    pub(crate) fn sample(&self) -> ClusterSample {
        let (view, own) = (self.directory.current_view(), self.directory.name().as_str());
        let owned = view.owners.values().filter(|owner| owner.server == own).count() as u64;
        let (served, held) = {
            let held = self.held();
            (held.values().filter(|held| held.is_taken).count() as u64, held.len() as u64)
        };
        // Others are refused at the joining.
        let shards = u64::from(self.shards.get());
        ClusterSample {
            shards,
            owned,
            served,
            taking: held - served,
            without_owner: shards.saturating_sub(view.owners.len() as u64),
            servers: view.servers.len() as u64,
            draining: view.servers.values().filter(|info| info.draining).count() as u64,
            lease: self.lease,
            lease_left: self.directory.lease_left().unwrap_or_default(),
            transactions: self.committer.transactions(),
            confirmations: self.confirmer.confirmations(),
            space: self.directory.space(),
            is_full: self.directory.no_space().is_some(),
        }
    }
}
