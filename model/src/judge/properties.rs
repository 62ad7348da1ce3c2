//! The five properties: whether each held, whether it was promised, and the witness where it broke (SPEC V1
//! to V4).

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::bounds::{Premise, Property};
use crate::params::Patience;
use crate::predicates::{self, Decisions};
use crate::process::ProcessEnd;
use crate::types::{AccessNumber, Phase, ProcessId, Value};

use super::analysis::Analysis;
use super::case::Case;
use super::table::SortedSet;
use super::value_counts::ValueCounts;
use super::verdict::{Decision, Observed};

/// The finding on one property.
#[derive(Debug)]
pub(super) struct PropertyFinding {
    pub(super) property: Property,
    pub(super) observed: Observed,
    /// The premise that is missing, where it was not promised.
    pub(super) missing: Option<Premise>,
    /// Sentences that show how it broke; empty where it did not.
    pub(super) witness: Vec<String>,
}

/// Finds all five, in the order of [`Property::ALL`].
pub(super) fn find(case: &Case<'_>, run: &Analysis<'_>) -> [PropertyFinding; 5] {
    observe(case, run).map(|(property, observed, missing)| {
        let witness = match observed {
            Observed::Held | Observed::Unknown => Vec::new(),
            Observed::Violated => witness(case, run, property),
        };
        PropertyFinding { property, observed, missing, witness }
    })
}

/// The same, without witnesses.
pub(super) fn observe(case: &Case<'_>, run: &Analysis<'_>) -> [(Property, Observed, Option<Premise>); 5] {
    let values = run.proposals.len() as u64;
    let decided = &run.decided;
    let of_correct = decided.iter().all(|value| run.proposals.contains(value));
    // A proposal of a correct process is a proposal of some process.
    let of_some = of_correct || {
        let proposed = proposed(case, run);
        decided.iter().all(|value| proposed.contains(value))
    };
    let ends = termination_promised(case, run);
    let known = Decisions { f: run.f, values, decided: decided.len(), of_correct, of_some };
    let [agreement, weak, common, strong] =
        known.properties(&case.params).map(|(property, held, promised)| {
            (property, if held { Observed::Held } else { Observed::Violated }, promised.err())
        });
    let termination = (Property::Termination, terminated(case, run, ends.is_ok()), ends.err());
    [agreement, termination, weak, common, strong]
}

/// The sentences that show how a property broke.
fn witness(case: &Case<'_>, run: &Analysis<'_>, property: Property) -> Vec<String> {
    match property {
        Property::Agreement => who_decided_what(run, &run.deciders()),
        Property::Termination => termination(case, run).into_iter().map(|(_, says)| says).collect(),
        Property::WeakValidity => outside_of(run, &proposed(case, run), "no process"),
        Property::CommonValidity | Property::StrongValidity => {
            outside_of(run, &run.proposals, "no correct process")
        }
    }
}

/// Promised if some correct process was punctual, and patience is finite or every process acts or leaves
/// (V1). A process whose first phase never came, although an access of it was waiting, has not missed that
/// phase: it is punctual.
fn termination_promised(case: &Case<'_>, run: &Analysis<'_>) -> Result<(), Premise> {
    if case.params.spec().patience == Patience::Endless {
        let stays =
            run.evidence.processes().find(|(_, seen)| seen.joined && seen.decided.is_none() && !seen.acts());
        if let Some((process, _)) = stays {
            return Err(Premise::EveryoneActs { process });
        }
    }
    let punctual = |process: &ProcessId| {
        let seen = run.evidence.of(*process);
        !run.late.contains(process) && (seen.in_window > 0 || seen.acts())
    };
    if !run.correct.iter().any(punctual) {
        return Err(Premise::PunctualProcess);
    }
    Ok(())
}

/// Whether every correct process decided in time (V1). A correct process that has not decided breaks
/// termination if the run shows that the server owed it an answer. Otherwise, where termination was promised
/// or the history may lack the decision, the run does not show it: the process may have died, or its
/// connection.
fn terminated(case: &Case<'_>, run: &Analysis<'_>, promised: bool) -> Observed {
    if run.correct.iter().any(|&process| overdue(case, run, process).is_some()) {
        Observed::Violated
    } else if run.correct.iter().all(|process| run.decisions.contains(*process)) {
        Observed::Held
    } else if promised || !case.complete {
        Observed::Unknown
    } else {
        Observed::Violated
    }
}

/// How a correct process failed to decide in time.
enum Overdue {
    /// It decided, in this phase.
    Late(Phase),
    /// It found nothing to decide.
    Nothing,
    /// This access of it was accepted and never answered, while its session stood.
    Unanswered(AccessNumber),
    /// It had more accesses executed than it takes, and has not decided.
    Never,
}

