//! The configuration of an instance, fixed at its creation, and the part of it that many instances share.
//!
//! Most coordinators create many instances with the same parameters and the same processes. These are kept
//! once for all of them ([`SharedConfig`], found by an [`Interner`]), and for each instance only what differs
//! ([`InstanceConfig`]).

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use stickycas_model::machine::State;
use stickycas_model::params::Params;
use stickycas_model::types::Seed;
use stickycas_proto::attach::EncodedParameters;
use stickycas_proto::convert::WireError;
use stickycas_proto::convert::params::params_from_wire;
use stickycas_proto::log::v1 as log;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use super::roster::Roster;
use crate::auth::Principal;
use crate::limits::Limits;
use crate::quota::KnownPrincipals;

/// The configuration of an instance, fixed at its creation.
#[derive(Clone, Debug)]
pub(crate) struct InstanceConfig {
    pub(crate) id: InstanceId,
    /// Instances are numbered in the order of their creation; the log knows them by their numbers.
    pub(crate) number: u64,
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
        number: u64,
        name: Option<InstanceName>,
        seed: Seed,
        shared: Arc<SharedConfig>,
    ) -> Self {
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let created = u64::try_from(created.as_nanos()).unwrap_or(u64::MAX);
        Self { id, number, name, shared, seed, created }
    }

    /// All of it as the log keeps it.
    pub(super) fn to_log(&self) -> log::Created {
        let SharedConfig { creator, roster, lifetimes, .. } = &*self.shared;
        log::Created {
            id: Bytes::copy_from_slice(&self.id.get().to_be_bytes()),
            name: self.name.as_ref().map_or(String::new(), ToString::to_string),
            creator: creator.as_str().to_owned(),
            parameters: Some((&self.params()).into()),
            roster: roster.to_vec(),
            retention_nanos: nanos(lifetimes.retention),
            idle_lifetime_nanos: nanos(lifetimes.idle),
            rejoin_nanos: nanos(lifetimes.rejoin),
            create_time_nanos: self.created,
        }
    }

    /// The configuration of the instance with this number, from the log. `last` is the shared part of the
    /// instance before, which is most often that of this one; `intern` finds the equal one of any other.
    ///
    /// # Errors
    /// If a field is missing or wrong.
    pub(super) fn from_log(
        number: u64,
        created: &log::Created,
        last: &mut Option<Arc<SharedConfig>>,
        intern: impl FnOnce(SharedConfig) -> Arc<SharedConfig>,
    ) -> Result<Self, WireError> {
        let bad = |field, why| WireError::Contradiction { field, why };
        let id = <[u8; 16]>::try_from(&*created.id).map_err(|_| bad("created.id", "has not 16 bytes"))?;
        let params = created.parameters.as_ref().ok_or(WireError::Missing("created.parameters"))?;
        let params = params_from_wire(params)?;
        if created.roster.len() != params.processes() as usize {
            return Err(bad("created.roster", "has not n principals"));
        }
        let lifetimes = Lifetimes {
            retention: Duration::from_nanos(created.retention_nanos),
            idle: Duration::from_nanos(created.idle_lifetime_nanos),
            rejoin: Duration::from_nanos(created.rejoin_nanos),
        };
        let shared = match last.take().filter(|last| last.is_of(created, &params, lifetimes)) {
            Some(last) => last,
            None => {
                let creator = Principal::new(&created.creator);
                intern(SharedConfig::new(creator, &params, &created.roster, lifetimes))
            }
        };
        *last = Some(shared.clone());
        Ok(Self {
            id: InstanceId::new(u128::from_be_bytes(id)),
            number,
            name: InstanceName::optional(&created.name)?,
            seed: params.spec().seed,
            shared,
            created: created.create_time_nanos,
        })
    }

    /// The moment at which the instance was created.
    pub(crate) fn created(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.created)
    }

    /// The parameters, with the seed.
    pub(crate) fn params(&self) -> Params {
        self.shared.params.with_seed(self.seed)
    }

    /// Checks that a Create which asks for `wanted` asks for this instance of the same name, which is in this
    /// state (F11). A seed that the server drew matches any.
    ///
    /// # Errors
    /// NAME_TAKEN if the two differ.
    pub(super) fn check_same(&self, state: State, wanted: &Self, seed_given: bool) -> Result<(), RpcRefusal> {
        if self.shared.is_asked_for(&wanted.shared) && (!seed_given || self.seed == wanted.seed) {
            return Ok(());
        }
        let name = self.name.as_ref().map_or("", InstanceName::as_str);
        let state = match state {
            State::Finished => "has finished",
            _ => "has not ended",
        };
        let why = format!(
            "{name} is the name of another instance, which {state}: take another name, or close that one \
             (stickycas-client close {name}, as its creator)"
        );
        Err(RpcRefusal::new(RefusalReason::NameTaken, why))
    }
}

/// The part of a configuration that several instances may share.
#[derive(Debug)]
pub(crate) struct SharedConfig {
    /// Digest of the fields below, so that a long roster is hashed once, and not under the lock of the
    /// registry. Compared first: it tells most unequal configurations apart.
    digest: u64,
    pub(crate) creator: Principal,
    /// Without the seed, which stands in [`InstanceConfig`].
    pub(crate) params: Params,
    pub(crate) roster: Roster,
    pub(crate) lifetimes: Lifetimes,
    /// The parameters as every welcome tells them.
    pub(super) encoded: EncodedParameters,
    /// The principals to which the roster was added, if it was.
    known: OnceLock<KnownPrincipals>,
}

