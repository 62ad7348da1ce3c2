//! Mistakes that the tests plant in a committer, to see that they are noticed; without them it does what is right.

use super::driver::Driver;
use super::txn::ShardWrite;
#[cfg(test)]
use super::{Fault, Outcome};
#[cfg(test)]
use crate::store::Compare;
use crate::store::{Store, Txn};

impl<S: Store> Driver<S> {
    /// Whether an unknown outcome was guessed, whatever the read that resolves it has found.
    #[cfg(test)]
    pub(super) fn guesses(&mut self, parts: &[ShardWrite]) -> bool {
        match self.config.fault {
            Some(Fault::UnknownIsCommitted) => {
                for part in parts {
                    self.succeeded(part);
                }
                true
            }
            Some(Fault::UnknownIsRefused) => {
                for part in parts {
                    if self.returned(part).is_some() {
                        let guessed = Outcome::Refused("nobody knows".to_owned());
                        self.give_back(part.shard, part.log_index(), guessed);
                    }
                }
                true
            }
            _ => false,
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test plants a mistake here")]
    pub(super) fn guesses(&self, _: &[ShardWrite]) -> bool {
        false
    }

    #[cfg(test)]
    pub(super) fn with_fault(&self, mut txn: Txn) -> Txn {
        let places = self.keys.log_index(crate::shard::ShardCount::default().shard(0).expect("a shard"));
        let places = &places[..places.len() - 6];
        txn.compare.retain(|compare| match (self.config.fault, compare) {
            (Some(Fault::NoOwnerCompare), Compare::Created(_, revision)) => revision.0 == 0,
            (Some(Fault::NoPlaceCompare), Compare::Created(key, _) | Compare::Value(key, _)) => {
                !key.starts_with(places)
            }
            _ => true,
        });
        txn
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test plants a mistake here")]
    pub(super) fn with_fault(&self, txn: Txn) -> Txn {
        txn
    }

    #[cfg(test)]
    pub(super) fn fences(&self) -> bool {
        self.config.fault != Some(Fault::NoFence)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test plants a mistake here")]
    pub(super) fn fences(&self) -> bool {
        true
    }
}
