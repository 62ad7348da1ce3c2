//! The principals that the server knows: those with a role, and the processes of the instances that it holds. Each has a
//! reserve of what all share, so that names that nobody has heard of cannot crowd them out (SPEC B1).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPrincipals(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    names: Mutex<Names>,
    count: AtomicUsize,
    coordinators: AtomicUsize,
}

#[derive(Debug, Default)]
struct Names {
    roles: HashSet<Box<str>>,
    /// In how many rosters each stands. Equal rosters of one creator count once.
    members: HashMap<Box<str>, u32>,
}

/// Names that are entered while the lock is held.
const AT_ONCE: usize = 1_024;

impl KnownPrincipals {
    /// The principals with a role, in place of those before.
    pub(crate) fn set_roles<'a>(
        &self,
        coordinators: impl IntoIterator<Item = &'a str>,
        others: impl IntoIterator<Item = &'a str>,
    ) {
        let mut roles: HashSet<Box<str>> = coordinators.into_iter().map(Into::into).collect();
        self.0.coordinators.store(roles.len(), Relaxed);
        roles.extend(others.into_iter().map(Into::into));
        let mut names = self.names();
        names.roles = roles;
        self.count(&names);
    }

    /// The processes of a roster are known.
    pub(crate) fn add_roster<'a>(&self, roster: impl Iterator<Item = &'a str>) {
        let roster: Vec<&str> = roster.collect();
        for some in roster.chunks(AT_ONCE) {
            let mut names = self.names();
            for name in some {
                match names.members.get_mut(*name) {
                    Some(rosters) => *rosters += 1,
                    None => drop(names.members.insert((*name).into(), 1)),
                }
            }
            self.count(&names);
        }
    }

    /// The roster is not held any more.
    pub(crate) fn remove_roster<'a>(&self, roster: impl Iterator<Item = &'a str>) {
        let roster: Vec<&str> = roster.collect();
        for some in roster.chunks(AT_ONCE) {
            let mut names = self.names();
            for name in some {
                if let Some(rosters) = names.members.get_mut(*name) {
                    *rosters -= 1;
                    if *rosters == 0 {
                        names.members.remove(*name);
                    }
                }
            }
            self.count(&names);
        }
    }

    /// Whether a principal is known.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let names = self.names();
        names.roles.contains(name) || names.members.contains_key(name)
    }

    /// How many principals may create instances; at least 1.
    pub(crate) fn coordinators(&self) -> usize {
        self.0.coordinators.load(Relaxed).max(1)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.count.load(Relaxed)
    }

    fn count(&self, names: &Names) {
        self.0.count.store(names.roles.len() + names.members.len(), Relaxed);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_known_while_a_roster_or_a_role_names_it() {
        let known = KnownPrincipals::default();
        known.set_roles(["boss"], []);
        known.add_roster(["a", "b"].into_iter());
        known.add_roster(["b", "c"].into_iter());
        assert_eq!(known.len(), 4);
        known.remove_roster(["a", "b"].into_iter());
        assert_eq!(["boss", "a", "b", "c"].map(|name| known.contains(name)), [true, false, true, true]);
        known.set_roles([], ["c"]);
        assert!(!known.contains("boss"));
        known.remove_roster(["b", "c"].into_iter());
        assert_eq!(["b", "c"].map(|name| known.contains(name)), [false, true]);
    }
}
