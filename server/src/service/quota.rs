//! How many of something each principal has open, so that one cannot use up what is another's (SPEC B1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::Principal;

/// Counts by principal, up to a limit. Only principals that have something open take memory.
#[derive(Clone, Debug)]
pub(super) struct Quota {
    open: Arc<Mutex<HashMap<Principal, u32>>>,
    limit: u32,
}

/// One of a principal's places; free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    quota: Quota,
    principal: Principal,
}

impl Quota {
    pub(super) fn new(limit: u32) -> Self {
        Self { open: Arc::default(), limit }
    }

    /// A place for this principal; the limit if it has as many as it may.
    pub(super) fn take(&self, principal: &Principal) -> Result<Place, u32> {
        let mut open = self.open();
        let count = open.entry(principal.clone()).or_default();
        if *count >= self.limit {
            return Err(self.limit);
        }
        *count += 1;
        Ok(Place { quota: self.clone(), principal: principal.clone() })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Principal, u32>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.quota.open();
        if let Some(count) = open.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.principal);
            }
        }
    }
}
