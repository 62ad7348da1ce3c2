//! The moments at which the server lets go of the ended instances of a creator (SPEC F10). A refused Create
//! is told to wait for the next of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};

/// The moments, as timers keep them. An instance that is gone earlier leaves its moment.
#[derive(Debug, Default)]
pub(super) struct Expirations(Mutex<BinaryHeap<Reverse<u64>>>);

impl Expirations {
    /// An instance has ended, and the server lets go of it at the moment `due`.
    pub(super) fn add(&self, due: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse(due));
    }

    /// The next such moment after this one; `None`: no instance has ended.
    pub(super) fn next(&self, now: u64) -> Option<u64> {
        let mut moments = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(Reverse(due)) = moments.peek() {
            if *due > now {
                return Some(*due);
            }
            moments.pop();
        }
        None
    }

    /// An instance is held no more: moments that have passed are forgotten.
    pub(super) fn forget(&self, now: u64) {
        let _ = self.next(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_expiration_is_the_earliest_that_has_not_passed() {
        let expirations = Expirations::default();
        assert_eq!(expirations.next(0), None);
        [30, 10, 20].into_iter().for_each(|due| expirations.add(due));
        assert_eq!([0, 9, 10, 29].map(|now| expirations.next(now)), [Some(10), Some(10), Some(20), Some(30)]);
        expirations.forget(30);
        assert_eq!(expirations.next(0), None);
    }
}
