//! What a principal is to the server: its reserves, as the account remembers them.
//!
//! Every call asks for that, so it is looked up again only when somebody has become known, or is not any more, and then at
//! most once in [`LOOK_AGAIN`]; at once if there is no room for the principal otherwise. A former member of a roster so
//! loses its reserve in that time.

use std::time::Duration;

use super::known::KnownPrincipals;
use super::share::{ROLES, Reserve};

/// After how long reserves that may have changed are looked up again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// Empty: it is not known.
    reserves: Vec<Reserve>,
    /// See [`KnownPrincipals::generation`].
    generation: u64,
    /// When that was, in nanoseconds since the server started.
    looked_up: u64,
}

impl Standing {
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
    pub(super) fn look_again(&mut self, name: &str, known: &KnownPrincipals, now: impl Fn() -> u64) {
        // The clock is read only if there is a reason to.
        if self.generation != known.generation()
            && u128::from(now().saturating_sub(self.looked_up)) >= LOOK_AGAIN.as_nanos()
        {
            *self = Self::of(name, known, now());
        }
    }

    /// Looks it up if it may have changed; whether it may.
    pub(super) fn look_up(&mut self, name: &str, known: &KnownPrincipals, now: impl Fn() -> u64) -> bool {
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
        let mut standing = Standing::of("p", &known, 0);
        assert!(!standing.is_known());
        known.add_roster("boss", ["p"].into_iter());
        standing.look_again("p", &known, || SECOND - 1);
        assert!(!standing.is_known());
        assert!(standing.look_up("p", &known, || SECOND - 1), "it may have changed");
        assert!(standing.is_known() && !standing.has_role());
        assert!(!standing.look_up("p", &known, || SECOND - 1), "nothing has changed since");

        known.remove_roster("boss", ["p"].into_iter());
        standing.look_again("p", &known, || 2 * SECOND - 2);
        assert!(standing.is_known());
        standing.look_again("p", &known, || 2 * SECOND - 1);
        assert!(!standing.is_known());
    }

    #[test]
    fn the_clock_is_read_only_when_something_has_changed() {
        let known = KnownPrincipals::default();
        known.set_roles(["p"], []);
        let mut standing = Standing::of("p", &known, 0);
        standing.look_again("p", &known, || panic!("nothing has changed"));
        assert!(standing.has_role());
    }
}
