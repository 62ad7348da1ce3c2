//! `explore`: the searches of [`stickycas_model::explore`] on all cores, and what they say of each claim.

mod report;
mod witness;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use stickycas_model::explore::{Claim, SearchResult, Task, Witness, search, tasks};

pub use self::report::{json, table};

/// What to search.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which claims.
    pub claims: Vec<Claim>,
    /// The largest n, if not that of the claim.
    pub largest: Option<u32>,
    /// How many searches at a time.
    pub jobs: usize,
}

/// The searches of one part of a claim with one n, taken together.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The claim: a, b, c or d.
    pub claim: String,
    /// Which part of it.
    pub part: &'static str,
    /// n.
    pub n: u32,
    /// How many searches: all p, all r.
    pub searches: u64,
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
    /// What speaks against the claim; empty if it holds.
    pub against: Vec<String>,
}

/// What came of it all.
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
}

impl Report {
    /// Whether every claim that was searched holds.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.against.is_empty())
    }
}

/// Makes the searches. `done` is told how many of how many are over.
///
/// # Errors
/// If one of them is too large.
pub fn explore(options: &Options, done: &(dyn Fn(usize, usize) + Sync)) -> anyhow::Result<Report> {
    let started = Instant::now();
    let tasks = tasks_of(options);
    // Before anything is searched for minutes.
    tasks.iter().try_for_each(|task| task.setup.check().with_context(|| described(task)))?;
    let results = Mutex::new(Vec::new());
    let (next, finished) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..options.jobs.clamp(1, tasks.len().max(1)) {
            scope.spawn(|| {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let started = Instant::now();
                    let found = search(&task.setup, task.search_order);
                    let mut results = results.lock().expect("no search panics while it holds the lock");
                    results.push((task, found, started.elapsed()));
                    done(finished.fetch_add(1, Ordering::Relaxed) + 1, tasks.len());
                }
            });
        }
    });
    let mut rows = BTreeMap::new();
    let mut shortest: Option<(&Task, Witness)> = None;
    for (task, found, took) in results.into_inner().expect("no search panics while it holds the lock") {
        let found = found.with_context(|| described(task))?;
        // In the order of the claims' lists, whichever search ends first.
        let row =
            rows.entry((task.claim, place(task), task.setup.processes)).or_insert_with(|| Row::new(task));
        row.take_in(task, &found, took);
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
        jobs: options.jobs,
    })
}

fn described(task: &Task) -> String {
    let (n, p, r) = (task.setup.processes, task.setup.warp_size, task.setup.read_size);
    format!("claim {}, n = {n}, p = {p}, r = {r}", task.claim)
}

/// The fewest processes, then the fewest phases.
fn length(task: &Task, witness: &Witness) -> (u32, usize, u32, u32) {
    let setup = &task.setup;
    (setup.processes, witness.transitions.len(), setup.warp_size, setup.read_size)
}

/// The searches, those that take longest first, so that no core is idle at the end.
fn tasks_of(options: &Options) -> Vec<Task> {
    let of = |claim: &Claim| tasks(*claim, options.largest.unwrap_or(claim.largest()));
    let mut all: Vec<Task> = options.claims.iter().flat_map(of).collect();
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
        Self {
            claim: task.claim.to_string(),
            part: task.part,
            n: task.setup.processes,
            searches: 0,
            states: 0,
            transitions: 0,
            deepest: 0,
            seconds: 0.0,
            disagreements: 0,
            against: Vec::new(),
        }
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
