//! The principals that the server knows: those with a role, and the processes of the instances that it holds.
//! Each has a reserve of what all share, so that unknown names cannot crowd them out (SPEC B1).
//!
//! A roster may have 65,536 names, and only its coordinator says which. So the processes of each
//! coordinator's instances have reserves in a part of their own: see [`super::share`].

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
    /// The creators of instances, by name.
    creators: HashMap<Box<str>, Arc<Creator>>,
    /// By process, which of them name it. So a look-up does not depend on how many creators there are: with
    /// 131,072 processes of 1,000 creators it takes 0.3 us (measured).
    processes: HashMap<Box<str>, Namings>,
    /// The part of the creator that came last.
    last_part: usize,
}

/// One creator of instances.
#[derive(Debug)]
struct Creator {
    /// The part of a share that the processes of its instances have, and how many they are.
    part: usize,
    processes: AtomicUsize,
}

/// The creators that name one process.
#[derive(Debug)]
enum Namings {
    One(Naming),
    Several(Vec<Naming>),
}

/// That a creator names a process.
#[derive(Debug)]
struct Naming {
    creator: Arc<Creator>,
    /// In how many of its rosters the process stands. Equal rosters count once.
    rosters: u32,
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
                let creator = names.creator(creator);
                for name in some {
                    match names.processes.get_mut(*name) {
                        Some(namings) => namings.add(&creator),
                        None => {
                            let naming = Naming::new(&creator);
                            names.processes.insert((*name).into(), Namings::One(naming));
                        }
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
                let Some(held) = names.creators.get(creator).cloned() else { return };
                for name in some {
                    if names.processes.get_mut(*name).is_some_and(|namings| namings.remove(&held)) {
                        names.processes.remove(*name);
                    }
                }
                if held.processes.load(Relaxed) == 0 {
                    names.creators.remove(creator);
                }
            });
        }
    }

    /// The reserves of a principal, the largest first, and the generation that they are of. A principal that
    /// several coordinators name may use the reserve of any of them; a principal with a role has that of its
    /// role alone. Empty: it is not known.
    pub(crate) fn reserves(&self, name: &str) -> (Vec<Reserve>, u64) {
        let names = self.names();
        let generation = self.generation();
        let coordinators = self.coordinators().max(names.creators.len());
        if names.roles.contains(name) {
            let takers = names.roles.len();
            return (vec![Reserve { part: ROLES, coordinators, takers }], generation);
        }
        let namings = names.processes.get(name).map_or(&[][..], Namings::all);
        let reserve = |Naming { creator, .. }: &Naming| Reserve {
            part: creator.part,
            coordinators,
            takers: creator.processes.load(Relaxed),
        };
        let mut reserves: Vec<Reserve> = namings.iter().map(reserve).collect();
        reserves.sort_unstable_by_key(|reserve| reserve.takers);
        (reserves, generation)
    }

    /// A number that changes whenever a reserve may have changed.
    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Relaxed)
    }

    /// The number of principals that may create instances; at least 1.
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
    /// The creator of this name, which has a part from now on.
    fn creator(&mut self, name: &str) -> Arc<Creator> {
        if let Some(creator) = self.creators.get(name) {
            return creator.clone();
        }
        // Not one that was free a moment ago: those who had a reserve in it may still use it.
        let next = |part: usize| if part + 1 < PARTS { part + 1 } else { ROLES + 1 };
        let taken: HashSet<usize> = self.creators.values().map(|creator| creator.part).collect();
        let mut part = next(self.last_part);
        for _ in 0..PARTS {
            if !taken.contains(&part) {
                break;
            }
            part = next(part);
        }
        self.last_part = part;
        let creator = Arc::new(Creator { part, processes: AtomicUsize::new(0) });
        self.creators.insert(name.into(), creator.clone());
        creator
    }
}

impl Namings {
    fn all(&self) -> &[Naming] {
        match self {
            Self::One(naming) => std::slice::from_ref(naming),
            Self::Several(namings) => namings,
        }
    }

    fn of(&mut self, creator: &Arc<Creator>) -> Option<&mut Naming> {
        let namings = match self {
            Self::One(naming) => std::slice::from_mut(naming),
            Self::Several(namings) => namings,
        };
        namings.iter_mut().find(|naming| Arc::ptr_eq(&naming.creator, creator))
    }

    /// The process stands in one more roster of this creator.
    fn add(&mut self, creator: &Arc<Creator>) {
        if let Some(naming) = self.of(creator) {
            naming.rosters += 1;
            return;
        }
        let mut namings = match std::mem::replace(self, Self::Several(Vec::new())) {
            Self::One(naming) => vec![naming],
            Self::Several(namings) => namings,
        };
        namings.push(Naming::new(creator));
        *self = Self::Several(namings);
    }

    /// The process stands in one roster less of this creator. Whether nobody names it any more.
    fn remove(&mut self, creator: &Arc<Creator>) -> bool {
        let Some(naming) = self.of(creator) else { return false };
        naming.rosters -= 1;
        if naming.rosters > 0 {
            return false;
        }
        creator.processes.fetch_sub(1, Relaxed);
        match self {
            Self::One(_) => true,
            Self::Several(namings) => {
                namings.retain(|naming| naming.rosters > 0);
                namings.is_empty()
            }
        }
    }
}

impl Naming {
    /// The first roster of this creator in which a process stands.
    fn new(creator: &Arc<Creator>) -> Self {
        creator.processes.fetch_add(1, Relaxed);
        Self { creator: creator.clone(), rosters: 1 }
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