fn overdue(case: &Case<'_>, run: &Analysis<'_>, process: ProcessId) -> Option<Overdue> {
    if let Some(decision) = run.decisions.get(process) {
        return decision
            .phase
            .filter(|&phase| !predicates::is_in_time(phase, decision.bound))
            .map(Overdue::Late);
    }
    if let Some(ProcessEnd::NothingToDecide) = run.ended(process) {
        return Some(Overdue::Nothing);
    }
    let seen = run.evidence.of(process);
    // The process says that its session stood, and the history that the access was accepted: neither alone
    // suffices.
    let waited_for = run.reports.get(process).and_then(|report| report.unanswered);
    if let Some(number) = waited_for.filter(|number| case.complete && seen.unanswered() == Some(*number)) {
        return Some(Overdue::Unanswered(number));
    }
    // A process that failed, or has not ended, is overdue if it had more accesses executed than Algorithm 1
    // takes.
    let needed = u64::from(case.params.append_rounds()) + u64::from(case.params.reads()) + seen.reads_lost;
    (seen.executed > needed).then_some(Overdue::Never)
}

/// The correct processes that broke termination, each with a sentence that says how.
pub(super) fn termination(case: &Case<'_>, run: &Analysis<'_>) -> Vec<(ProcessId, String)> {
    let says = |process: ProcessId| match overdue(case, run, process)? {
        Overdue::Late(phase) => {
            let Decision { bound, missed, .. } = run.decisions.get(process)?;
            Some(format!(
                "process {process} decided in phase {phase}; having missed {missed} phases, it had to by phase {bound}"
            ))
        }
        Overdue::Nothing => Some(format!("process {process} found nothing to decide")),
        Overdue::Unanswered(number) => Some(format!(
            "process {process} has not decided: its access {number} was accepted and never answered, and its session \
             stood when the run was given up"
        )),
        Overdue::Never => {
            let executed = run.evidence.of(process).executed;
            Some(format!("process {process} had {executed} accesses executed and has not decided"))
        }
    };
    let overdue: Vec<(ProcessId, String)> =
        run.correct.iter().filter_map(|&process| Some((process, says(process)?))).collect();
    if !overdue.is_empty() {
        return overdue;
    }
    let undecided = run.correct.iter().copied().filter(|process| !run.decisions.contains(*process));
    undecided.map(|process| (process, format!("process {process} has not decided"))).collect()
}

/// V: the values that any process proposed or appended.
pub(super) fn proposed<'a>(case: &Case<'a>, run: &'a Analysis<'_>) -> SortedSet<&'a Value> {
    run.evidence
        .values()
        .chain(case.truth.assignments().map(|(_, assignment)| &assignment.proposal))
        .collect()
}

/// The witness that a decision is none of `proposed`.
fn outside_of(run: &Analysis<'_>, proposed: &SortedSet<&Value>, nobody: &str) -> Vec<String> {
    let deciders = run.deciders();
    let strays: BTreeMap<&Value, Vec<ProcessId>> = deciders
        .iter()
        .filter(|(value, _)| !proposed.contains(*value))
        .map(|(&value, processes)| (value, processes.clone()))
        .collect();
    let mut witness = who_decided_what(run, &strays);
    for value in strays.keys() {
        let appended = run.evidence.list.iter().filter(|entry| entry.value == **value);
        let appended = few(appended.map(|entry| entry.process));
        let by = if appended.is_empty() { String::new() } else { format!("; appended by {appended}") };
        witness.push(format!("{value} was proposed by {nobody}{by}"));
    }
    witness.push(format!("the list: {}", counted(run.evidence.values())));
    if run.late.is_empty() {
        witness.push(format!("correct processes proposed {}", few(run.proposals.iter())));
    } else {
        let late = few(run.late.iter());
        witness.push(format!("correct processes proposed {}; late: {late}", few(run.proposals.iter())));
    }
    witness
}

/// The processes that decided each value, and the entries that they decided from.
fn who_decided_what(run: &Analysis<'_>, deciders: &BTreeMap<&Value, Vec<ProcessId>>) -> Vec<String> {
    let mut said = Vec::new();
    for (value, processes) in deciders {
        let noun = if processes.len() == 1 { "process" } else { "processes" };
        // Those of an earlier life, or of a process that reports to the server only, are not known.
        let mut reports = processes.iter().filter_map(|process| run.reports.get(*process));
        let from = reports.find(|report| !report.from.is_empty()).map(|report| &report.from);
        let from =
            from.map_or_else(String::new, |from| format!(" from {}: {}", in_order(from), counted(from)));
        said.push(format!("{noun} {} decided {value}{from}", few(processes.iter())));
    }
    said
}

/// The most things that a sentence lists.
const FEW: usize = 16;

pub(super) fn in_order<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let values: Vec<&Value> = values.into_iter().collect();
    let first: Vec<String> = values.iter().take(FEW).map(ToString::to_string).collect();
    let more = if values.len() > FEW { " ..." } else { "" };
    format!("[{}{more}]", first.join(" "))
}

/// The values with their counts, the most frequent first.
fn counted<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let counts = ValueCounts::of(values).counts;
    few(counts.iter().map(|count| format!("{} x {}", count.entries, count.value)))
}

/// The first few of them, and how many more there are.
pub(super) fn few<T: Display>(things: impl IntoIterator<Item = T>) -> String {
    let mut things = things.into_iter();
    let first: Vec<String> = things.by_ref().take(FEW).map(|thing| thing.to_string()).collect();
    match things.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}
