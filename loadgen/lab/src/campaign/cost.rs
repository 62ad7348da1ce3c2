//! The cost of a campaign before it is run, and whether that fits a budget.
//!
//! In the simulator the cost of a run grows with its messages ([`CellPlan::messages`]). The cost of one
//! message here and now is measured by a few runs of cells from all over the campaign, for less than a
//! second; the rest is arithmetic. Over the network a run also takes the time for which a process is awaited;
//! the virtual clock of the simulated run shows that time.

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use stickycas_harness::scenario::FileError;
use stickycas_model::sim;
use stickycas_model::types::Time;

use super::network::AT_A_TIME;
use super::plan::{Campaign, CellPlan};
use super::remaining::Remaining;
use crate::batch::count;

/// Cells that are measured.
const SAMPLES: usize = 24;
/// Runs of each that are made in a row.
const SAMPLE_RUNS: u64 = 8;
/// For how long all of them are measured together, if no single run takes longer.
const MEASURE: Duration = Duration::from_millis(500);
/// About the cost of a message over the network: more than on any machine that builds this in sensible time.
const NETWORK_MESSAGE: Duration = Duration::from_micros(100);
/// How long the server and its connections take to come and go.
const NETWORK_SETUP: Duration = Duration::from_millis(100);

/// The work that is left, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Cells.
    pub cells: u64,
    /// Runs.
    pub runs: u64,
    /// How long each sweep takes in the simulator, about, and the sample over the network; the longest first.
    pub parts: Vec<(String, Duration)>,
}

impl Cost {
    /// How long all of it takes, about.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.parts.iter().map(|(_, time)| *time).sum()
    }

    /// Why it does not fit, and what to cut; `None` if it fits.
    #[must_use]
    pub fn refusal(&self, budget: Duration, jobs: NonZeroUsize) -> Option<String> {
        let time = self.time();
        if time <= budget {
            return None;
        }
        let whole = |time: Duration| {
            let seconds = Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0));
            humantime::format_duration(seconds).to_string()
        };
        let parts: Vec<String> =
            self.parts.iter().map(|(name, time)| format!("{name} {}", whole(*time))).collect();
        Some(format!(
            "{} cells with {} runs take about {} on {jobs} threads, and the budget is {}: cut runs to {:.0} % of what \
             they are, or run some sweeps alone (--only), or give --budget {}; what takes how long: {}",
            self.cells,
            self.runs,
            whole(time),
            humantime::format_duration(budget),
            (100.0 * budget.as_secs_f64() / time.as_secs_f64()).floor(),
            whole(time + time / 10).replace(' ', ""),
            parts.join(", "),
        ))
    }
}

/// The cost of the rest of a campaign on so many threads.
///
/// # Errors
/// If a cell is no scenario.
pub fn estimate(campaign: &Campaign, left: &Remaining<'_>, jobs: NonZeroUsize) -> Result<Cost, FileError> {
    let message = measure(campaign, &left.cells)?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = jobs.get().min(cpus) as f64;
    let is_left =
        |cell: &&CellPlan| left.cells.binary_search_by_key(&cell.number, |cell| cell.number).is_ok();
    let mut parts = Vec::new();
    for sweep in &campaign.sweeps {
        let messages = |cell: &CellPlan| cell.messages() as f64 * cell.runs() as f64;
        let messages: f64 = sweep.cells.iter().filter(is_left).map(messages).sum();
        parts.push((sweep.name.clone(), message.mul_f64(messages / threads)));
    }
    parts.push(("the network".to_owned(), over_the_network(campaign, &left.network)?));
    parts.retain(|(_, time)| !time.is_zero());
    parts.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    let runs = left.cells.iter().map(|cell| cell.runs()).sum();
    Ok(Cost { cells: left.cells.len() as u64, runs, parts })
}

/// The time that one message takes, over cells from all over the campaign.
fn measure(campaign: &Campaign, cells: &[&CellPlan]) -> Result<Duration, FileError> {
    let never = AtomicBool::new(false);
    let begin = Instant::now();
    let (mut time, mut messages) = (Duration::ZERO, 0_u64);
    let sample: Vec<&CellPlan> =
        cells.iter().copied().step_by(cells.len().div_ceil(SAMPLES).max(1)).collect();
    let templates = sample.iter().map(|cell| campaign.template(cell)).collect::<Result<Vec<_>, _>>()?;
    // Round after round, since the first runs of a program are slower than the rest.
    for round in 0.. {
        for (cell, template) in sample.iter().zip(&templates) {
            let first = cell.seeds.start + round % cell.runs();
            let seeds = first..(first + SAMPLE_RUNS).min(cell.seeds.end);
            messages += cell.messages() * (seeds.end - seeds.start);
            let start = Instant::now();
            count(template, seeds, &never)?;
            time += start.elapsed();
        }
        if begin.elapsed() > MEASURE || sample.is_empty() {
            break;
        }
    }
    Ok(time.div_f64(messages.max(1) as f64))
}

/// The time that a sample takes.
fn over_the_network(campaign: &Campaign, sample: &[(&CellPlan, u64)]) -> Result<Duration, FileError> {
    if sample.is_empty() {
        return Ok(Duration::ZERO);
    }
    let (mut working, mut waiting, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for (cell, seed) in sample {
        let scenario = campaign.template(cell)?.with_seed(*seed)?;
        let last = sim::run(&scenario.plan()).history.last().map_or(Time::ZERO, |recorded| recorded.at);
        let wait = last.since(Time::ZERO);
        waiting += wait;
        longest = longest.max(wait);
        working += NETWORK_MESSAGE.mul_f64(cell.messages() as f64);
    }
    let at_a_time = u32::try_from(AT_A_TIME).unwrap_or(u32::MAX);
    Ok(NETWORK_SETUP + working + (waiting / at_a_time).max(longest))
}
