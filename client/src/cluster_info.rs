//! The servers of a cluster and what each of them owns, as one of them tells.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;
use stickycas_proto::names::InstanceId;
use stickycas_proto::v1;

use crate::cluster::shard_of;
use crate::error::Error;
use crate::info::optional_duration;

/// A cluster, as one of its servers knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterInfo {
    /// The number of shards. Each instance belongs to one of them, by its id.
    pub shards: u32,
    /// The servers, in the order of their names.
    pub servers: Vec<ClusterServer>,
    /// The name of the server that has answered; empty if it belongs to no cluster.
    pub answered_by: String,
    /// The shards that nobody owns at the moment.
    pub shards_without_owner: Vec<u32>,
}

/// A server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterServer {
    /// Its name; empty if it belongs to no cluster.
    pub name: String,
    /// Its address for clients, host and port.
    pub address: String,
    /// The shards that it owns.
    pub shards: Vec<OwnedShard>,
    /// The time that is left of its lease; `None`: not known, or it needs none.
    #[serde(serialize_with = "optional_duration", skip_serializing_if = "Option::is_none")]
    pub lease_left: Option<Duration>,
    /// Whether it hands its shards over in order to stop.
    pub draining: bool,
}

/// A shard, and the epoch of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OwnedShard {
    /// The shard, from 0.
    pub shard: u32,
    /// Higher with each owner that the shard has had; 0: of a server that belongs to no cluster.
    pub epoch: u64,
}

impl ClusterInfo {
    /// The server that owns the shard of an instance, and the epoch since which it does. `None`: nobody is
    /// known to, or the servers belong to no cluster.
    #[must_use]
    pub fn owner_of(&self, instance: InstanceId) -> Option<(&ClusterServer, u64)> {
        let shard = shard_of(instance, NonZeroU32::new(self.shards)?);
        let epoch = |server: &ClusterServer| {
            server
                .shards
                .iter()
                .find(|owned| owned.shard == shard && owned.epoch > 0)
                .map(|owned| owned.epoch)
        };
        let owners = self.servers.iter().filter_map(|server| Some((server, epoch(server)?)));
        owners.max_by_key(|(_, epoch)| *epoch)
    }

    /// `asked`: the address of the server that has answered.
    pub(crate) fn from_wire(wire: v1::GetClusterResponse, asked: &str) -> Result<Self, Error> {
        let servers = wire.servers.into_iter().map(|server| ClusterServer::from_wire(server, asked));
        let servers: Vec<_> = servers.collect::<Result<_, _>>()?;
        if wire.shards == 0 || servers.is_empty() {
            return Err(Error::Protocol("a cluster without shards or servers".to_owned()));
        }
        let v1::GetClusterResponse { shards, answered_by, shards_without_owner, .. } = wire;
        Ok(Self { shards, servers, answered_by, shards_without_owner })
    }
}

impl ClusterServer {
    fn from_wire(wire: v1::ClusterServer, asked: &str) -> Result<Self, Error> {
        let lease_left = wire.lease_left.map(Duration::try_from).transpose();
        let lease_left = lease_left.map_err(|_| Error::Protocol("lease_left is no duration".to_owned()))?;
        let shards = wire.shards.iter().map(|&v1::OwnedShard { shard, epoch }| OwnedShard { shard, epoch });
        Ok(Self {
            name: wire.name,
            address: if wire.address.is_empty() { asked.to_owned() } else { wire.address },
            shards: shards.collect(),
            lease_left,
            draining: wire.draining,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_no_cluster_has_the_address_at_which_it_was_asked() {
        let server = v1::ClusterServer::default();
        let answer = v1::GetClusterResponse { shards: 1, servers: vec![server], ..Default::default() };
        let info = ClusterInfo::from_wire(answer, "localhost:7420").unwrap();
        assert_eq!(info.servers[0].address, "localhost:7420");
        assert!(ClusterInfo::from_wire(v1::GetClusterResponse::default(), "localhost:7420").is_err());
    }

    #[test]
    fn the_owner_of_an_instance_is_that_of_its_shard() {
        let server = |name: &str, shards: &[(u32, u64)]| {
            let shards = shards.iter().map(|&(shard, epoch)| v1::OwnedShard { shard, epoch }).collect();
            v1::ClusterServer { name: name.to_owned(), shards, ..Default::default() }
        };
        // Two servers name themselves: the newer epoch counts.
        let servers = vec![server("a", &[(0, 3), (2, 4)]), server("b", &[(1, 5), (2, 9)])];
        let answer = v1::GetClusterResponse { shards: 5, servers, ..Default::default() };
        let info = ClusterInfo::from_wire(answer, "a:1").unwrap();
        let owner =
            |id: u128| info.owner_of(InstanceId::new(id)).map(|(server, epoch)| (&*server.name, epoch));
        assert_eq!(owner(10), Some(("a", 3)));
        assert_eq!(owner((7 << 48) + 6), Some(("b", 5)), "the bits before the last 48 do not count");
        assert_eq!(owner(2), Some(("b", 9)));
        assert_eq!(owner(3), None);
    }

    #[test]
    fn a_lease_that_is_no_duration_is_an_error() {
        let lease_left = Some(prost_types::Duration { seconds: -1, nanos: 0 });
        let servers = vec![v1::ClusterServer { lease_left, ..Default::default() }];
        let answer = v1::GetClusterResponse { shards: 1, servers, ..Default::default() };
        assert!(matches!(ClusterInfo::from_wire(answer, "a:1"), Err(Error::Protocol(_))));
    }
}
