//! The five properties: observed or violated, promised or not, and what shows it (SPEC V1 to V4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::bounds::{self, Premise};
use crate::params::{AppendWindow, Patience};
use crate::process::Ended;
use crate::types::{ProcessId, Value};

use super::verdict::{Observed, Property};
use super::{Case, Run};

/// What is found of one property.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) property: Property,
    pub(super) observed: Observed,
    /// The premise that is missing, where it was not promised.
    pub(super) missing: Option<Premise>,
    /// What shows that it broke; empty where it held.
    pub(super) witness: Vec<String>,
}

impl Finding {
    fn new(property: Property, promised: Result<(), Premise>, witness: Vec<String>) -> Self {
        let observed = if witness.is_empty() { Observed::Held } else { Observed::Violated };
        Self { property, observed, missing: promised.err(), witness }
    }
}

/// Finds all five, in the order of [`Property::ALL`].
pub(super) fn find(case: &Case<'_>, run: &Run<'_>) -> [Finding; 5] {
    let values = run.proposals.len() as u64;
    let strong = bounds::strong_validity(&case.params, run.f, values);
    let common = bounds::common_validity(&case.params, run.f);
    [
        Finding::new(Property::Agreement, agreement_promised(case), agreement(run)),
        find_termination(case, run),
        // The mode of entries is an entry, and somebody appended it.
        Finding::new(Property::WeakValidity, Ok(()), weak_validity(case, run)),
        Finding::new(Property::CommonValidity, common, common_validity(run)),
        Finding::new(Property::StrongValidity, strong, strong_validity(run)),
    ]
}

fn agreement_promised(case: &Case<'_>) -> Result<(), Premise> {
    match case.params.spec().append_window {
        AppendWindow::FirstAccess => Ok(()),
        AppendWindow::Open => Err(Premise::FirstAccess),
    }
}

fn agreement(run: &Run<'_>) -> Vec<String> {
    let deciders = run.deciders();
    if deciders.len() <= 1 { Vec::new() } else { who_decided_what(run, &deciders) }
}

/// Where it was promised, a process that has not decided may still do so, or its client failed; what it owes
/// counts. Where nobody promised it, not to have decided is how it breaks.
fn find_termination(case: &Case<'_>, run: &Run<'_>) -> Finding {
    let promised = termination_promised(case, run);
    let mut witness = termination(case, run);
    if promised.is_err() && witness.is_empty() {
        let undecided = run.correct.iter().filter(|process| !run.decisions.contains_key(process));
        witness.extend(undecided.map(|process| format!("process {process} has not decided")));
    }
    Finding::new(Property::Termination, promised, witness)
}

/// Promised if some correct process was punctual, and patience is finite or everybody acts or leaves (V1).
fn termination_promised(case: &Case<'_>, run: &Run<'_>) -> Result<(), Premise> {
    if case.params.spec().patience == Patience::Endless {
        let stays =
            run.evidence.processes().find(|(_, seen)| seen.joined && seen.decided.is_none() && !seen.acts());
        if let Some((process, _)) = stays {
            return Err(Premise::EveryoneActs { process });
        }
    }
    if !run.correct.iter().any(|&process| run.evidence.of(process).punctual) {
        return Err(Premise::PunctualProcess);
    }
    Ok(())
}

fn termination(case: &Case<'_>, run: &Run<'_>) -> Vec<String> {
    let too_late = |&process: &ProcessId| {
        if let Some(decision) = run.decisions.get(&process) {
            let phase = decision.phase.filter(|&phase| phase > decision.bound)?;
            let (bound, missed) = (decision.bound, decision.missed);
            return Some(format!(
                "process {process} decided in phase {phase}; having missed {missed} phases, it had to by phase {bound}"
            ));
        }
        match run.ended(process) {
            Some(Ended::NothingToDecide) => Some(format!("process {process} found nothing to decide")),
            // Of a process that failed, or is not at its end yet, only this can be said: it had all the
            // accesses that Algorithm 1 takes and one more.
            _ => {
                let seen = run.evidence.of(process);
                let needed = 1 + u64::from(case.params.reads()) + seen.reads_lost;
                (seen.executed > needed).then(|| {
                    format!("process {process} had {} accesses executed and has not decided", seen.executed)
                })
            }
        }
    };
    run.correct.iter().filter_map(too_late).collect()
}

fn weak_validity(case: &Case<'_>, run: &Run<'_>) -> Vec<String> {
    let deciders = run.deciders();
    if deciders.is_empty() {
        return Vec::new();
    }
    outside_of(run, &proposed(case, run), "no process", &deciders)
}

/// V: what anybody proposes, or appended.
pub(super) fn proposed<'a>(case: &Case<'a>, run: &'a Run<'_>) -> BTreeSet<&'a Value> {
    run.evidence.values().chain(case.cast.parts().map(|(_, part)| &part.proposal)).collect()
}

fn common_validity(run: &Run<'_>) -> Vec<String> {
    if run.proposals.len() == 1 { strong_validity(run) } else { Vec::new() }
}

fn strong_validity(run: &Run<'_>) -> Vec<String> {
    outside_of(run, &run.proposals, "no correct process", &run.deciders())
}

/// The witness that a decision is none of `proposed`.
fn outside_of(
    run: &Run<'_>,
    proposed: &BTreeSet<&Value>,
    nobody: &str,
    deciders: &BTreeMap<&Value, Vec<ProcessId>>,
) -> Vec<String> {
    let strays: BTreeMap<&Value, Vec<ProcessId>> = deciders
        .iter()
        .filter(|(value, _)| !proposed.contains(*value))
        .map(|(&value, processes)| (value, processes.clone()))
        .collect();
    if strays.is_empty() {
        return Vec::new();
    }
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

/// Who decided what, and from which entries.
fn who_decided_what(run: &Run<'_>, deciders: &BTreeMap<&Value, Vec<ProcessId>>) -> Vec<String> {
    let mut said = Vec::new();
    for (value, processes) in deciders {
        let noun = if processes.len() == 1 { "process" } else { "processes" };
        let from = processes.iter().find_map(|process| run.reports.get(process)).map(|report| &report.from);
        let from =
            from.map_or_else(String::new, |from| format!(" from {}: {}", in_order(from), counted(from)));
        said.push(format!("{noun} {} decided {value}{from}", few(processes.iter())));
    }
    said
}

/// The most things that a sentence lists.
const FEW: usize = 16;

fn in_order<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let values: Vec<&Value> = values.into_iter().collect();
    let first: Vec<String> = values.iter().take(FEW).map(ToString::to_string).collect();
    let more = if values.len() > FEW { " ..." } else { "" };
    format!("[{}{more}]", first.join(" "))
}

/// The values, each with how often it stands, the most frequent first.
fn counted<'a>(values: impl IntoIterator<Item = &'a Value>) -> String {
    let mut counts: BTreeMap<&Value, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(value).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    few(counts.into_iter().map(|(value, count)| format!("{count} x {value}")))
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
