//! Whether a run shows that its plan hit, and that its verdict is the expected one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stickycas_harness::report::folder::Folder;
use stickycas_model::access::Answer;
use stickycas_model::history::{Event, Recorded};
use stickycas_model::judge::Verdict;
use stickycas_model::types::ProcessId;

use crate::plan::{Expectations, Plan};

/// The observations of an instance during a plan that its history does not contain.
#[derive(Debug)]
pub(crate) struct Observations<'a> {
    /// The servers of a cluster that have owned it, one after another.
    pub(crate) owners: &'a [String],
    /// The longest time without an event.
    pub(crate) quiet: Duration,
}

/// The differences from the plan, in words; none if the run matches it.
pub(crate) fn mismatches(
    plan: &Plan,
    verdict: &Verdict,
    run: &Folder,
    observations: &Observations<'_>,
) -> Vec<String> {
    let history = &run.history;
    let mut mismatches = Vec::new();
    if verdict.verdict != plan.expect {
        mismatches.push(format!("the verdict is {}, and {} was expected", verdict.verdict, plan.expect));
    }
    mismatches.extend(at_processes(&plan.expectations, &RunEvidence::of(history)));
    if let Some(still) = plan.expectations.still.as_deref().copied() {
        let longest = history.windows(2).map(|pair| pair[1].at.since(pair[0].at)).max().unwrap_or_default();
        if longest < still {
            let wanted = humantime::format_duration(still);
            mismatches
                .push(format!("nothing happened for {longest:.1?} at the longest, and not for {wanted}"));
        }
    }
    if let Some(wanted) = plan.expectations.told_unknown {
        let told = run.harness.told_unknown;
        if told < wanted as usize {
            mismatches.push(format!(
                "{told} processes say that they were told that the instance is unknown, and not {wanted}"
            ));
        }
    }
    if let Some(wanted) = plan.expectations.restarts {
        let restarts = history.iter().filter(|it| matches!(it.event, Event::Restarted { .. })).count();
        if restarts != wanted {
            mismatches.push(format!("the server has restarted {restarts} times, and not {wanted}"));
        }
    }
    mismatches.extend(of_cluster(&plan.expectations, observations));
    for (property, words) in &plan.expectations.missing {
        match verdict.finding(*property).1 {
            None => mismatches.push(format!("{property} was promised, and \"{words}\" was to be missing")),
            Some(premise) if !premise.contains(words) => {
                mismatches
                    .push(format!("what {property} lacks is \"{premise}\", which does not say \"{words}\""));
            }
            Some(_) => {}
        }
    }
    mismatches
}

/// The expectations of the servers of a cluster that were not met.
fn of_cluster(expected: &Expectations, observations: &Observations<'_>) -> Vec<String> {
    let mut mismatches = Vec::new();
    let Observations { owners, quiet } = observations;
    if let Some(wanted) = expected.quiet.as_deref().copied().filter(|wanted| quiet < wanted) {
        let wanted = humantime::format_duration(wanted);
        mismatches.push(format!("nothing was seen for {quiet:.1?} at the longest, and not for {wanted}"));
    }
    let different = owners.iter().collect::<BTreeSet<_>>().len();
    if let Some(wanted) = expected.owners.filter(|&wanted| different < wanted) {
        let named = if owners.is_empty() { "nobody".to_owned() } else { owners.join(", ") };
        mismatches
            .push(format!("{different} servers have owned the instance, and not {wanted} or more: {named}"));
    }
    mismatches
}

/// The expectations of processes that the history does not meet.
fn at_processes(expected: &Expectations, shown: &RunEvidence) -> Vec<String> {
    let mut mismatches = Vec::new();
    let joined = expected.never_joined.intersection(&shown.joined);
    mismatches.extend(joined.map(|process| format!("process {process} has joined")));
    let decided = expected.never_decided.intersection(&shown.decided);
    mismatches.extend(decided.map(|process| format!("process {process} has decided")));
    let undecided = expected.decided.difference(&shown.decided);
    mismatches.extend(undecided.map(|process| format!("process {process} has not decided")));
    for (process, &wanted) in &expected.sessions {
        let opened = shown.lives.get(process).map_or(0, |lives| lives.len() as u64);
        if opened < wanted {
            mismatches
                .push(format!("process {process} has opened {opened} sessions, and not {wanted} or more"));
        }
    }
    for (process, &wanted) in &expected.lives {
        let lives: BTreeSet<u64> = shown.lives.get(process).into_iter().flatten().copied().collect();
        let lived = lives.len() as u64;
        if lived != wanted {
            mismatches
                .push(format!("the client of process {process} has had {lived} lives, and not {wanted}"));
        }
    }
    for (process, &wanted) in &expected.appends {
        let executed = shown.appends.get(process).copied().unwrap_or(0);
        if executed != wanted {
            mismatches
                .push(format!("{executed} appends of process {process} were executed, and not {wanted}"));
        }
    }
    mismatches
}

/// The evidence of a history about processes.
#[derive(Debug, Default)]
struct RunEvidence {
    joined: BTreeSet<ProcessId>,
    decided: BTreeSet<ProcessId>,
    /// Of each session, which life of the client opened it.
    lives: BTreeMap<ProcessId, Vec<u64>>,
    /// How many appends were executed.
    appends: BTreeMap<ProcessId, u64>,
}

impl RunEvidence {
    fn of(history: &[Recorded]) -> Self {
        let mut shown = Self::default();
        for recorded in history {
            match recorded.event {
                Event::Joined { process } => {
                    shown.joined.insert(process);
                }
                Event::Decided { process, .. } => {
                    shown.decided.insert(process);
                }
                Event::Session { process, incarnation, .. } => {
                    shown.lives.entry(process).or_default().push(incarnation);
                }
                Event::Answered { process, answer: Answer::Append(_), .. } => {
                    *shown.appends.entry(process).or_default() += 1;
                }
                _ => {}
            }
        }
        shown
    }
}
