//! The explanation of a verdict: the winners of the entries, how the decisions follow from the entries and by
//! which margin, the processes that count in f, and the event with which each breach first shows.
//!
//! Nothing is judged here. An [`Explanation`] is the verdict of the judge with the data that lead to it; the
//! load generator puts it into words.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::analysis::Analysis;
use super::case::Case;
use super::evidence::Evidence;
use super::properties::{self, PropertyFinding};
use super::rules;
use super::table::SortedSet;
use super::value_counts::ValueCounts;
use super::verdict::{Decision, Observed, Verdict};
use super::verdict_builder::verdict;
use crate::access::{Answer, AppendAnswer};
use crate::bounds::Property;
use crate::history::{Event, Recorded};
use crate::types::{Phase, Position, ProcessId, Value, WarpId};

/// A verdict and the data that lead to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The verdict.
    pub verdict: Verdict,
    /// The list, with the winner of each entry.
    pub entries: Vec<WonEntry>,
    /// The restarts of the server (F3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<ServerRestart>,
    /// The decisions of correct processes, grouped by value and by the entries that they had read.
    pub choices: Vec<DecisionGroup>,
    /// The processes that count in f, and why.
    pub faulty: Vec<FaultyProcess>,
    /// All breaches, promised or not, in the order of the events that show them; those that no event shows
    /// come last.
    pub broke: Vec<Breach>,
}

/// An entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WonEntry {
    /// Its position.
    pub position: Position,
    /// Its value.
    pub value: Value,
    /// The process whose append won.
    pub process: ProcessId,
    /// The warp of that process.
    pub warp: WarpId,
    /// The phase in which it was added.
    pub phase: Phase,
    /// The processes whose appends failed in that phase, in the order of their answers (A1).
    pub against: Vec<ProcessId>,
}

/// A restart of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRestart {
    /// The index of its event.
    pub event: usize,
    /// The last phase that had been executed.
    pub after: Option<Phase>,
    /// The accesses that were accepted and not answered then: the restart must not have lost one.
    pub waiting: u64,
}

/// The processes that decided the same value from the same entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionGroup {
    /// The decision.
    pub value: Value,
    /// The processes.
    pub processes: Vec<ProcessId>,
    /// The entries, counted. `None` if no report has them: an earlier life of the process had read them.
    pub tally: Option<ValueCounts>,
}

/// A process that counts in f.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultyProcess {
    /// The process.
    pub process: ProcessId,
    /// The reason.
    pub why: FaultReason,
}

/// Why a process counts in f (V3, V4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultReason {
    /// It is Byzantine and has this strategy or attack.
    Byzantine(String),
    /// It is correct, and the plan kills, pauses or restarts it.
    Planned,
    /// It is correct and late (F6, K3).
    Late,
}

/// A breach of a property or of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// The property; `None` for a rule.
    pub property: Option<Property>,
    /// Index of the event that shows it first, from 0; `None` if it shows only in the reports of processes,
    /// or in the absence of an event.
    pub event: Option<usize>,
    /// The breach, in a sentence.
    pub says: String,
}

/// Judges a run and explains the verdict. See the module.
#[must_use]
pub fn explain(case: &Case<'_>) -> Explanation {
    let evidence = Evidence::gather(case);
    let run = Analysis::new(case, &evidence);
    let verdict = verdict(case, &run);
    Explanation {
        entries: entries(case),
        restarts: restarts(case.history),
        choices: choices(&run),
        faulty: faulty(case, &run, &verdict),
        broke: broke(case, &run),
        verdict,
    }
}

fn entries(case: &Case<'_>) -> Vec<WonEntry> {
    let mut entries: Vec<WonEntry> = Vec::new();
    for Recorded { event, .. } in case.history {
        match event {
            // A broken history may name a process that does not exist.
            Event::Added { position, process, phase, value } if case.params.contains(*process) => {
                let warp = case.params.warp_of(*process);
                let (position, process, phase, value) = (*position, *process, *phase, value.clone());
                entries.push(WonEntry { position, value, process, warp, phase, against: Vec::new() });
            }
            Event::Answered { process, phase, answer: Answer::Append(AppendAnswer::Failed), .. } => {
                if let Some(entry) = entries.last_mut().filter(|entry| entry.phase == *phase) {
                    entry.against.push(*process);
                }
            }
            _ => {}
        }
    }
    entries
}

