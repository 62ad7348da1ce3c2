//! What is fixed when an instance is created, and what of it many instances have in common.
//!
//! Whoever creates many instances mostly asks for the same: the same parameters and the same processes. So these are
//! kept once for all of them, and of each instance only what is its own.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use stickycas_model::params::Params;
use stickycas_model::types::{ProcessId, Seed};
use stickycas_proto::attach::EncodedParameters;
use stickycas_proto::names::{InstanceId, InstanceName};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::RefusalReason;

use crate::auth::Principal;

/// What was fixed when an instance was created.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) id: InstanceId,
    pub(crate) name: Option<InstanceName>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) seed: Seed,
    /// In nanoseconds since 1970.
    created: u64,
}

impl Definition {
    /// Of an instance that is created now.
    pub(super) fn new(id: InstanceId, name: Option<InstanceName>, seed: Seed, terms: Arc<Terms>) -> Self {
        let created = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let created = u64::try_from(created.as_nanos()).unwrap_or(u64::MAX);
        Self { id, name, terms, seed, created }
    }

    /// When the instance was created.
    pub(crate) fn created(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.created)
    }

    /// The parameters, its seed among them.
    pub(crate) fn params(&self) -> Params {
        self.terms.params.with_seed(self.seed)
    }

    /// That a request for an instance with this definition asks for just this one, which lives and has the same name
    /// (F11). A drawn seed equals any.
    pub(super) fn answers(&self, wanted: &Self, seed_given: bool) -> Result<(), RpcRefusal> {
        if self.terms == wanted.terms && (!seed_given || self.seed == wanted.seed) {
            return Ok(());
        }
        let name = self.name.as_ref().map_or("", InstanceName::as_str);
        let why = format!("{name} is the name of a living instance that was created differently");
        Err(RpcRefusal::new(RefusalReason::NameTaken, why))
    }
}

/// What instances may have in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Of everything else here, so that a long roster is hashed once, and not under the lock of all instances.
    /// Compared first, for it tells those that differ apart.
    digest: u64,
    pub(crate) creator: Principal,
    /// But for the seed, which stands in [`Definition`].
    pub(crate) params: Params,
    pub(crate) roster: Roster,
    /// The parameters as every hello is told them.
    pub(super) written: EncodedParameters,
}

/// Of the digests. Random, so that nobody can choose rosters whose digests are the same.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Terms {
    pub(super) fn new(creator: Principal, params: &Params, roster: &[String]) -> Self {
        let params = params.with_seed(Seed::default());
        let written = EncodedParameters::new(&(&params).into());
        let roster = Roster::new(roster);
        let digest = KEYS.hash_one((&creator, &params, &roster));
        Self { digest, creator, params, roster, written }
    }
}

/// The principals of processes 1, 2, 3, ..., in one piece of memory.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Roster {
    /// All names, one behind the other, and where each ends.
    names: Box<str>,
    ends: Box<[u32]>,
    /// The processes in the order of their names.
    sorted: Box<[u32]>,
}

impl Roster {
    /// These names, all of them different.
    fn new(names: &[String]) -> Self {
        let mut end = 0;
        let ends = names.iter().map(|name| {
            end += name.len();
            u32::try_from(end).expect("65,536 names of a bounded length")
        });
        let ends = ends.collect();
        let mut sorted: Box<[u32]> = (0..).take(names.len()).collect();
        sorted.sort_unstable_by_key(|index| &names[*index as usize]);
        Self { names: names.concat().into(), ends, sorted }
    }

    fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.names[start as usize..self.ends[index] as usize]
    }

    /// Which process this principal is.
    pub(crate) fn process_of(&self, principal: &str) -> Option<ProcessId> {
        let found = self.sorted.binary_search_by(|index| self.name(*index as usize).cmp(principal)).ok()?;
        ProcessId::from_index(self.sorted[found] as usize)
    }

    /// The names, by process.
    pub(crate) fn to_vec(&self) -> Vec<String> {
        (0..self.ends.len()).map(|index| self.name(index).to_owned()).collect()
    }
}

/// The terms of all instances, by digest, and how many instances have them.
///
/// Of several with one digest only the first are in here: others that differ, should there ever be any, or equal ones
/// that came in the same moment, are kept by their instances alone.
#[derive(Debug, Default)]
pub(super) struct AllTerms(HashMap<u64, (Arc<Terms>, usize)>);

impl AllTerms {
    /// Those of other instances that are most likely equal to these.
    pub(super) fn alike(&self, terms: &Terms) -> Option<Arc<Terms>> {
        self.0.get(&terms.digest).map(|(alike, _)| alike.clone())
    }

    /// An instance with these terms is held.
    pub(super) fn add(&mut self, terms: &Arc<Terms>) {
        let (first, count) = self.0.entry(terms.digest).or_insert_with(|| (terms.clone(), 0));
        if Arc::ptr_eq(first, terms) {
            *count += 1;
        }
    }

    /// It is held no more.
    pub(super) fn remove(&mut self, terms: &Arc<Terms>) {
        if let Some((first, count)) = self.0.get_mut(&terms.digest)
            && Arc::ptr_eq(first, terms)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&terms.digest);
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

    fn terms(names: &[&str]) -> Terms {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let params = Params::try_new(ParamsSpec::new(3, 1, 1)).unwrap();
        Terms::new(Principal::new("creator"), &params.with_seed(Seed::new(7)), &names)
    }

    #[test]
    fn a_roster_knows_its_processes_by_name_and_by_number() {
        let names = ["zoe", "al", "alba"];
        let roster = terms(&names).roster;
        assert_eq!(roster.to_vec(), names);
        for (index, name) in names.into_iter().enumerate() {
            assert_eq!(roster.process_of(name), ProcessId::from_index(index));
        }
        for stranger in ["", "a", "zoea", "zoeal"] {
            assert_eq!(roster.process_of(stranger), None);
        }
    }

    fn known(all: &AllTerms, terms: Terms) -> Arc<Terms> {
        all.alike(&terms).filter(|alike| **alike == terms).unwrap_or_else(|| Arc::new(terms))
    }

    #[test]
    fn equal_terms_are_kept_once_and_only_as_long_as_somebody_has_them() {
        let mut all = AllTerms::default();
        let first = known(&all, terms(&["a", "b", "c"]));
        all.add(&first);
        let second = known(&all, terms(&["a", "b", "c"]));
        all.add(&second);
        let other = known(&all, terms(&["a", "c", "b"]));
        all.add(&other);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        all.remove(&first);
        all.remove(&other);
        assert_eq!(all.len(), 1);
        all.remove(&second);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn terms_that_share_no_more_than_a_digest_are_not_taken_for_each_other() {
        let mut all = AllTerms::default();
        let first = Arc::new(terms(&["a", "b", "c"]));
        all.add(&first);
        let other = Terms { digest: first.digest, ..terms(&["a", "c", "b"]) };
        assert_eq!(all.alike(&other).as_deref(), Some(&*first));
        assert_ne!(*first, other);
        let other = Arc::new(other);
        all.add(&other);
        all.remove(&other);
        assert_eq!(all.alike(&other).as_deref(), Some(&*first), "who was not in here takes nothing out");
        all.remove(&first);
        assert_eq!(all.len(), 0);
    }
}
