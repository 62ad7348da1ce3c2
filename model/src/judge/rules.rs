//! The rules whose breach makes a run a violation, apart from the five properties (SPEC V4, B3, D1, D3).

use crate::params::AppendWindow;
use crate::predicates::EntriesGiven;
use crate::process::{ProcessEnd, Report, mode};
use crate::types::{ProcessId, Value};

use super::analysis::Analysis;
use super::case::Case;
use super::evidence::Evidence;
use super::properties::in_order;

/// A rule that broke.
#[derive(Debug)]
pub(super) struct Violation {
    /// The index of the event that shows it, if one does.
    pub(super) event: Option<usize>,
    /// The rule, and how it broke.
    pub(super) says: String,
}

/// The findings on the rules.
#[derive(Debug, Default)]
pub(super) struct RuleFindings {
    /// The rules that broke, apart from the five properties.
    pub(super) violations: Vec<Violation>,
    /// Why the assignment of roles is false: a process that others started is correct in it, and does not act
    /// as D1 says.
    pub(super) false_roles: Vec<Violation>,
    /// Correct processes that do not act as D1 says, whoever started them.
    pub(super) deviated: Vec<ProcessId>,
}

/// Finds the rules that broke.
pub(super) fn find(case: &Case<'_>, run: &Analysis<'_>) -> RuleFindings {
    let mut modes = Modes { evidence: run.evidence, last: None };
    let deviates = |&process: &ProcessId| Some((process, deviation(case, run, &mut modes, process)?));
    let (deviated, deviations): (Vec<_>, Vec<_>) = run.correct.iter().filter_map(deviates).unzip();
    let broken = run.evidence.broken.iter();
    let mut violations: Vec<Violation> =
        broken.map(|broken| Violation { event: Some(broken.index), says: broken.to_string() }).collect();
    let elsewhere = case.expected.are_started_elsewhere();
    // Of a process whose role is false, an accusation may be true.
    let accused =
        run.evidence.first_offences.iter().filter(|(process, _)| {
            run.correct.contains(process) && !(elsewhere && deviated.contains(process))
        });
    violations.extend(accused.map(|(process, (index, offence))| {
        let says = format!(
            "B3: process {process} is correct and was accused of {:?}: {}",
            offence.kind, offence.detail
        );
        Violation { event: Some(*index), says }
    }));
    violations.extend(unnamed(case, run));
    violations.extend(denied_phase(case, run));
    violations.extend(run.reports.values().filter_map(|report| unrecorded(case, run, report)));
    let told = case.expected.role_mismatches.iter();
    let mut false_roles: Vec<Violation> =
        told.map(|says| Violation { event: None, says: says.clone() }).collect();
    if elsewhere { &mut false_roles } else { &mut violations }.extend(deviations);
    RuleFindings { violations, false_roles, deviated }
}

/// Observed offences that are not on record: an offence of the closed list is provable, so it must be (B2).
/// An incomplete history may lack just the offence.
fn unnamed(case: &Case<'_>, run: &Analysis<'_>) -> impl Iterator<Item = Violation> {
    let culprits = case.expected.offences.keys().filter(|_| case.complete);
    culprits.flat_map(|&process| {
        run.unnamed(case, process).into_iter().map(move |kind| {
            let says =
                format!("B2: process {process} was seen to commit {kind:?}, and that is not on record");
            Violation { event: None, says }
        })
    })
}

/// Correct processes whose access was accepted in time and not executed in one of their first q phases (V4).
fn denied_phase(case: &Case<'_>, run: &Analysis<'_>) -> impl Iterator<Item = Violation> {
    run.correct.iter().filter_map(|&process| {
        let seen = run.evidence.of(process);
        // A history that is cut short may end between a step and its answers.
        let (event, phase) = seen.denied?;
        let round = run.evidence.round(phase);
        let told = case.complete || run.evidence.own_phases(process, None) > round;
        let says = format!(
            "V4: an access of process {process} had been accepted when phase {phase} of its warp came, and missed it"
        );
        told.then_some(Violation { event: Some(event), says })
    })
}

/// A decision that the server took from a correct process and has no record of (V4).
fn unrecorded(case: &Case<'_>, run: &Analysis<'_>, report: &Report) -> Option<Violation> {
    let Report { process, decision: Some(decision), ended: ProcessEnd::Decided, .. } = report else {
        return None;
    };
    let lost = case.complete && run.evidence.of(*process).decided.is_none();
    let says = format!(
        "D3: process {process} decided {decision}, the server took its report, and has no record of it"
    );
    lost.then_some(Violation { event: None, says })
}

