//! The rights of principals (SPEC section 10): as processes of instances, which rosters grant, and with a
//! role, which only the server's configuration grants.

use std::collections::BTreeSet;

use stickycas_proto::principal::{PRINCIPAL_GRAMMAR, is_principal_name};

use super::principal::Principal;
use crate::config::Config;

/// The rights of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    /// May act as a process of the instances whose rosters name it.
    pub(crate) process: bool,
    /// May create instances (F11).
    pub(crate) coordinator: bool,
    /// May look at every instance (F13).
    pub(crate) observer: bool,
    /// May see the counts of every principal.
    pub(crate) admin: bool,
}

/// The principals with a role of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roles {
    coordinators: BTreeSet<Principal>,
    observers: BTreeSet<Principal>,
    admins: BTreeSet<Principal>,
}

impl Rights {
    /// All that there is.
    pub(crate) const ALL: Self = Self { process: true, coordinator: true, observer: true, admin: true };

    /// Those that the scope of a token names, separated by spaces. Other words grant nothing.
    pub(crate) fn of_scope(scope: &str) -> Self {
        let has = |name| scope.split(' ').any(|word| word == name);
        Self {
            process: has("process"),
            coordinator: has("coordinator"),
            observer: has("observer"),
            admin: has("admin"),
        }
    }

    /// Those that are in both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            process: self.process && other.process,
            coordinator: self.coordinator && other.coordinator,
            observer: self.observer && other.observer,
            admin: self.admin && other.admin,
        }
    }
}

impl Roles {
    /// Those that the settings grant.
    pub(crate) fn of_settings(config: &Config) -> Self {
        let principals = |names: &BTreeSet<String>| names.iter().map(|name| Principal::new(name)).collect();
        Self {
            coordinators: principals(&config.coordinators),
            observers: principals(&config.observers),
            admins: principals(&config.admins),
        }
    }

    /// These and those that a file grants: lists `coordinators`, `observers` and `admins` of names, in TOML.
    ///
    /// # Errors
    /// The mistake, with its line.
    pub(crate) fn with_file(&self, text: &str) -> Result<Self, String> {
        let line_of = |offset: usize| 1 + text[..offset.min(text.len())].matches('\n').count();
        let table = toml::de::DeTable::parse(text).map_err(|error| {
            let line = line_of(error.span().map_or(0, |span| span.start));
            format!("line {line}: {}", error.message())
        })?;
        let mut roles = self.clone();
        for (key, value) in table.get_ref() {
            let line = line_of(key.span().start);
            let principals = match key.get_ref().as_ref() {
                "coordinators" => &mut roles.coordinators,
                "observers" => &mut roles.observers,
                "admins" => &mut roles.admins,
                other => {
                    return Err(format!(
                        "line {line}: there is no key `{other}`: give coordinators, observers or admins"
                    ));
                }
            };
            let names = value.get_ref().as_array();
            let names = names.ok_or_else(|| format!("line {line}: {} is no list of names", key.get_ref()))?;
            for name in names {
                let line = line_of(name.span().start);
                let text = name.get_ref().as_str().filter(|name| is_principal_name(name.as_bytes()));
                let text = text.ok_or_else(|| {
                    let given =
                        name.get_ref().as_str().map_or_else(String::new, |given| format!("{given:?}: "));
                    format!("line {line}: {given}give names of {PRINCIPAL_GRAMMAR}")
                })?;
                principals.insert(Principal::new(text));
            }
        }
        Ok(roles)
    }

    /// The names of those that may create instances.
    pub(crate) fn coordinators(&self) -> impl Iterator<Item = &str> {
        self.coordinators.iter().map(Principal::as_str)
    }

    /// The names of those that may look.
    pub(crate) fn observers(&self) -> impl Iterator<Item = &str> {
        self.observers.iter().chain(&self.admins).map(Principal::as_str)
    }

    /// The rights of this principal.
    pub(crate) fn rights(&self, principal: &Principal) -> Rights {
        Rights {
            process: true,
            coordinator: self.coordinators.contains(principal),
            observer: self.observers.contains(principal),
            admin: self.admins.contains(principal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_settings() -> Roles {
        let config = Config { observers: BTreeSet::from(["eve".to_owned()]), ..Config::insecure([]) };
        Roles::of_settings(&config)
    }

    #[test]
    fn roles_of_a_file_are_added_to_those_of_the_settings() {
        let roles = of_settings().with_file("coordinators = ['ann', 'bob']\nadmins = [\n'ann']\n").unwrap();
        let rights = |name| roles.rights(&Principal::new(name));
        let process = Rights::of_scope("process");
        assert_eq!(rights("ann"), Rights { observer: false, ..Rights::ALL });
        assert_eq!(rights("bob"), Rights { coordinator: true, ..process });
        assert_eq!(rights("eve"), Rights { observer: true, ..process });
        assert_eq!(rights("Ann"), process);
        assert_eq!(of_settings().with_file(""), Ok(of_settings()));
    }

    #[test]
    fn a_mistake_in_the_file_is_told_with_its_line() {
        let wrong = |text| of_settings().with_file(text).unwrap_err();
        assert_eq!(
            wrong("# roles\nadmin = ['ann']"),
            "line 2: there is no key `admin`: give coordinators, observers or admins"
        );
        assert_eq!(wrong("admins = 'ann'"), "line 1: admins is no list of names");
        assert_eq!(
            wrong("admins = [\n  'ann',\n  'a b',\n]"),
            format!("line 3: \"a b\": give names of {PRINCIPAL_GRAMMAR}")
        );
        assert_eq!(wrong("admins = [7]"), format!("line 1: give names of {PRINCIPAL_GRAMMAR}"));
        assert!(wrong("admins = ['ann']\nadmins = []").starts_with("line 2: "), "a key that stands twice");
        assert!(wrong("admins = [").starts_with("line 1: "), "no TOML");
    }

    #[test]
    fn a_scope_narrows_and_never_widens() {
        let all = Rights::ALL;
        assert_eq!(Rights::of_scope("process coordinator observer admin"), all);
        let rights = Rights { coordinator: false, ..all };
        let narrowed = rights.and(Rights::of_scope("coordinator admin root"));
        assert_eq!(narrowed, Rights { process: false, coordinator: false, observer: false, admin: true });
        for nothing in ["", "Admin", "admin,process"] {
            assert_eq!(all.and(Rights::of_scope(nothing)), Rights::of_scope(""), "{nothing:?}");
        }
    }
}
