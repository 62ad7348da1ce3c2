//! What is fixed when an instance is created, and what of it many instances have in common.
//!
//! Whoever creates many instances mostly asks for the same: the same parameters and the same processes. So these are
//! kept once for all of them, and of each instance only what is its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use stickycas_model::params::Params;
use stickycas_model::types::{ProcessId, Seed};
use stickycas_proto::attach::WrittenParameters;
use stickycas_proto::names::{InstanceId, InstanceName};

use crate::identity::Principal;

/// What was fixed when the instance was created.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) id: InstanceId,
    pub(crate) name: Option<InstanceName>,
    pub(crate) terms: Arc<Terms>,
    pub(crate) seed: Seed,
    /// In nanoseconds since 1970.
    created: u64,
}

impl Facts {
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

    /// Whether a request for an instance with these facts asks for just this one (F11). A drawn seed equals
    /// any.
    pub(super) fn answers(&self, wanted: &Self, seed_given: bool) -> bool {
        self.terms == wanted.terms && (!seed_given || self.seed == wanted.seed)
    }
}

/// What instances may have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) creator: Principal,
    /// But for the seed, which stands in [`Facts`].
    pub(crate) params: Params,
    pub(crate) roster: Roster,
    /// The parameters as every hello is told them.
    pub(super) written: WrittenParameters,
}

impl Terms {
    pub(super) fn new(creator: Principal, params: &Params, roster: &[String]) -> Self {
        let params = params.with_seed(Seed::default());
        let written = WrittenParameters::new(&(&params).into());
        Self { creator, params, roster: Roster::new(roster), written }
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

/// The terms of all living instances, each once.
#[derive(Debug, Default)]
pub(super) struct AllTerms(HashMap<Arc<Terms>, usize>);

impl AllTerms {
    /// These, or the equal ones that another instance has.
    pub(super) fn known(&self, terms: Terms) -> Arc<Terms> {
        self.0.get_key_value(&terms).map_or_else(|| Arc::new(terms), |(known, _)| known.clone())
    }

    /// An instance with these terms begins to live.
    pub(super) fn add(&mut self, terms: &Arc<Terms>) {
        *self.0.entry(terms.clone()).or_default() += 1;
    }

    /// It lives no more.
    pub(super) fn remove(&mut self, terms: &Arc<Terms>) {
        if let Some(count) = self.0.get_mut(terms) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(terms);
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

    #[test]
    fn equal_terms_are_kept_once_and_only_as_long_as_somebody_has_them() {
        let mut all = AllTerms::default();
        let first = all.known(terms(&["a", "b", "c"]));
        all.add(&first);
        let second = all.known(terms(&["a", "b", "c"]));
        all.add(&second);
        let other = all.known(terms(&["a", "c", "b"]));
        all.add(&other);
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &other));
        all.remove(&first);
        all.remove(&other);
        assert_eq!(all.len(), 1);
        all.remove(&second);
        assert_eq!(all.len(), 0);
    }
}
