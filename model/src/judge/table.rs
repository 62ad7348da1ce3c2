//! Sets and maps that a judge of thousands of runs a second can afford: a sorted list and a table by process.

use crate::types::ProcessId;

/// A set, as a sorted list.
#[derive(Debug)]
pub(super) struct SortedSet<T>(Vec<T>);

impl<T: Ord> SortedSet<T> {
    pub(super) fn contains(&self, one: &T) -> bool {
        self.0.binary_search(one).is_ok()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Up to so many different elements are inserted one by one.
const FEW: usize = 64;

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all = all.into_iter();
        let mut sorted: Vec<T> = Vec::new();
        for one in all.by_ref() {
            if sorted.last().is_none_or(|last| *last < one) {
                sorted.push(one);
            } else if let Err(place) = sorted.binary_search(&one) {
                sorted.insert(place, one);
                if sorted.len() > FEW {
                    break;
                }
            }
        }
        let before = sorted.len();
        sorted.extend(all);
        if sorted.len() > before {
            sorted.sort_unstable();
            sorted.dedup();
        }
        Self(sorted)
    }
}

/// A map from processes.
#[derive(Debug)]
pub(super) struct Table<T>(Vec<Option<T>>);

impl<T> Table<T> {
    /// An empty table with a place for each of so many processes.
    pub(super) fn empty(processes: u32) -> Self {
        Self((0..processes).map(|_| None).collect())
    }

    /// A process without a place is passed over.
    pub(super) fn insert(&mut self, process: ProcessId, one: T) {
        if let Some(place) = self.0.get_mut(process.index()) {
            *place = Some(one);
        }
    }

    pub(super) fn get(&self, process: ProcessId) -> Option<&T> {
        self.0.get(process.index())?.as_ref()
    }

    pub(super) fn contains(&self, process: ProcessId) -> bool {
        self.get(process).is_some()
    }

    /// In the order of processes.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ProcessId, &T)> {
        let all = ProcessId::all(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        all.zip(&self.0).filter_map(|(process, one)| Some((process, one.as_ref()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::{any, prop, prop_assert, proptest};

    use super::*;

    proptest! {
        #[test]
        fn a_sorted_list_holds_what_a_set_holds(all in prop::collection::vec(any::<u8>(), 0..300)) {
            let set: BTreeSet<u8> = all.iter().copied().collect();
            prop_assert!(all.into_iter().collect::<SortedSet<u8>>().iter().eq(&set));
        }
    }
}
