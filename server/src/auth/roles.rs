//! What principals may do beyond being a process of an instance.

use std::collections::BTreeSet;

use super::principal::Principal;
use crate::config::Config;

/// The principals with a role of their own.
#[derive(Debug)]
pub(crate) struct Roles {
    coordinators: BTreeSet<String>,
    observers: BTreeSet<String>,
}

impl Roles {
    pub(crate) fn new(config: &Config) -> Self {
        Self { coordinators: config.coordinators.clone(), observers: config.observers.clone() }
    }

    /// Whether the principal may create instances (F11).
    pub(crate) fn is_coordinator(&self, principal: &Principal) -> bool {
        self.coordinators.contains(principal.as_str())
    }

    /// Whether the principal may look at every instance (F13).
    pub(crate) fn is_observer(&self, principal: &Principal) -> bool {
        self.observers.contains(principal.as_str())
    }
}
