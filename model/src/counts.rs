//! The counts of a server in the course of a run. Wire attacks are detected by them: they concern no instance
//! and leave no trace in a history (SPEC B3).
//!
//! Counts have names, which the server chooses: the reasons of refusals as the wire has them
//! (`NOT_YOUR_PHASE`), and those of its other counters (`connections_silent`). A run folder keeps them next
//! to the history, so that the run can be judged again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::ProcessId;

/// Counts by name. A name that is absent counts 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// The count of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The counts since these earlier ones of the same counters.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.0.iter();
        counts.map(|(name, count)| (name.clone(), count.saturating_sub(earlier.get(name)))).collect()
    }

    /// Raises each count to that of another look at the same counters.
    pub fn raise(&mut self, seen: &Self) {
        for (name, &count) in &seen.0 {
            let known = self.0.entry(name.clone()).or_default();
            *known = count.max(*known);
        }
    }

    /// Adds the counts of other counters of the same names.
    pub fn add(&mut self, others: &Self) {
        for (name, count) in &others.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }
}

impl FromIterator<(String, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(counts: I) -> Self {
        Self(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

/// The counts of a server: in all, and for each process as far as it could attribute the count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// In all.
    pub all: Counts,
    /// For each process.
    pub processes: BTreeMap<ProcessId, Counts>,
}

impl RunCounts {
    /// The counts of this process.
    #[must_use]
    pub fn of(&self, process: ProcessId) -> &Counts {
        const NOTHING: &Counts = &Counts(BTreeMap::new());
        self.processes.get(&process).unwrap_or(NOTHING)
    }

    /// The counts since these earlier ones. A process may not have been shown then, and have been counted
    /// before: it is given no more than was counted in all since then.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let all = self.all.since(&earlier.all);
        let process = |(&process, counts): (&ProcessId, &Counts)| {
            let since = counts.since(earlier.of(process)).0.into_iter();
            let bounded = since.map(|(name, count)| {
                let count = count.min(all.get(&name));
                (name, count)
            });
            (process, bounded.collect())
        };
        let processes = self.processes.iter().map(process).collect();
        Self { all, processes }
    }

    /// Raises each count to that of another look at the same counters, which may show fewer processes.
    pub fn raise(&mut self, seen: &Self) {
        self.all.raise(&seen.all);
        for (process, counts) in &seen.processes {
            self.processes.entry(*process).or_default().raise(counts);
        }
    }

    /// Adds the counts of other counters: those of another life of the server.
    pub fn add(&mut self, others: &Self) {
        self.all.add(&others.all);
        for (process, counts) in &others.processes {
            self.processes.entry(*process).or_default().add(counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_run_are_those_since_it_began_in_every_life() {
        let counts = |count| Counts::from_iter([("MALFORMED".to_owned(), count), ("same".to_owned(), 7)]);
        let counted = |count| RunCounts {
            all: counts(count + 1),
            processes: BTreeMap::from([(ProcessId::FIRST, counts(count))]),
        };
        let since = counted(5).since(&counted(2));
        assert_eq!(since.all, Counts::from_iter([("MALFORMED".to_owned(), 3)]));
        assert_eq!(since.of(ProcessId::FIRST).get("MALFORMED"), 3);
        assert_eq!(since.of(ProcessId::FIRST).get("same"), 0);
        // It was not shown: it had 4 of the 5, and 1 was counted in all.
        let hidden = RunCounts { processes: BTreeMap::new(), ..counted(4) };
        assert_eq!(counted(5).since(&hidden).of(ProcessId::FIRST).get("MALFORMED"), 1);
        let mut sum = since.clone();
        sum.add(&counted(4));
        assert_eq!((sum.all.get("MALFORMED"), sum.of(ProcessId::FIRST).get("MALFORMED")), (3 + 5, 3 + 4));
        assert_eq!(sum.all.get("same"), 7);
        let mut seen = counted(5);
        seen.raise(&RunCounts { processes: BTreeMap::new(), ..counted(6) });
        seen.raise(&counted(4));
        assert_eq!((seen.all.get("MALFORMED"), seen.of(ProcessId::FIRST).get("MALFORMED")), (6 + 1, 5));
        assert_eq!(
            serde_json::to_string(&since).unwrap(),
            r#"{"all":{"MALFORMED":3},"processes":{"1":{"MALFORMED":3}}}"#
        );
    }
}
