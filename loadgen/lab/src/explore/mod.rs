//! `explore`: the searches of [`stickycas_model::explore`] on all cores, and what they say of each claim.

mod report;
mod witness;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use stickycas_harness::exit::UsageError;
use stickycas_model::explore::{
    Claim, ScheduleClass, SearchResult, SetupError, Task, Witness, search, tasks,
};

use crate::workers::detached;

/// How often the stop flag is read.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The options of the searches.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Which claims.
    pub claims: Vec<Claim>,
    /// The largest n, if not that of the claim.
    pub largest: Option<u32>,
    /// Only those with so many append rounds.
    pub append_rounds: Option<u32>,
    /// How many searches at a time.
    pub jobs: NonZeroUsize,
}

/// The searches of one part of a claim with one n, taken together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The claim: a, b, c or d.
    pub claim: String,
    /// Which part of it.
    pub part: &'static str,
    /// n.
    pub n: u32,
    /// How many searches were made.
    pub searches: u64,
    /// How many there are: all p, all r.
    pub planned: u64,
    /// States that differ.
    pub states: u64,
    /// Phases executed.
    pub transitions: u64,
    /// The most phases in a row.
    pub deepest: u64,
    /// How long the searches took, one after the other.
    pub seconds: f64,
    /// In how many of them correct processes decide differently.
    pub disagreements: u64,
    /// The findings against the claim; empty if it holds.
    pub against: Vec<String>,
}

/// The results of all searches.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// By claim, part and n.
    pub rows: Vec<Row>,
    /// The shortest way to a disagreement, as a scenario file; `None` if none was found.
    pub witness: Option<String>,
    /// How long it took.
    pub seconds: f64,
    /// How many searches ran at a time.
    pub jobs: usize,
    /// How many searches there were to make.
    pub planned: u64,
    /// Whether it ended before all of them were made.
    pub interrupted: bool,
}

impl Report {
    /// Whether no search speaks against its claim.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.against.is_empty())
    }
}

/// Makes the searches. `done` is told how many of how many are over, now and then. Once `stop` is set, the
/// report is of the searches that are over; those that are not go on in threads of their own until the
/// program ends.
///
/// # Errors
/// If one of them is too large.
pub fn explore(
    options: &ExploreOptions,
    stop: &AtomicBool,
    mut done: impl FnMut(usize, usize),
) -> anyhow::Result<Report> {
    let started = Instant::now();
    let tasks = tasks_of(options);
    if tasks.is_empty() {
        let reason = "there is no search of these claims with so many append rounds and so few processes";
        return Err(UsageError(format!("{reason}: give another --append-rounds or --max-n")).into());
    }
    // Before anything is searched for minutes.
    tasks.iter().try_for_each(|task| task.setup.check().with_context(|| UsageError(described(task))))?;
    let tasks = Arc::new(tasks);
    let results_of = detached(options.jobs, 0..tasks.len(), {
        let tasks = Arc::clone(&tasks);
        move |index| search_one(&tasks, index)
    })?;
    let mut results = Vec::new();
    let interrupted = loop {
        match results_of.recv_timeout(LOOK_EVERY) {
            Ok(result) => results.push(result),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break false,
        }
        done(results.len(), tasks.len());
        if stop.load(Ordering::Relaxed) && results.len() < tasks.len() {
            break true;
        }
    };
    anyhow::ensure!(interrupted || results.len() == tasks.len(), "a search panicked");
    let mut rows = BTreeMap::new();
    let mut shortest: Option<(&Task, Witness)> = None;
    for task in tasks.iter() {
        rows.entry(key(task)).or_insert_with(|| Row::new(task)).planned += 1;
    }
    for (index, found, took) in results {
        let task = &tasks[index];
        let found = found.with_context(|| described(task))?;
        rows.entry(key(task)).or_insert_with(|| Row::new(task)).take_in(task, &found, took);
        let splits = |witness: &Witness| task.claim == Claim::A && witness.violation.rule == "V1";
        if let Some(witness) = found.witness.filter(splits)
            && shortest.as_ref().is_none_or(|(other, best)| length(task, &witness) < length(other, best))
        {
            shortest = Some((task, witness));
        }
    }
    Ok(Report {
        rows: rows.into_values().collect(),
        witness: shortest.map(|(task, witness)| witness::scenario(&task.setup, &witness)).transpose()?,
        seconds: started.elapsed().as_secs_f64(),
        jobs: options.jobs.get(),
        planned: tasks.len() as u64,
        interrupted,
    })
}

/// A search that is over: its index, its result, and its duration.
type FinishedSearch = (usize, Result<SearchResult, SetupError>, Duration);

/// Makes the search of this index.
fn search_one(tasks: &[Task], index: usize) -> FinishedSearch {
    let task = &tasks[index];
    let started = Instant::now();
    let found = search(&task.setup, task.search_order);
    (index, found, started.elapsed())
}

/// Where a search is counted: in the order of the claims' lists, whichever search ends first.
fn key(task: &Task) -> (Claim, usize, u32) {
    (task.claim, place(task), task.setup.processes)
}

fn described(task: &Task) -> String {
    let (n, p, r) = (task.setup.processes, task.setup.warp_size, task.setup.read_size);
    format!("claim {}, n = {n}, p = {p}, r = {r}", task.claim)
}

/// The fewest processes, then the fewest phases; and the order of warps that a scenario can repeat first.
fn length(task: &Task, witness: &Witness) -> (u32, bool, usize, u32, u32) {
    let setup = &task.setup;
    let other_order = setup.schedule != ScheduleClass::Ascending;
    (setup.processes, other_order, witness.transitions.len(), setup.warp_size, setup.read_size)
}

/// The searches, those that take longest first, so that no core is idle at the end.
fn tasks_of(options: &ExploreOptions) -> Vec<Task> {
    let of = |claim: &Claim| tasks(*claim, options.largest.unwrap_or(claim.largest()));
    let mut all: Vec<Task> = options.claims.iter().flat_map(of).collect();
    all.retain(|task| options.append_rounds.is_none_or(|rounds| task.setup.append_rounds == rounds));
    all.sort_by_key(|task| {
        let setup = &task.setup;
        (std::cmp::Reverse(setup.processes), setup.warp_size, setup.read_size)
    });
    all
}

/// Where a part stands in the list of its claim.
fn place(task: &Task) -> usize {
    // The smallest size at which every part is there.
    let list = tasks(task.claim, 5);
    list.iter().position(|other| other.part == task.part).unwrap_or(usize::MAX)
}

impl Row {
    fn new(task: &Task) -> Self {
        Self { claim: task.claim.to_string(), part: task.part, n: task.setup.processes, ..Self::default() }
    }

    fn take_in(&mut self, task: &Task, found: &SearchResult, took: Duration) {
        self.searches += 1;
        self.states += found.states;
        self.transitions += found.transitions;
        self.deepest = self.deepest.max(found.deepest);
        self.seconds += took.as_secs_f64();
        self.disagreements +=
            u64::from(found.witness.as_ref().is_some_and(|witness| witness.violation.rule == "V1"));
        if let Err(reason) = task.judge(found) {
            let setup = &task.setup;
            let steps = found.witness.as_ref().map(|witness| witness::sentences(&witness.transitions));
            let way = steps.map_or_else(String::new, |steps| format!("; {}", steps.join("; ")));
            self.against.push(format!("p = {}, r = {}: {reason}{way}", setup.warp_size, setup.read_size));
        }
    }
}
