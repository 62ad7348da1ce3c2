//! The consequences of a case before anything is judged: the correct processes, their decisions, f.

use std::collections::BTreeMap;

use crate::bounds;
use crate::history::OffenceKind;
use crate::process::{ProcessEnd, Report};
use crate::types::{Phase, ProcessId, Value};

use super::case::Case;
use super::evidence::Evidence;
use super::table::{SortedSet, Table};
use super::verdict::Decision;

/// The consequences of a case.
#[derive(Debug)]
pub(super) struct Analysis<'a> {
    pub(super) evidence: &'a Evidence,
    /// Correct in the ground truth and not made faulty by the plan.
    pub(super) correct: SortedSet<ProcessId>,
    pub(super) reports: Table<&'a Report>,
    /// Vc.
    pub(super) proposals: SortedSet<&'a Value>,
    pub(super) late: SortedSet<ProcessId>,
    pub(super) f: u64,
    pub(super) decisions: Table<Decision>,
    /// The different values that were decided.
    pub(super) decided: SortedSet<&'a Value>,
}

impl<'a> Analysis<'a> {
    pub(super) fn new(case: &Case<'a>, evidence: &'a Evidence) -> Self {
        let faulty = &case.expected.faulty;
        let correct: SortedSet<ProcessId> = case
            .truth
            .correct()
            .filter(|process| !faulty.contains(process) && case.params.contains(*process))
            .collect();
        let mut reports = Table::empty(case.params.processes());
        for report in case.reports.iter().filter(|report| correct.contains(&report.process)) {
            reports.insert(report.process, report);
        }
        let late: SortedSet<ProcessId> =
            correct.iter().copied().filter(|&process| evidence.is_late(process)).collect();
        let not_correct = u64::from(case.params.processes()) - correct.len() as u64;
        let assignment = |process: &ProcessId| case.truth.assignment(*process);
        let decided = |&process: &ProcessId| Some((process, decided(process, &reports, evidence)?));
        let mut decisions = Table::empty(case.params.processes());
        for (process, (value, phase)) in correct.iter().filter_map(decided) {
            let missed = evidence.missed(process, phase);
            let bound = bounds::phase_bound(&case.params, missed);
            decisions.insert(process, Decision { value: value.clone(), phase, bound, missed });
        }
        Self {
            proposals: correct.iter().filter_map(assignment).map(|assignment| &assignment.proposal).collect(),
            decided: correct.iter().filter_map(decided).map(|(_, (value, _))| value).collect(),
            decisions,
            f: not_correct + late.len() as u64,
            evidence,
            correct,
            reports,
            late,
        }
    }

    /// The end that a correct process reports.
    pub(super) fn ended(&self, process: ProcessId) -> Option<&'a ProcessEnd> {
        self.reports.get(process).map(|report| &report.ended)
    }

    /// The processes that decided each value.
    pub(super) fn deciders(&self) -> BTreeMap<&Value, Vec<ProcessId>> {
        let mut deciders: BTreeMap<&Value, Vec<ProcessId>> = BTreeMap::new();
        for (process, decision) in self.decisions.iter() {
            deciders.entry(&decision.value).or_default().push(process);
        }
        deciders
    }

    /// Offences that this process was observed to commit and that are not on record (B2).
    pub(super) fn unnamed(&self, case: &Case<'_>, process: ProcessId) -> Vec<OffenceKind> {
        let committed = case.expected.offences.get(&process).into_iter().flatten();
        let on_record = self.evidence.blame.get(&process);
        let missing = |kind: &&OffenceKind| on_record.is_none_or(|kinds| !kinds.contains_key(kind));
        committed.filter(missing).copied().collect()
    }

    /// Correct processes with an offence on record (B3).
    pub(super) fn accused(&self) -> impl Iterator<Item = ProcessId> {
        self.evidence.blame.keys().copied().filter(|process| self.correct.contains(process))
    }

    /// The largest m of a correct process (D2).
    pub(super) fn most_missed(&self) -> u64 {
        let missed = |&process: &ProcessId| match self.decisions.get(process) {
            Some(decision) => decision.missed,
            None => self.evidence.missed(process, None),
        };
        self.correct.iter().map(missed).max().unwrap_or(0)
    }
}

/// The decision of a process and its phase: by its own report, or without one, by the decision on record.
fn decided<'a>(
    process: ProcessId,
    reports: &Table<&'a Report>,
    evidence: &'a Evidence,
) -> Option<(&'a Value, Option<Phase>)> {
    let seen = evidence.of(process);
    match reports.get(process) {
        Some(report) => Some((report.decision.as_ref()?, report.phase.or(seen.last_answer))),
        None => Some((seen.decided.as_ref()?, seen.last_answer)),
    }
}
