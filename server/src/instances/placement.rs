//! The shard of an instance, and the owner of a shard: a call for an instance of another server is refused
//! with `NOT_OWNER` and a hint of the owner.

use std::fmt;

use stickycas_proto::names::InstanceId;
use stickycas_proto::status::{Owner, RpcRefusal};
use stickycas_proto::v1::{ClusterServer, GetClusterResponse, OwnedShard, RefusalReason};

/// Names a shard: from 0, below the number of shards of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShardKey(pub(crate) u32);

/// The shard of an instance, and the owner of a shard.
pub(crate) trait Placement: fmt::Debug + Send + Sync {
    /// The shard of the instance with this id: the same at each call and at each server of the cluster.
    fn shard_of(&self, id: InstanceId) -> ShardKey;

    /// The id of an instance of this shard, made of random bits.
    fn id_in(&self, shard: ShardKey, random: u128) -> InstanceId;

    /// The index, modulo their number, of the served shard for a new instance, before which so many were
    /// created here.
    fn turn(&self, created: usize) -> usize {
        created
    }

    /// The other server that owns this shard as far as is known here; `None`: nobody does, or this server.
    fn owner_of(&self, shard: ShardKey) -> Option<Owner>;

    /// Whether this server owns this shard as far as is known here, served or not.
    fn is_owner(&self, shard: ShardKey) -> bool;

    /// The refusal of a call for an instance of this shard, which is not served here; `is_leaving`: it is to
    /// be handed over, or is lost. This server is never named in it: a client asks an owner that it is told
    /// of at once.
    fn not_owner(&self, shard: ShardKey, is_leaving: bool) -> RpcRefusal {
        let key = shard.0;
        if let Some(owner) = self.owner_of(shard) {
            let why = format!("{} owns shard {key}: ask there", owner.address);
            return RpcRefusal::new(RefusalReason::NotOwner, why).with_owner(owner);
        }
        if self.is_owner(shard) && !is_leaving {
            let why = format!("the server reads the log of shard {key}: try again");
            return RpcRefusal::new(RefusalReason::Recovering, why);
        }
        RpcRefusal::new(
            RefusalReason::NotOwner,
            format!("no server serves shard {key} at the moment: try again"),
        )
    }

    /// The reason for which no instance is created although this server has capacity: the shared store has no
    /// space.
    fn no_space(&self) -> Option<String> {
        None
    }

    /// The addresses of the other servers of the cluster.
    fn other_servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The number of shards of the cluster.
    fn shard_count(&self) -> u32 {
        1
    }

    /// The cluster as this server sees it. A server that belongs to none has the one shard that there is.
    fn cluster(&self) -> GetClusterResponse {
        let shards = vec![OwnedShard { shard: 0, epoch: 0 }];
        let server = ClusterServer { shards, ..ClusterServer::default() };
        GetClusterResponse {
            shards: self.shard_count(),
            servers: vec![server],
            ..GetClusterResponse::default()
        }
    }
}

/// One shard, and it is here.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneShard;

impl Placement for OneShard {
    fn shard_of(&self, _: InstanceId) -> ShardKey {
        ShardKey::default()
    }

    fn id_in(&self, _: ShardKey, random: u128) -> InstanceId {
        InstanceId::new(random)
    }

    fn owner_of(&self, _: ShardKey) -> Option<Owner> {
        None
    }

    fn is_owner(&self, _: ShardKey) -> bool {
        true
    }
}

/// The refusal of calls for a shard that this server has lost to another one.
pub(crate) fn owner_lost(key: ShardKey) -> RpcRefusal {
    let why = format!(
        "the server has lost shard {} to another one, and it is unknown whether it happened: ask again with the same number at \
         the owner",
        key.0
    );
    RpcRefusal::new(RefusalReason::OwnerLost, why)
}
