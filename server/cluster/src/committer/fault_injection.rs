//! Mistakes that the tests plant in a committer, to see that they are noticed.

use super::Outcome;
use super::driver::Driver;
use super::txn::ShardWrite;
use crate::store::{Compare, Store, Txn};

/// Mistakes that the tests must notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A transaction does not compare the owner's key.
    NoOwnerCompare,
    /// An unknown outcome counts as a success.
    UnknownIsCommitted,
    /// An unknown outcome counts as a failure: the place is given back.
    UnknownIsRefused,
    /// A place is given back while a request for it may be under way.
    NoFence,
    /// A transaction does not compare the end of the log.
    NoPlaceCompare,
}

impl<S: Store> Driver<S> {
    /// Whether an unknown outcome was guessed, whatever the read that resolves it has found.
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

    pub(super) fn fences(&self) -> bool {
        self.config.fault != Some(Fault::NoFence)
    }
}
