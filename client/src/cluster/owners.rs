//! Which server owns which instance, as far as this client knows. Pure.
//!
//! A server owns shards, and with one hint the owner of all instances of a shard is known. How many shards
//! there are GetCluster tells; until then owners are known for single instances.
//!
//! Servers name owners with their epochs, and some of them are behind. An owner of an older epoch than a
//! known one is ignored, so a client never goes back, and two servers that name each other cannot send it to
//! and fro.

use std::collections::{HashMap, VecDeque};
use std::mem;
use std::num::NonZeroU32;

use stickycas_proto::names::InstanceId;

use crate::address::Address;

/// For how many instances or shards owners are remembered. Whose owner is forgotten costs one more redirect.
const MOST: usize = 65_536;
/// The bits of an instance's id that its shard is made of: the last ones.
const SHARD_BITS: u32 = 48;

/// The knowledge of the owner of one instance or shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The owner of the newest epoch that a server has named.
    owner: Option<Address>,
    /// That epoch; 0: none was named.
    epoch: u64,
    /// The server to ask first: the owner, or a server that has answered since.
    ask: Option<Address>,
}

impl Known {
    /// Takes in the owner that a server has named. `is_down`: whether that one could not be reached and has
    /// not answered since.
    pub(super) fn learn(&mut self, owner: &Address, epoch: u64, is_down: bool) -> Hint {
        let is_known = self.owner.as_ref().is_none_or(|known| known == owner);
        if epoch < self.epoch || (epoch == self.epoch && !is_known) {
            return Hint::Old;
        }
        // Without a known owner, the epoch may be from before the owner was down.
        let is_news = self.owner.is_some() && epoch > self.epoch;
        (self.owner, self.epoch) = (Some(owner.clone()), epoch);
        if is_down && !is_news {
            return Hint::Down;
        }
        self.ask = Some(owner.clone());
        Hint::Follow
    }

    /// From now on this server is asked first: it has answered as the owner does.
    pub(super) fn prefer(&mut self, server: &Address) {
        if self.ask.as_ref() != Some(server) {
            self.ask = Some(server.clone());
        }
    }

    /// From now on this server is not asked first: it is not the owner, or does not answer. The epoch stays
    /// known.
    pub(super) fn avoid(&mut self, server: &Address) {
        self.ask.take_if(|ask| ask == server);
    }
}

/// The use of an owner that a server has named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hint {
    /// It is the newest: the owner is asked at once.
    Follow,
    /// It is older than what is known, or contradicts it. Nothing has changed.
    Old,
    /// It names an owner that could not be reached, and no newer epoch than before: that server may be dead,
    /// and its lease not have ended yet.
    Down,
}

/// An instance or a shard, which has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owned {
    Instance(InstanceId),
    Shard(u32),
}

/// The knowledge of the owners of many instances.
#[derive(Debug, Default)]
pub(super) struct Owners {
    /// The number of shards of the cluster; `None`: it is not known.
    shards: Option<NonZeroU32>,
    known: HashMap<Owned, Known>,
    /// The same, the oldest first.
    order: VecDeque<Owned>,
}

impl Owners {
    /// Whether the number of shards is known.
    pub(super) fn has_shards(&self) -> bool {
        self.shards.is_some()
    }

    /// The cluster has so many shards. If that is news, the knowledge of single instances becomes that of
    /// their shards, and the knowledge of shards by another number is forgotten.
    pub(super) fn set_shards(&mut self, shards: u32) {
        let shards = NonZeroU32::new(shards);
        if shards.is_none() || self.shards == shards {
            return;
        }
        let before = mem::replace(self, Self { shards, ..Self::default() });
        for owned in before.order {
            let (Owned::Instance(instance), Some(known)) = (owned, before.known.get(&owned)) else {
                continue;
            };
            let of_shard = self.known(instance);
            if known.epoch >= of_shard.epoch {
                *of_shard = known.clone();
            }
        }
    }

    /// The server to ask first for this instance.
    pub(super) fn ask(&self, instance: InstanceId) -> Option<&Address> {
        self.known.get(&self.owned(instance))?.ask.as_ref()
    }

    /// The knowledge of this instance or of its shard, to be changed.
    pub(super) fn known(&mut self, instance: InstanceId) -> &mut Known {
        let owned = self.owned(instance);
        if !self.known.contains_key(&owned) {
            if self.order.len() == MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(owned);
        }
        self.known.entry(owned).or_default()
    }

