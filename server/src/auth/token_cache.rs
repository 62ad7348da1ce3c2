//! Tokens that were verified, by their SHA-256, so that a token that comes with every call is verified once.
//!
//! It is bounded: new tokens fill one half, and when that is full the half that was filled before is
//! forgotten. Only tokens that are valid come in, so strangers cannot displace anybody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::principal::Principal;
use super::roles::Rights;

/// The claims that a verified token proves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct VerifiedToken {
    pub(crate) principal: Principal,
    /// The rights to which those of the principal are narrowed.
    pub(crate) scope: Rights,
    /// The moment from which on it proves nothing any more; in seconds since 1970.
    pub(crate) expires: u64,
    pub(crate) key_id: String,
    pub(super) key_fingerprint: [u8; 32],
}

#[cfg(test)]
impl VerifiedToken {
    pub(super) fn of_test(principal: &str) -> Self {
        Self {
            principal: Principal::new(principal),
            scope: Rights::ALL,
            expires: u64::MAX,
            key_id: String::new(),
            key_fingerprint: [0; 32],
        }
    }
}

/// SHA-256 of a token.
pub(super) type TokenHash = [u8; 32];

/// See the module.
#[derive(Debug)]
pub(super) struct TokenCache {
    halves: Mutex<Halves>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Halves {
    new: HashMap<TokenHash, Arc<VerifiedToken>>,
    old: HashMap<TokenHash, Arc<VerifiedToken>>,
}

impl TokenCache {
    /// Of at most `limit` tokens.
    pub(super) fn new(limit: usize) -> Self {
        Self { halves: Mutex::default(), limit }
    }

    pub(super) fn get(&self, hash: &TokenHash) -> Option<Arc<VerifiedToken>> {
        let mut halves = self.halves();
        if let Some(found) = halves.new.get(hash) {
            return Some(found.clone());
        }
        // A token that is used stays.
        let found = halves.old.remove(hash)?;
        halves.insert(*hash, found.clone(), self.limit);
        Some(found)
    }

    pub(super) fn insert(&self, hash: TokenHash, token: Arc<VerifiedToken>) {
        self.halves().insert(hash, token, self.limit);
    }

    /// The number of tokens in it.
    pub(super) fn len(&self) -> usize {
        let halves = self.halves();
        halves.new.len() + halves.old.len()
    }

    fn halves(&self) -> MutexGuard<'_, Halves> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Halves {
    fn insert(&mut self, hash: TokenHash, token: Arc<VerifiedToken>, limit: usize) {
        if self.new.len() >= (limit / 2).max(1) {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(hash, token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_are_used_stay_and_others_make_room() {
        let cache = TokenCache::new(8);
        let token = Arc::new(VerifiedToken::of_test("ann"));
        let hash = |number: u8| [number; 32];
        for number in 0..=250 {
            cache.insert(hash(number), token.clone());
            assert!(cache.len() <= 8);
            assert!(cache.get(&hash(0)).is_some(), "used after {number} others");
        }
        assert!(cache.get(&hash(250)).is_some() && cache.get(&hash(1)).is_none());
    }
}
