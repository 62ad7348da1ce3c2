//! The rules whose breach makes a run a violation, apart from the five properties (SPEC V4, B3, D1, D3).

use crate::params::AppendWindow;
use crate::predicates;
use crate::process::{ProcessEnd, Report, mode};
use crate::types::{ProcessId, Value};

use super::analysis::Analysis;
use super::case::Case;

/// A rule that broke.
#[derive(Debug)]
pub(super) struct Violation {
    /// The index of the event that shows it, if one does.
    pub(super) event: Option<usize>,
    /// The rule, and how it broke.
    pub(super) says: String,
}

/// The rules that broke, apart from the five properties.
pub(super) fn violations(case: &Case<'_>, run: &Analysis<'_>) -> Vec<Violation> {
    let broken = run.evidence.broken.iter();
    let mut found: Vec<Violation> =
        broken.map(|broken| Violation { event: Some(broken.index), says: broken.to_string() }).collect();
    let accused = run.evidence.first_offences.iter().filter(|(process, _)| run.correct.contains(process));
    found.extend(accused.map(|(process, (index, offence))| {
        let says = format!(
            "B3: process {process} is correct and was accused of {:?}: {}",
            offence.kind, offence.detail
        );
        Violation { event: Some(*index), says }
    }));
    found.extend(unnamed(case, run));
    found.extend(denied_phase(case, run));
    let sealed_mode = mode(run.evidence.values());
    found.extend(run.reports.values().filter_map(|report| {
        let says = wrong_decision(case, run, report, sealed_mode)?;
        Some(Violation { event: run.evidence.of(report.process).decided_at, says })
    }));
    found
}

/// Observed offences that are not on record: an offence of the closed list is provable, so it must be (B2). An
/// incomplete history may lack just the offence.
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

/// Correct processes whose access was accepted in time and not executed in their first phase (V4).
fn denied_phase(case: &Case<'_>, run: &Analysis<'_>) -> impl Iterator<Item = Violation> {
    run.correct.iter().filter_map(|&process| {
        let seen = run.evidence.of(process);
        // A history that is cut short may end between a step and its answers.
        let told = case.complete || run.evidence.own_phases(process, None) > 1;
        let event = seen.in_time.filter(|_| !seen.punctual && told)?;
        let says = format!(
            "V4: an access of process {process} had been accepted when its first phase came, and missed it"
        );
        Some(Violation { event: Some(event), says })
    })
}

/// Why a correct process should not have decided what it reports (D1, D3, R2).
fn wrong_decision(
    case: &Case<'_>,
    run: &Analysis<'_>,
    report: &Report,
    sealed_mode: Option<&Value>,
) -> Option<String> {
    let Report { process, decision: Some(decision), from, .. } = report else { return None };
    if let Some(told) = run.evidence.of(*process).decided.as_ref().filter(|told| *told != decision) {
        return Some(format!(
            "D3: process {process} decided {decision}, and {told} is on record as its report"
        ));
    }
    if case.complete && report.ended == ProcessEnd::Decided && run.evidence.of(*process).decided.is_none() {
        return Some(format!(
            "D3: process {process} decided {decision}, the server took its report, and has no record of it"
        ));
    }
    let whole = from.len() == run.evidence.list.len() && run.evidence.begins_with(from);
    // An earlier life of it decided, and this one has not read the entries.
    if from.is_empty() && run.evidence.of(*process).decided.is_some() {
        let judged = run.evidence.sealed && case.params.spec().append_window == AppendWindow::FirstAccess;
        return (judged && sealed_mode != Some(decision)).then(|| {
            format!("D1: process {process} decided {decision}, which is not the mode of the sealed list")
        });
    }
    // The same, where the history lacks the decision.
    if from.is_empty() && !case.complete {
        return None;
    }
    // All processes that read the whole list compute the same mode.
    let computed = if whole { sealed_mode } else { mode(from) };
    if computed != Some(decision) {
        let computed = computed.map_or_else(|| "nothing".to_owned(), ToString::to_string);
        return Some(format!(
            "D1: process {process} decided {decision}; the mode of the {} entries that it read is {computed}",
            from.len()
        ));
    }
    if whole && run.evidence.sealed {
        return None;
    }
    match case.params.spec().append_window {
        AppendWindow::FirstAccess => not_from_sealed_list(case, run, *process, from),
        AppendWindow::Open => (case.complete && !run.evidence.contains_in_order(from)).then(|| {
            format!("R2: process {process} read entries that do not stand in the list in this order")
        }),
    }
}

/// Why, under `first_access`, these are not all the entries of the sealed list. An incomplete history may lack the end,
/// and with it the seal.
fn not_from_sealed_list(
    case: &Case<'_>,
    run: &Analysis<'_>,
    process: ProcessId,
    from: &[Value],
) -> Option<String> {
    let known = if case.complete { from } else { &from[..from.len().min(run.evidence.list.len())] };
    if !run.evidence.begins_with(known) {
        return Some(format!("R2: what process {process} read is not a prefix of the list"));
    }
    if run.evidence.sealed {
        let stand = run.evidence.list.len();
        return (!predicates::is_from_whole_list(&case.params, from.len(), stand))
            .then(|| format!("D1: process {process} decided from {} of {stand} entries", from.len()));
    }
    case.complete.then(|| format!("D1: process {process} decided, and the list was never sealed"))
}
