//! The reads of a server in the store that the cluster shares, beside those of committer, confirmer and
//! membership.

use std::pin::Pin;
use std::sync::Arc;

use stickycas_cluster::committer::LogEnd;
use stickycas_cluster::keys::{Epoch, Identity, Keys};
use stickycas_cluster::membership::{self, IdentityError};
use stickycas_cluster::read::{ReadError, Stored, read_shard};
use stickycas_cluster::shard::ShardId;
use stickycas_cluster::store::{KeyRange, Store};
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::instances::{Claimed, NameClaims};

type Answer<T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send>>;

/// See the module. Names are asked for in the store.
pub(super) trait SharedStore: NameClaims {
    /// The identity of the cluster, which never changes; `wanted`, if there is none yet.
    fn identity(&self, wanted: Identity) -> Answer<Identity, IdentityError>;

    /// The content and the end of the log of a shard that this server owns: checkpoints in the order of their
    /// numbers, since a later instance may have taken the name of an earlier one, and then batches.
    fn read_shard(&self, shard: ShardId, epoch: Epoch) -> Answer<(Vec<Stored>, LogEnd), ReadError>;
}

/// The keys of one cluster in a store.
#[derive(Debug)]
pub(super) struct KeysIn<S> {
    pub(super) store: Arc<S>,
    pub(super) keys: Keys,
}

impl<S: Store> SharedStore for KeysIn<S> {
    fn identity(&self, wanted: Identity) -> Answer<Identity, IdentityError> {
        let (store, keys) = (self.store.clone(), self.keys.clone());
        Box::pin(async move { membership::identity(&*store, &keys, wanted).await })
    }

    fn read_shard(&self, shard: ShardId, epoch: Epoch) -> Answer<(Vec<Stored>, LogEnd), ReadError> {
        let (store, keys) = (self.store.clone(), self.keys.clone());
        Box::pin(async move {
            let mut found = Vec::new();
            let visit = |stored| {
                found.push(stored);
                Ok(())
            };
            let end = read_shard(&*store, &keys, shard, epoch, visit).await?;
            found.sort_by_key(|stored| match stored {
                Stored::Checkpoint(number, _) => (false, *number),
                Stored::Batch(log_index, _) => (true, log_index.0),
            });
            Ok((found, end))
        })
    }
}

impl<S: Store> NameClaims for KeysIn<S> {
    fn claimed(&self, name: &InstanceName) -> Claimed {
        let (store, key) = (self.store.clone(), self.keys.name(name.as_str()));
        Box::pin(async move {
            // A linearizable read.
            let read = store.range(KeyRange::one(key), 1).await.map_err(|error| {
                let why = format!("etcd does not tell who has the name: {error}; try again");
                RpcRefusal::new(RefusalReason::Recovering, why)
            })?;
            Ok(read.found.first().and_then(|kv| InstanceId::from_hex(&kv.value)))
        })
    }
}
