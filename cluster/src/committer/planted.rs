//! Mistakes that the tests plant in a committer, to see that they are noticed; without them it does what is right.

use super::driver::Driver;
#[cfg(not(test))]
use super::jobs;
use super::parts::Part;
#[cfg(test)]
use super::{Fault, Outcome};
#[cfg(test)]
use crate::store::Compare;
use crate::store::{Store, Txn};

impl<S: Store> Driver<S> {
    #[cfg(test)]
    pub(super) fn unknown(&mut self, parts: Vec<Part>, why: &str) {
        if self.config.fault == Some(Fault::UnknownIsCommitted) {
            for part in &parts {
                self.succeeded(part);
            }
        } else {
            for part in parts {
                if self.returned(&part).is_some() {
                    self.give_back(part.shard, part.place(), Outcome::Refused(why.to_owned()));
                }
            }
        }
    }

    #[cfg(not(test))]
    pub(super) fn unknown(&mut self, parts: Vec<Part>, _why: &str) {
        // Unknown outcomes are settled by the job itself; sending the same again would be safe, too.
        drop(self.jobs.spawn(jobs::again(parts, self.config.retry)));
    }

    #[cfg(test)]
    pub(super) fn planted(&self, mut txn: Txn) -> Txn {
        let places = self.keys.place(crate::shard::ShardCount::default().shard(0).expect("a shard"));
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
    pub(super) fn planted(&self, txn: Txn) -> Txn {
        txn
    }

    #[cfg(test)]
    pub(super) fn settles(&self) -> bool {
        !matches!(self.config.fault, Some(Fault::UnknownIsCommitted | Fault::UnknownIsRefused))
    }

    #[cfg(test)]
    pub(super) fn fences(&self) -> bool {
        self.config.fault != Some(Fault::NoFence)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test plants a mistake here")]
    pub(super) fn settles(&self) -> bool {
        true
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "a test plants a mistake here")]
    pub(super) fn fences(&self) -> bool {
        true
    }
}
