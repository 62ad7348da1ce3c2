//! The principals that the server knows: those with a role, and the processes of the instances that it holds. Each has a
//! reserve of what all share, so that names that nobody has heard of cannot crowd them out (SPEC B1).
//!
//! A roster may have 65,536 names, and only its coordinator says which. So the processes of each coordinator's instances
//! have reserves in a part of their own: see [`super::share`].

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::share::{PARTS, ROLES, Reserve};

/// See the module. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPrincipals(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    names: Mutex<Names>,
    /// Another one whenever a reserve may have changed.
    generation: AtomicU64,
    coordinators: AtomicUsize,
}

#[derive(Debug, Default)]
struct Names {
    roles: HashSet<Box<str>>,
    /// By creator, the processes of its instances.
    creators: HashMap<Box<str>, Members>,
    /// The part of the creator that came last.
    last_part: usize,
}

/// The processes of one creator's instances.
#[derive(Debug)]
struct Members {
    /// Their part of a share.
    part: usize,
    /// In how many rosters each stands. Equal rosters count once.
    names: HashMap<Box<str>, u32>,
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
        self.change(|names| names.roles = roles);
    }

    /// The processes of a roster of this creator are known.
    pub(crate) fn add_roster<'a>(&self, creator: &str, roster: impl Iterator<Item = &'a str>) {
        let roster: Vec<&str> = roster.collect();
        for some in roster.chunks(AT_ONCE) {
            self.change(|names| {
                let members = names.members(creator);
                for name in some {
                    match members.names.get_mut(*name) {
                        Some(rosters) => *rosters += 1,
                        None => drop(members.names.insert((*name).into(), 1)),
                    }
                }
            });
        }
    }

    /// The roster is not held any more.
    pub(crate) fn remove_roster<'a>(&self, creator: &str, roster: impl Iterator<Item = &'a str>) {
        let roster: Vec<&str> = roster.collect();
        for some in roster.chunks(AT_ONCE) {
            self.change(|names| {
                let Some(members) = names.creators.get_mut(creator) else { return };
                for name in some {
                    if let Some(rosters) = members.names.get_mut(*name) {
                        *rosters -= 1;
                        if *rosters == 0 {
                            members.names.remove(*name);
                        }
                    }
                }
                if members.names.is_empty() {
                    names.creators.remove(creator);
                }
            });
        }
    }

    /// The reserves of a principal, the largest first, and the generation that they are of. Whoever is named by several
    /// coordinators may use the reserve of any of them; a role alone counts for those with one. None: it is not known.
    pub(crate) fn reserves(&self, name: &str) -> (Vec<Reserve>, u64) {
        let names = self.names();
        let generation = self.generation();
        let coordinators = self.coordinators().max(names.creators.len());
        if names.roles.contains(name) {
            let takers = names.roles.len();
            return (vec![Reserve { part: ROLES, coordinators, takers }], generation);
        }
        let naming = names.creators.values().filter(|members| members.names.contains_key(name));
        let mut reserves: Vec<Reserve> = naming
            .map(|members| Reserve { part: members.part, coordinators, takers: members.names.len() })
            .collect();
        reserves.sort_unstable_by_key(|reserve| reserve.takers);
        (reserves, generation)
    }

    /// A number that changes whenever a reserve may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// How many principals may create instances; at least 1.
    pub(crate) fn coordinators(&self) -> usize {
        self.0.coordinators.load(Relaxed).max(1)
    }

    fn change(&self, change: impl FnOnce(&mut Names)) {
        let mut names = self.names();
        change(&mut names);
        self.0.generation.fetch_add(1, Relaxed);
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.0.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Names {
    fn members(&mut self, creator: &str) -> &mut Members {
        if !self.creators.contains_key(creator) {
            // Not one that was free a moment ago: those who had a reserve in it may still use it.
            let next = |part: usize| if part + 1 < PARTS { part + 1 } else { ROLES + 1 };
            let taken: HashSet<usize> = self.creators.values().map(|members| members.part).collect();
            let mut part = next(self.last_part);
            for _ in 0..PARTS {
                if !taken.contains(&part) {
                    break;
                }
                part = next(part);
            }
            self.last_part = part;
            self.creators.insert(creator.into(), Members { part, names: HashMap::new() });
        }
        self.creators.get_mut(creator).expect("it was entered above if it was not there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are_known<const N: usize>(known: &KnownPrincipals, names: [&str; N]) -> [bool; N] {
        names.map(|name| !known.reserves(name).0.is_empty())
    }

    #[test]
    fn a_principal_is_known_while_a_roster_or_a_role_names_it() {
        let known = KnownPrincipals::default();
        known.set_roles(["boss"], []);
        known.add_roster("boss", ["a", "b"].into_iter());
        known.add_roster("boss", ["b", "c"].into_iter());
        assert_eq!(are_known(&known, ["boss", "a", "b", "c"]), [true; 4]);
        known.remove_roster("boss", ["a", "b"].into_iter());
        assert_eq!(are_known(&known, ["boss", "a", "b", "c"]), [true, false, true, true]);
        known.set_roles([], ["c"]);
        assert_eq!(are_known(&known, ["boss"]), [false]);
        known.remove_roster("boss", ["b", "c"].into_iter());
        assert_eq!(are_known(&known, ["b", "c"]), [false, true]);
    }

    #[test]
    fn reserves_are_divided_among_the_members_of_one_coordinator() {
        let known = KnownPrincipals::default();
        known.set_roles(["one", "two", "three"], ["watcher"]);
        let many: Vec<String> = (0..5_000).map(|number| format!("p{number}")).collect();
        known.add_roster("one", many.iter().map(String::as_str));
        known.add_roster("two", ["p1", "p2", "watcher"].into_iter());
        known.add_roster("two", ["p2"].into_iter());
        let reserves = |name| known.reserves(name).0;
        let of = |part, takers| Reserve { part, coordinators: 3, takers };
        assert_eq!(reserves("p0"), [of(1, 5_000)]);
        assert_eq!(reserves("p1"), [of(2, 3), of(1, 5_000)]);
        assert_eq!(reserves("watcher"), [of(ROLES, 4)]);
        let before = known.generation();
        known.remove_roster("one", many.iter().map(String::as_str));
        assert_ne!(known.generation(), before);
        assert_eq!(reserves("p1"), [of(2, 3)]);
        // Coordinators that have lost the role, and whose instances are still held, count too.
        known.set_roles(["one"], []);
        known.add_roster("one", ["p3"].into_iter());
        assert_eq!(reserves("p3"), [Reserve { part: 3, coordinators: 2, takers: 1 }]);
    }
}