fn restarts(history: &[Recorded]) -> Vec<ServerRestart> {
    let (mut restarts, mut after, mut waiting) = (Vec::new(), None, 0_u64);
    for (event, recorded) in history.iter().enumerate() {
        match recorded.event {
            Event::Accepted { .. } => waiting += 1,
            Event::Answered { .. } | Event::Withdrawn { .. } => waiting = waiting.saturating_sub(1),
            Event::Stepped { phase, .. } => after = Some(phase),
            Event::Restarted { .. } => restarts.push(ServerRestart { event, after, waiting }),
            _ => {}
        }
    }
    restarts
}

/// The groups of decisions, in the order of value.
fn choices(run: &Analysis<'_>) -> Vec<DecisionGroup> {
    let mut groups: BTreeMap<(&Value, Option<&[Value]>), Vec<ProcessId>> = BTreeMap::new();
    for (process, decision) in run.decisions.iter() {
        let from = run.reports.get(process).map(|report| report.from.as_slice());
        let known = from.filter(|from| !from.is_empty());
        groups.entry((&decision.value, known)).or_default().push(process);
    }
    let choice = |((value, from), processes): ((&Value, Option<&[Value]>), Vec<ProcessId>)| DecisionGroup {
        value: value.clone(),
        processes,
        tally: from.map(ValueCounts::of),
    };
    groups.into_iter().map(choice).collect()
}

fn faulty(case: &Case<'_>, run: &Analysis<'_>, verdict: &Verdict) -> Vec<FaultyProcess> {
    let why = |process: ProcessId| match verdict.byzantine.get(&process) {
        Some(part) => Some(FaultReason::Byzantine(part.clone())),
        None if !run.correct.contains(&process) => Some(FaultReason::Planned),
        None => run.late.contains(&process).then_some(FaultReason::Late),
    };
    let all = ProcessId::all(case.params.processes());
    all.filter_map(|process| Some(FaultyProcess { process, why: why(process)? })).collect()
}

fn broke(case: &Case<'_>, run: &Analysis<'_>) -> Vec<Breach> {
    let findings = properties::find(case, run);
    let broken = findings.iter().filter(|finding| finding.observed == Observed::Violated);
    let mut broke: Vec<Breach> = broken
        .map(|finding| {
            let (event, says) = first_shown(case, run, finding);
            Breach { property: Some(finding.property), event, says }
        })
        .collect();
    let found = rules::find(case, run);
    let rules = found.violations.into_iter().chain(found.false_roles);
    broke.extend(rules.map(|rule| Breach { property: None, event: rule.event, says: rule.says }));
    broke.sort_by_key(|broke| broke.event.unwrap_or(usize::MAX));
    broke
}

/// The first event that shows that a property broke, and how it does.
fn first_shown(case: &Case<'_>, run: &Analysis<'_>, finding: &PropertyFinding) -> (Option<usize>, String) {
    // Decisions that only their processes report come last, in the order of processes.
    let told = |process: ProcessId| run.evidence.of(process).decided_at;
    let mut deciders: Vec<(ProcessId, &Decision)> = run.decisions.iter().collect();
    deciders.sort_by_key(|&(process, _)| told(process).unwrap_or(usize::MAX));
    let stray = |proposed: &SortedSet<&Value>, nobody: &str| {
        let &(process, Decision { value, .. }) =
            deciders.iter().find(|(_, decision)| !proposed.contains(&&decision.value))?;
        Some((told(process), format!("process {process} decides {value}, which {nobody} proposed")))
    };
    let shown = match finding.property {
        Property::Agreement => deciders.split_first().and_then(|((first, agreed), others)| {
            let (process, other) = others.iter().find(|(_, other)| other.value != agreed.value)?;
            let (one, another) = (&agreed.value, &other.value);
            let says = format!("process {first} decided {one}, and process {process} decides {another}");
            Some((told(*process), says))
        }),
        Property::Termination => {
            // Only a decision that came too late has an event. A process that has not decided has none.
            let late = |(process, says): (ProcessId, String)| {
                run.decisions.get(process).map(|_| (told(process), says))
            };
            let broke = properties::termination(case, run).into_iter().filter_map(late);
            broke.min_by_key(|(event, _)| event.unwrap_or(usize::MAX))
        }
        Property::WeakValidity => stray(&properties::proposed(case, run), "no process"),
        Property::CommonValidity | Property::StrongValidity => stray(&run.proposals, "no correct process"),
    };
    shown.unwrap_or_else(|| (None, finding.witness.first().cloned().unwrap_or_default()))
}
