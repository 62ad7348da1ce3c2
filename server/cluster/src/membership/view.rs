//! The state of the cluster as one server sees it.

use std::collections::BTreeMap;

use crate::committer::Owner;
use crate::keys::{BadRecord, Epoch, Keys, RulesVersion, ServerInfo, Subject};
use crate::placement::{Candidate, Placed, placement};
use crate::shard::{ShardCount, ShardId};
use crate::store::{Change, KeyValue, LeaseId, Revision};

/// Which servers there are, and which shards they own. It may be late; nothing that must be safe rests on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Servers by name.
    pub servers: BTreeMap<String, ServerInfo>,
    /// Owners of shards.
    pub owners: BTreeMap<ShardId, Owner>,
    /// The rules that the logs of shards need.
    pub rules: BTreeMap<ShardId, RulesVersion>,
}

/// The meaning of a change of an owner's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnerChange {
    /// The shard has an owner since this epoch, by this lease.
    Owned(ShardId, Epoch, Option<LeaseId>),
    /// The shard had no owner at this revision.
    Free(ShardId, Revision),
}

impl View {
    /// The desired owner of each shard, by its number.
    pub(super) fn desired(&self, shards: ShardCount) -> Vec<Option<&str>> {
        let alive = self.servers.iter().filter(|(_, info)| !info.draining);
        let candidates: Vec<Candidate<'_>> =
            alive.map(|(name, info)| Candidate { name, replays: info.replays }).collect();
        let placed: Vec<Placed<'_>> = shards
            .shards()
            .map(|shard| Placed {
                owner: self.owners.get(&shard).map(|owner| owner.server.as_str()),
                rules: self.rules.get(&shard).copied().unwrap_or_default(),
            })
            .collect();
        placement(&candidates, &placed)
            .into_iter()
            .map(|server| server.map(|at| candidates[at].name))
            .collect()
    }

    /// The server that is so many places behind this one among those that can replay the shard.
    pub(super) fn behind<'a>(&'a self, shard: ShardId, server: &'a str, places: usize) -> Option<&'a str> {
        if places == 0 {
            return Some(server);
        }
        let rules = self.rules.get(&shard).copied().unwrap_or_default();
        let able: Vec<&str> = self
            .servers
            .iter()
            .filter(|(_, info)| !info.draining && info.replays >= rules)
            .map(|(name, _)| name.as_str())
            .collect();
        let first = able.iter().position(|name| *name == server)?;
        able.get(first.wrapping_add(places) % able.len()).copied()
    }

    /// Takes a change of a server, an owner or a shard's rules in.
    pub(super) fn change(
        &mut self,
        keys: &Keys,
        shards: ShardCount,
        change: &Change,
    ) -> Result<Option<OwnerChange>, BadRecord> {
        match change {
            Change::Put(kv) => self.put(keys, shards, kv),
            Change::Deleted(key, revision) => match keys.parse(key, shards) {
                Ok(Subject::Server(name)) => {
                    self.servers.remove(name.as_str());
                    Ok(None)
                }
                Ok(Subject::Owner(shard)) => {
                    // The owner may be known from the answer of its claim already.
                    if self.owners.get(&shard).is_some_and(|owner| owner.epoch.0 < *revision) {
                        self.owners.remove(&shard);
                    }
                    Ok(Some(OwnerChange::Free(shard, *revision)))
                }
                Ok(Subject::Rules(_)) | Err(_) => Ok(None),
            },
        }
    }

    pub(super) fn put(
        &mut self,
        keys: &Keys,
        shards: ShardCount,
        kv: &KeyValue,
    ) -> Result<Option<OwnerChange>, BadRecord> {
        match keys.parse(&kv.key, shards)? {
            Subject::Server(name) => {
                self.servers.insert(name.as_str().to_owned(), ServerInfo::decode(&kv.value)?);
            }
            Subject::Rules(shard) => {
                self.rules.insert(shard, RulesVersion::decode(&kv.value)?);
            }
            Subject::Owner(shard) => {
                let server = String::from_utf8_lossy(&kv.value).into_owned();
                let epoch = Epoch(kv.created);
                self.owned(shard, Owner { server, epoch });
                return Ok(Some(OwnerChange::Owned(shard, epoch, kv.lease)));
            }
        }
        Ok(None)
    }

    pub(super) fn owned(&mut self, shard: ShardId, owner: Owner) {
        if self.owners.get(&shard).is_none_or(|known| known.epoch < owner.epoch) {
            self.owners.insert(shard, owner);
        }
    }
}
