//! What is fixed when an instance is created, and the part of it that many instances share.
//!
//! Most coordinators create many instances with the same parameters and the same processes. These are kept once for all
//! of them ([`SharedConfig`], found by an [`Interner`]), and for each instance only what differs ([`InstanceConfig`]).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use stickycas_model::params::Params;
use stickycas_model::types::Seed;
use stickycas_proto::attach::EncodedParameters;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::roster::Roster;
use crate::auth::Principal;

/// What was fixed when an instance was created.
#[derive(Clone, Debug)]
pub(crate) struct InstanceConfig {
    pub(crate) id: InstanceId,
    pub(crate) name: Option<InstanceName>,
    pub(crate) shared: Arc<SharedConfig>,
    pub(crate) seed: Seed,
    /// In nanoseconds since 1970.
    created: u64,
}

impl InstanceConfig {
    /// The configuration of an instance that is created now.
    pub(super) fn new(
        id: InstanceId,
        name: Option<InstanceName>,
        seed: Seed,
        shared: Arc<SharedConfig>,
    ) -> Self {
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let created = u64::try_from(created.as_nanos()).unwrap_or(u64::MAX);
        Self { id, name, shared, seed, created }
    }

    /// When the instance was created.
    pub(crate) fn created(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.created)
    }

    /// The parameters, with the seed.
    pub(crate) fn params(&self) -> Params {
        self.shared.params.with_seed(self.seed)
    }

    /// Checks that a Create which asks for `wanted` asks for this living instance of the same name (F11). A seed that
    /// the server drew matches any.
    ///
    /// # Errors
    /// NAME_TAKEN if the two differ.
    pub(super) fn check_same(&self, wanted: &Self, seed_given: bool) -> Result<(), RpcRefusal> {
        if self.shared == wanted.shared && (!seed_given || self.seed == wanted.seed) {
            return Ok(());
        }
        let name = self.name.as_ref().map_or("", InstanceName::as_str);
        let why = format!("{name} is the name of a living instance that was created differently");
        Err(RpcRefusal::new(RefusalReason::NameTaken, why))
    }
}

/// What several instances may share.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SharedConfig {
    /// Digest of the fields below, so that a long roster is hashed once, and not under the lock of the registry.
    /// Compared first: it tells most unequal configurations apart.
    digest: u64,
    pub(crate) creator: Principal,
    /// Without the seed, which stands in [`InstanceConfig`].
    pub(crate) params: Params,
    pub(crate) roster: Roster,
    /// The parameters as every welcome tells them.
    pub(super) encoded: EncodedParameters,
}

/// Keys of the digests. Random, so that nobody can choose rosters with equal digests.
static DIGEST_KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl SharedConfig {
    pub(super) fn new(creator: Principal, params: &Params, roster: &[String]) -> Self {
        let params = params.with_seed(Seed::default());
        let encoded = EncodedParameters::new(&(&params).into());
        let roster = Roster::new(roster);
        let digest = DIGEST_KEYS.hash_one((&creator, &params, &roster));
        Self { digest, creator, params, roster, encoded }
    }
}

/// The shared configurations of all instances, by digest, each with the number of instances that have it.
///
/// Of several configurations with one digest only the first is in here. The others (different ones, should there ever
/// be any, or equal ones that were made at the same moment) are kept by their instances alone.
#[derive(Debug, Default)]
pub(super) struct Interner(HashMap<u64, (Arc<SharedConfig>, usize)>);

impl Interner {
    /// A configuration that is most likely equal to this one. The caller compares the two, outside the lock.
    pub(super) fn find_equal(&self, config: &SharedConfig) -> Option<Arc<SharedConfig>> {
        self.0.get(&config.digest).map(|(found, _)| found.clone())
    }

    /// An instance with this configuration was registered.
    pub(super) fn add(&mut self, config: &Arc<SharedConfig>) {
        let (first, count) = self.0.entry(config.digest).or_insert_with(|| (config.clone(), 0));
        if Arc::ptr_eq(first, config) {
            *count += 1;
        }
    }

    /// An instance with this configuration was removed.
    pub(super) fn remove(&mut self, config: &Arc<SharedConfig>) {
        if let Some((first, count)) = self.0.get_mut(&config.digest)
            && Arc::ptr_eq(first, config)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&config.digest);
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    fn config(names: &[&str]) -> SharedConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = Params::try_new(ParamsSpec::new(3, 1, 1)).unwrap();
        SharedConfig::new(Principal::new("creator"), &params.with_seed(Seed::new(7)), &names)
    }

    fn intern(interner: &Interner, config: SharedConfig) -> Arc<SharedConfig> {
        let found = interner.find_equal(&config).filter(|found| **found == config);
        found.unwrap_or_else(|| Arc::new(config))
    }

    #[test]
    fn equal_configurations_are_kept_once_and_while_used() {
        let mut interner = Interner::default();
        let first = intern(&interner, config(&["a", "b", "c"]));
        interner.add(&first);
        let second = intern(&interner, config(&["a", "b", "c"]));
        interner.add(&second);
        let other = intern(&interner, config(&["a", "c", "b"]));
        interner.add(&other);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        interner.remove(&first);
        interner.remove(&other);
        assert_eq!(interner.len(), 1);
        interner.remove(&second);
        assert_eq!(interner.len(), 0);
    }

    #[test]
    fn configurations_with_one_digest_are_kept_apart() {
        let mut interner = Interner::default();
        let first = Arc::new(config(&["a", "b", "c"]));
        interner.add(&first);
        let other = SharedConfig { digest: first.digest, ..config(&["a", "c", "b"]) };
        assert_eq!(interner.find_equal(&other).as_deref(), Some(&*first));
        assert_ne!(*first, other);
        let other = Arc::new(other);
        interner.add(&other);
        interner.remove(&other);
        let found = interner.find_equal(&other);
        assert_eq!(found.as_deref(), Some(&*first), "what was never interned removes nothing");
        interner.remove(&first);
        assert_eq!(interner.len(), 0);
    }
}
