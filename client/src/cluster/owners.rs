//! Which server owns which instance, as far as this client was told. Pure.
//!
//! Servers tell owners with their epochs, and some of them are behind. An owner of an older epoch than a known one is
//! ignored, so a client never goes back, and two servers that name each other cannot send it to and fro.

use std::collections::{HashMap, VecDeque};

use stickycas_proto::names::InstanceId;

use super::address::Address;

/// For how many instances owners are remembered. Whose owner is forgotten costs one more redirect.
const MOST: usize = 65_536;

/// What is known of the owner of one instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The owner of the newest epoch that was told.
    owner: Option<Address>,
    /// That epoch; 0: none was told.
    epoch: u64,
    /// The server to ask first: the owner, or a server that has answered since.
    ask: Option<Address>,
}

impl Known {
    /// A server has named the owner. False, and nothing changes, if that is older than what is known, or contradicts it.
    pub(super) fn told(&mut self, owner: &Address, epoch: u64) -> bool {
        let is_known = || self.owner.as_ref().is_none_or(|known| known == owner);
        if epoch < self.epoch || (epoch == self.epoch && !is_known()) {
            return false;
        }
        *self = Self { owner: Some(owner.clone()), epoch, ask: Some(owner.clone()) };
        true
    }

    /// This server has answered as the owner does.
    pub(super) fn answered(&mut self, server: &Address) {
        if self.ask.as_ref() != Some(server) {
            self.ask = Some(server.clone());
        }
    }

    /// This server is not the owner, or does not answer. The epoch stays known.
    pub(super) fn failed(&mut self, server: &Address) {
        self.ask.take_if(|ask| ask == server);
    }
}

/// What is known of many instances.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: HashMap<InstanceId, Known>,
    /// The same instances, the oldest first.
    order: VecDeque<InstanceId>,
}

impl Owners {
    /// The server to ask first for this instance.
    pub(super) fn ask(&self, instance: InstanceId) -> Option<&Address> {
        self.known.get(&instance)?.ask.as_ref()
    }

    /// What is known of this instance, in order to change it.
    pub(super) fn known(&mut self, instance: InstanceId) -> &mut Known {
        if !self.known.contains_key(&instance) {
            if self.order.len() == MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(instance);
        }
        self.known.entry(instance).or_default()
    }
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
        assert!(known.told(&server(2), 5));
        let before = known.clone();
        assert!(!known.told(&server(3), 4), "older");
        assert!(!known.told(&server(3), 5), "an epoch has one owner");
        assert_eq!(known, before);
        assert!(known.told(&server(2), 5), "the same again");
        assert!(known.told(&server(3), 6));
        assert_eq!(known.ask, Some(server(3)));
    }

    #[test]
    fn a_server_that_fails_is_not_asked_first_and_its_epoch_stays_known() {
        let mut known = Known::default();
        known.told(&server(2), 5);
        known.failed(&server(1));
        assert_eq!(known.ask, Some(server(2)), "another server failed");
        known.failed(&server(2));
        assert_eq!(known.ask, None);
        assert!(!known.told(&server(1), 4));
        known.answered(&server(3));
        assert_eq!(known.ask, Some(server(3)));
        assert!(!known.told(&server(1), 4));
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut owners = Owners::default();
        let most = u128::try_from(MOST).unwrap();
        for id in 0..=most {
            owners.known(InstanceId::new(id)).told(&server(1), 1);
            owners.known(InstanceId::new(id)).told(&server(1), 1);
        }
        assert_eq!(owners.ask(InstanceId::new(0)), None);
        assert_eq!(owners.ask(InstanceId::new(1)), Some(&server(1)));
        assert_eq!((owners.known.len(), owners.order.len()), (MOST, MOST));
    }
}