/// How a correct process differs from Algorithm 1 by the record, or its report from the record (D1, D3).
fn deviation<'a>(
    case: &Case<'_>,
    run: &Analysis<'a>,
    modes: &mut Modes<'a>,
    process: ProcessId,
) -> Option<Violation> {
    let seen = run.evidence.of(process);
    if let Some((event, says)) = seen.algorithm.deviation(&case.truth.assignment(process)?.proposal) {
        return Some(Violation { event, says: format!("D1: process {process} is correct and {says}") });
    }
    let report = run.reports.get(process).copied();
    let reported = report.and_then(|report| report.decision.as_ref());
    let says = match (seen.decided.as_ref(), reported) {
        (Some(told), Some(decision)) if told != decision => {
            Some(format!("D3: process {process} decided {decision}, and {told} is on record as its report"))
        }
        // The history may lack what the process was given.
        (None, Some(decision)) if !case.complete => differs_from_own_report(case, run, report?, decision),
        (on_record, _) => on_record
            .or(reported)
            .and_then(|decision| wrong_decision(case, run, modes, process, decision))
            .or_else(|| other_entries(case, run, report?)),
    };
    Some(Violation { event: seen.decided_at, says: says? })
}

/// Why a process does not decide this from what it was given (D1).
fn wrong_decision<'a>(
    case: &Case<'_>,
    run: &Analysis<'a>,
    modes: &mut Modes<'a>,
    process: ProcessId,
    decision: &Value,
) -> Option<String> {
    let mut wrong = None;
    for given in run.evidence.of(process).algorithm.given() {
        let count = given.counted(&case.params).count();
        let computed = modes.of(case, given);
        let says = if computed != Some(decision) {
            let computed = computed.map_or_else(|| "nothing".to_owned(), ToString::to_string);
            format!(
                "D1: process {process} decided {decision}; the mode of the {count} entries that it read is {computed}"
            )
        } else {
            let start = given.next_start(&case.params)?;
            format!(
                "D1: process {process} decided {decision} from {count} entries, where its next read was to start at {start}"
            )
        };
        wrong.get_or_insert(says);
    }
    wrong
}

/// Why a process cannot have read the entries that it reports, as it was given others (R2).
fn other_entries(case: &Case<'_>, run: &Analysis<'_>, report: &Report) -> Option<String> {
    let Report { process, from, .. } = report;
    // An earlier life of it decided, and this one has not read the entries.
    if from.is_empty() {
        return None;
    }
    let mut other = None;
    for given in run.evidence.of(*process).algorithm.given() {
        let entries = run.evidence.entries(given.counted(&case.params));
        if entries.clone().eq(from) {
            return None;
        }
        other.get_or_insert_with(|| {
            format!(
                "R2: process {process} reports that it read {}, and by the record it read {}",
                in_order(from),
                in_order(entries)
            )
        });
    }
    other
}

/// Why a process does not decide this from what it reports to have read, of which the history may lack the
/// end (D1, R2).
fn differs_from_own_report(
    case: &Case<'_>,
    run: &Analysis<'_>,
    report: &Report,
    decision: &Value,
) -> Option<String> {
    let Report { process, from, .. } = report;
    if from.is_empty() {
        return None;
    }
    if mode(from) != Some(decision) {
        return Some(format!(
            "D1: process {process} decided {decision}, not the mode of what it reports to have read"
        ));
    }
    let known = &from[..from.len().min(run.evidence.list.len())];
    let is_prefix = case.params.spec().append_window == AppendWindow::Open || run.evidence.begins_with(known);
    (!is_prefix)
        .then(|| format!("R2: what process {process} reports to have read is not a prefix of the list"))
}

/// The modes of the first entries of a list, of which many processes ask for the same.
struct Modes<'a> {
    evidence: &'a Evidence,
    last: Option<(usize, Option<&'a Value>)>,
}

impl<'a> Modes<'a> {
    /// The mode of what a process was given.
    fn of(&mut self, case: &Case<'_>, given: &EntriesGiven) -> Option<&'a Value> {
        let evidence = self.evidence;
        let Some(first) = given.first_only(&case.params) else {
            let values: Vec<&Value> = evidence.entries(given.counted(&case.params)).collect();
            return mode(values.iter().copied());
        };
        match self.last {
            Some((count, mode)) if count == first => mode,
            _ => {
                let mode = mode(evidence.values().take(first));
                self.last = Some((first, mode));
                mode
            }
        }
    }
}
