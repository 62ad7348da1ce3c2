//! What a server counted in the course of a run: how those attacks are seen that leave no trace in the history
//! of an instance, since they concern none (SPEC B3).
//!
//! Counts have names, and which there are is the server's affair: the reasons of refusals as the wire has them
//! (`NOT_YOUR_PHASE`), and what else it counts (`connections_silent`). A run folder keeps them next to the history, so
//! that it can be judged again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::types::ProcessId;

/// How often what happened, by name. What is not named did not happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts(BTreeMap<String, u64>);

impl Counts {
    /// How often this happened.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// What was counted since these counts were taken, of the same things.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = self.0.iter();
        counts.map(|(name, count)| (name.clone(), count.saturating_sub(earlier.get(name)))).collect()
    }
}

impl FromIterator<(String, u64)> for Counts {
    fn from_iter<I: IntoIterator<Item = (String, u64)>>(counts: I) -> Self {
        Self(counts.into_iter().filter(|(_, count)| *count > 0).collect())
    }
}

/// What a server counted: everything, and what of it was known to be whose.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCounts {
    /// Everything, whoever's it was.
    pub all: Counts,
    /// What was known to be a process's.
    pub processes: BTreeMap<ProcessId, Counts>,
}

impl RunCounts {
    /// What was known to be this process's.
    #[must_use]
    pub fn of(&self, process: ProcessId) -> &Counts {
        const NOTHING: &Counts = &Counts(BTreeMap::new());
        self.processes.get(&process).unwrap_or(NOTHING)
    }

    /// What was counted since these counts were taken.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let process =
            |(&process, counts): (&ProcessId, &Counts)| (process, counts.since(earlier.of(process)));
        Self { all: self.all.since(&earlier.all), processes: self.processes.iter().map(process).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_before_a_run_is_not_the_runs() {
        let counts = |count| Counts::from_iter([("MALFORMED".to_owned(), count), ("same".to_owned(), 7)]);
        let counted = |count| RunCounts {
            all: counts(count + 1),
            processes: BTreeMap::from([(ProcessId::FIRST, counts(count))]),
        };
        let since = counted(5).since(&counted(2));
        assert_eq!(since.all, Counts::from_iter([("MALFORMED".to_owned(), 3)]));
        assert_eq!(since.of(ProcessId::FIRST).get("MALFORMED"), 3);
        assert_eq!(since.of(ProcessId::FIRST).get("same"), 0);
        assert_eq!(
            serde_json::to_string(&since).unwrap(),
            r#"{"all":{"MALFORMED":3},"processes":{"1":{"MALFORMED":3}}}"#
        );
    }
}