    fn owned(&self, instance: InstanceId) -> Owned {
        let Some(shards) = self.shards else { return Owned::Instance(instance) };
        Owned::Shard(shard_of(instance, shards))
    }
}

/// The shard of an instance where there are so many.
pub(crate) fn shard_of(instance: InstanceId, shards: NonZeroU32) -> u32 {
    let bits = instance.get() & ((1 << SHARD_BITS) - 1);
    u32::try_from(bits % u128::from(shards.get())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u16) -> Address {
        Address::parse(&format!("server:{number}")).unwrap()
    }

    #[test]
    fn an_older_epoch_changes_nothing() {
        let mut known = Known::default();
        assert_eq!(known.learn(&server(2), 5, false), Hint::Follow);
        let before = known.clone();
        assert_eq!(known.learn(&server(3), 4, false), Hint::Old, "older");
        assert_eq!(known.learn(&server(3), 5, false), Hint::Old, "an epoch has one owner");
        assert_eq!(known, before);
        assert_eq!(known.learn(&server(2), 5, false), Hint::Follow, "the same again");
        assert_eq!(known.learn(&server(3), 6, false), Hint::Follow);
        assert_eq!(known.ask, Some(server(3)));
    }

    #[test]
    fn a_server_that_fails_is_not_asked_first_and_its_epoch_stays_known() {
        let mut known = Known::default();
        known.learn(&server(2), 5, false);
        known.avoid(&server(1));
        assert_eq!(known.ask, Some(server(2)), "another server failed");
        known.avoid(&server(2));
        assert_eq!(known.ask, None);
        assert_eq!(known.learn(&server(1), 4, false), Hint::Old);
        known.prefer(&server(3));
        assert_eq!(known.ask, Some(server(3)));
        assert_eq!(known.learn(&server(1), 4, false), Hint::Old);
    }

    #[test]
    fn an_owner_that_is_down_is_followed_for_a_newer_epoch_alone() {
        let mut known = Known::default();
        assert_eq!(known.learn(&server(2), 5, true), Hint::Down, "the epoch may be that in which it died");
        let before = known.clone();
        assert_eq!(known.learn(&server(2), 5, true), Hint::Down);
        assert_eq!(known.learn(&server(2), 4, true), Hint::Old);
        assert_eq!((&known, &known.ask), (&before, &None));
        assert_eq!(known.learn(&server(2), 6, true), Hint::Follow, "it was started again");
        assert_eq!(known.learn(&server(2), 6, false), Hint::Follow, "it has answered");
    }

    #[test]
    fn one_hint_is_for_all_instances_of_the_shard_once_their_number_is_known() {
        // The first two are of one shard of 64, whatever stands before the last 48 bits.
        let [one, same, other] = [7, (1 << 48) + 64 + 7, 8].map(InstanceId::new);
        let mut owners = Owners::default();
        owners.known(one).learn(&server(1), 5, false);
        owners.known(same).learn(&server(3), 4, false);
        assert_eq!((owners.ask(one), owners.ask(same)), (Some(&server(1)), Some(&server(3))));
        assert!(!owners.has_shards());
        owners.set_shards(64);
        assert_eq!(
            owners.ask(same),
            Some(&server(1)),
            "what is known of the newest epoch is known of the whole shard"
        );
        assert_eq!(owners.known(one).learn(&server(4), 4, false), Hint::Old, "older");
        owners.known(one).learn(&server(2), 6, false);
        assert_eq!((owners.ask(same), owners.ask(other)), (Some(&server(2)), None));
        assert_eq!(owners.known(same).learn(&server(1), 5, false), Hint::Old, "older");
        owners.set_shards(64);
        owners.set_shards(0);
        assert_eq!(owners.ask(same), Some(&server(2)), "nothing new");
        owners.set_shards(32);
        assert_eq!(owners.ask(same), None, "another cluster");
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut owners = Owners::default();
        let most = u128::try_from(MOST).unwrap();
        for id in 0..=most {
            owners.known(InstanceId::new(id)).learn(&server(1), 1, false);
            owners.known(InstanceId::new(id)).learn(&server(1), 1, false);
        }
        assert_eq!(owners.ask(InstanceId::new(0)), None);
        assert_eq!(owners.ask(InstanceId::new(1)), Some(&server(1)));
        assert_eq!((owners.known.len(), owners.order.len()), (MOST, MOST));
    }
}
