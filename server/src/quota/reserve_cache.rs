//! The reserves of a principal, as its account remembers them.
//!
//! Every call asks for them, so they are looked up again only when a principal has become known, or is not
//! any more, and then at most once in [`LOOK_AGAIN`]; at once if there is no room for the principal
//! otherwise. A former member of a roster so loses its reserve in that time.

use std::time::Duration;

use super::known::KnownPrincipals;
use super::share::{ROLES, Reserve};

/// The time after which reserves that may have changed are looked up again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct ReserveCache {
    /// Empty: it is not known.
    reserves: Vec<Reserve>,
    /// See [`KnownPrincipals::generation`].
    generation: u64,
    /// The moment of the look-up, in nanoseconds since the server started.
    looked_up: u64,
}

impl ReserveCache {
    /// That of a principal now.
    pub(super) fn of(name: &str, known: &KnownPrincipals, now: u64) -> Self {
        let (reserves, generation) = known.reserves(name);
        Self { reserves, generation, looked_up: now }
    }

    /// Its reserves, the largest first.
    pub(super) fn reserves(&self) -> &[Reserve] {
        &self.reserves
    }

    /// Whether it has a role, or is a process of an instance that the server holds.
    pub(super) fn is_known(&self) -> bool {
        !self.reserves.is_empty()
    }

    /// Whether it has a role.
    pub(super) fn has_role(&self) -> bool {
        self.reserves.iter().any(|reserve| reserve.part == ROLES)
    }

    /// Looks it up if it may have changed and was not looked up lately.
    pub(super) fn refresh_if_old(&mut self, name: &str, known: &KnownPrincipals, now: impl Fn() -> u64) {
        // The clock is read only if there is a reason to.
        if self.generation != known.generation()
            && u128::from(now().saturating_sub(self.looked_up)) >= LOOK_AGAIN.as_nanos()
        {
            *self = Self::of(name, known, now());
        }
    }

    /// Looks it up if it may have changed; whether it may.
    pub(super) fn refresh(&mut self, name: &str, known: &KnownPrincipals, now: impl Fn() -> u64) -> bool {
        let may_have_changed = self.generation != known.generation();
        if may_have_changed {
            *self = Self::of(name, known, now());
        }
        may_have_changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_former_member_loses_its_reserve_within_a_second() {
        let known = KnownPrincipals::default();
        let mut cache = ReserveCache::of("p", &known, 0);
        assert!(!cache.is_known());
        known.add_roster("boss", ["p"].into_iter());
        cache.refresh_if_old("p", &known, || SECOND - 1);
        assert!(!cache.is_known());
        assert!(cache.refresh("p", &known, || SECOND - 1), "it may have changed");
        assert!(cache.is_known() && !cache.has_role());
        assert!(!cache.refresh("p", &known, || SECOND - 1), "nothing has changed since");

        known.remove_roster("boss", ["p"].into_iter());
        cache.refresh_if_old("p", &known, || 2 * SECOND - 2);
        assert!(cache.is_known());
        cache.refresh_if_old("p", &known, || 2 * SECOND - 1);
        assert!(!cache.is_known());
    }

    #[test]
    fn the_clock_is_read_only_when_something_has_changed() {
        let known = KnownPrincipals::default();
        known.set_roles(["p"], []);
        let mut cache = ReserveCache::of("p", &known, 0);
        cache.refresh_if_old("p", &known, || panic!("nothing has changed"));
        assert!(cache.has_role());
    }
}
