//! The reasons why a run proves nothing: the verdict `unknown` (SPEC V4, B3).

use crate::process::ProcessEnd;
use crate::types::ProcessId;

use super::analysis::Analysis;
use super::case::Case;
use super::properties::few;

/// The reasons why the run proves nothing.
pub(super) fn unknown_reasons(case: &Case<'_>, run: &Analysis<'_>) -> Vec<String> {
    let mut found = Vec::new();
    if !case.complete {
        found.push("the history is incomplete".to_owned());
    }
    let unfired =
        case.expected.attacks.iter().filter(|attack| case.fired.get(*attack).is_none_or(|&count| count == 0));
    found.extend(unfired.map(|attack| format!("the attack {attack} was planned and never seen to fire")));
    let late: Vec<ProcessId> =
        run.late.iter().copied().filter(|process| !case.expected.late.contains(process)).collect();
    // Where nothing was planned, whoever is late counts in f, and that is all.
    if !late.is_empty() && !case.expected.assumed {
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
        let what = if case.expected.assumed { "decision" } else { "report" };
        found.push(format!("no {what} came from correct processes: {}", few(missing)));
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