impl PartialEq for SharedConfig {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest && self.lifetimes == other.lifetimes && self.is_asked_for(other)
    }
}

impl Eq for SharedConfig {}

impl Drop for SharedConfig {
    fn drop(&mut self) {
        if let Some(known) = self.known.get() {
            known.remove_roster(self.creator.as_str(), self.roster.names());
        }
    }
}

impl SharedConfig {
    /// Bytes of the log that an instance with this configuration may come to take.
    pub(super) fn log_case(&self, limits: &Limits) -> usize {
        limits.log_case(&self.params, self.roster.bytes())
    }

    /// The processes are known principals as long as an instance has this configuration.
    pub(super) fn make_known(&self, known: &KnownPrincipals) {
        if self.known.get().is_none() && self.known.set(known.clone()).is_ok() {
            known.add_roster(self.creator.as_str(), self.roster.names());
        }
    }

    /// Whether it is that of an instance which was created like this.
    fn is_of(&self, created: &log::Created, params: &Params, lifetimes: Lifetimes) -> bool {
        self.creator.as_str() == created.creator
            && self.params == params.with_seed(Seed::default())
            && self.roster.names().eq(&created.roster)
            && self.lifetimes == lifetimes
    }

    /// Whether a Create that asks for `wanted` asks for this. The lifetimes are no part of a request.
    fn is_asked_for(&self, wanted: &Self) -> bool {
        self.creator == wanted.creator && self.params == wanted.params && self.roster == wanted.roster
    }
}

/// The lifetimes of an instance, as its Create was told (F10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lifetimes {
    /// After its end.
    pub(crate) retention: Duration,
    /// Without a call.
    pub(crate) idle: Duration,
    /// The time for which patience stands still after a restart of the server (F3).
    pub(crate) rejoin: Duration,
}

impl Lifetimes {
    /// Those of instances that are created now.
    pub(super) fn of(limits: &Limits) -> Self {
        Self { retention: limits.retention, idle: limits.idle_lifetime, rejoin: limits.rejoin }
    }
}

/// The duration in nanoseconds, as the log has it.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Keys of the digests. Random, so that nobody can choose rosters with equal digests.
static DIGEST_KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl SharedConfig {
    pub(super) fn new(creator: Principal, params: &Params, roster: &[String], lifetimes: Lifetimes) -> Self {
        let params = params.with_seed(Seed::default());
        let encoded = EncodedParameters::new(&(&params).into());
        let roster = Roster::new(roster);
        let digest = DIGEST_KEYS.hash_one((&creator, &params, &roster, &lifetimes));
        Self { digest, creator, params, roster, lifetimes, encoded, known: OnceLock::new() }
    }
}

/// The shared configurations of all instances, by creator and digest, each with the number of instances that
/// have it.
///
/// Of several configurations with one digest only the first is in here. The others (different ones, should
/// there ever be any, or equal ones that were made at the same moment) are kept by their instances alone.
#[derive(Debug, Default)]
pub(super) struct Interner(HashMap<Principal, HashMap<u64, (Arc<SharedConfig>, usize)>>);

impl Interner {
    /// A configuration that is most likely equal to this one. The caller compares the two, outside the lock.
    pub(super) fn find_equal(&self, config: &SharedConfig) -> Option<Arc<SharedConfig>> {
        let (found, _) = self.0.get(&config.creator)?.get(&config.digest)?;
        Some(found.clone())
    }

    /// Configurations of this creator, at most so many.
    pub(super) fn of_creator(&self, creator: &Principal, limit: usize) -> Vec<Arc<SharedConfig>> {
        let of_creator = self.0.get(creator).into_iter().flat_map(HashMap::values);
        of_creator.take(limit).map(|(config, _)| config.clone()).collect()
    }

    /// An instance with this configuration was registered.
    pub(super) fn add(&mut self, config: &Arc<SharedConfig>) {
        let of_creator = self.0.entry(config.creator.clone()).or_default();
        let (first, count) = of_creator.entry(config.digest).or_insert_with(|| (config.clone(), 0));
        if Arc::ptr_eq(first, config) {
            *count += 1;
        }
    }

    /// An instance with this configuration was removed.
    pub(super) fn remove(&mut self, config: &Arc<SharedConfig>) {
        let Some(of_creator) = self.0.get_mut(&config.creator) else { return };
        if let Some((first, count)) = of_creator.get_mut(&config.digest)
            && Arc::ptr_eq(first, config)
        {
            *count -= 1;
            if *count == 0 {
                of_creator.remove(&config.digest);
            }
        }
        if of_creator.is_empty() {
            self.0.remove(&config.creator);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.values().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::params::ParamsSpec;

    use super::*;

    fn config(names: &[&str]) -> SharedConfig {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = Params::try_new(ParamsSpec::new(3, 1, 1)).unwrap();
        SharedConfig::new(
            Principal::new("creator"),
            &params.with_seed(Seed::new(7)),
            &names,
            Lifetimes::of(&Limits::default()),
        )
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
        let mut other = config(&["a", "c", "b"]);
        other.digest = first.digest;
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
