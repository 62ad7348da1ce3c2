//! What else makes a run a violation, and what makes it prove nothing (SPEC V4, B3, D1, D3).

use crate::params::AppendWindow;
use crate::process::{ProcessEnd, Report, mode};
use crate::types::{ProcessId, Value};

use super::properties::few;
use super::{Case, Run};

/// A rule that broke.
#[derive(Debug)]
pub(super) struct Violation {
    /// Which event shows it, if one does.
    pub(super) event: Option<usize>,
    /// Which rule it is, and how it broke.
    pub(super) says: String,
}

/// The rules that broke, apart from the five properties.
pub(super) fn violations(case: &Case<'_>, run: &Run<'_>) -> Vec<Violation> {
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

/// Culprits who got away: what was seen to be an offence of the closed list is provable, and so must be on record
/// (B2). Of a history that is not complete the offence may be what is missing.
fn unnamed(case: &Case<'_>, run: &Run<'_>) -> impl Iterator<Item = Violation> {
    let culprits = case.expected.offences.keys().filter(|_| case.complete);
    culprits.flat_map(|&process| {
        run.unnamed(case, process).into_iter().map(move |kind| {
            let says =
                format!("B2: process {process} was seen to commit {kind:?}, and that is not on record");
            Violation { event: None, says }
        })
    })
}

/// Correct processes whose access was there in time and was passed over (V4).
fn denied_phase(case: &Case<'_>, run: &Run<'_>) -> impl Iterator<Item = Violation> {
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
    run: &Run<'_>,
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
    // An earlier life of it decided, and this one knows no more than that.
    if from.is_empty() && run.evidence.of(*process).decided.is_some() {
        let judged = run.evidence.sealed && case.params.spec().append_window == AppendWindow::FirstAccess;
        return (judged && sealed_mode != Some(decision)).then(|| {
            format!("D1: process {process} decided {decision}, which is not the mode of the sealed list")
        });
    }
    // The same, where its decision is what the history lacks.
    if from.is_empty() && !case.complete {
        return None;
    }
    // With the whole list in hand the mode is the same for everybody.
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

/// Why, under `first_access`, these are not all the entries of the sealed list. Of a history that is not
/// complete the end may be missing, and with it the seal.
fn not_from_sealed_list(
    case: &Case<'_>,
    run: &Run<'_>,
    process: ProcessId,
    from: &[Value],
) -> Option<String> {
    let known = if case.complete { from } else { &from[..from.len().min(run.evidence.list.len())] };
    if !run.evidence.begins_with(known) {
        return Some(format!("R2: what process {process} read is not a prefix of the list"));
    }
    if run.evidence.sealed {
        let stand = run.evidence.list.len();
        return (from.len() < stand)
            .then(|| format!("D1: process {process} decided from {} of {stand} entries", from.len()));
    }
    case.complete.then(|| format!("D1: process {process} decided, and the list was never sealed"))
}

/// What makes the run prove nothing.
pub(super) fn unknowns(case: &Case<'_>, run: &Run<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !case.complete {
        found.push("the history is incomplete".to_owned());
    }
    let unfired =
        case.expected.attacks.iter().filter(|attack| case.fired.get(*attack).is_none_or(|&count| count == 0));
    found.extend(unfired.map(|attack| format!("the attack {attack} was planned and never seen to fire")));
    let late: Vec<ProcessId> =
        run.late.iter().copied().filter(|process| !case.expected.late.contains(process)).collect();
    if !late.is_empty() {
        found.push(format!("late, which the plan does not name: {}", few(&late)));
    }
    let came_in_time = |process: &&ProcessId| !run.late.contains(process);
    let punctual: Vec<ProcessId> = case.expected.late.iter().filter(came_in_time).copied().collect();
    if !punctual.is_empty() {
        found.push(format!("planned to be late, and were not: {}", few(&punctual)));
    }
    let missing = run.correct.iter().filter(|process| !run.reports.contains(**process));
    let missing: Vec<&ProcessId> = missing.collect();
    if !missing.is_empty() {
        found.push(format!("no report came from correct processes: {}", few(missing)));
    }
    for (process, report) in run.reports.iter() {
        match (&report.ended, &report.decision) {
            (ProcessEnd::Failed(why), _) => {
                found.push(format!("process {process} is correct and failed: {why}"));
            }
            (ProcessEnd::Decided, None) => {
                found.push(format!("process {process} says that it decided, and not what"));
            }
            (ProcessEnd::Decided, Some(_)) | (ProcessEnd::NothingToDecide, _) => {}
        }
    }
    found
}
