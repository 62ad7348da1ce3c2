//! A campaign from its beginning, or from where it was interrupted, to its results.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::bail;
use stickycas_harness::exit::UsageError;
use stickycas_harness::progress::WorkProgress;

use super::cell::Results;
use super::journal::{self, CampaignSource, Journal};
use super::plan::{Campaign, CellPlan};
use super::remaining::Remaining;
use super::{cost, engine, network, results};

/// How to run a campaign.
#[derive(Clone, Copy, Debug)]
pub struct CampaignOptions {
    /// Threads.
    pub jobs: NonZeroUsize,
    /// How long it may take; `None`: as long as it takes.
    pub budget: Option<Duration>,
    /// How many of its runs are made over the network as well.
    pub network: u64,
    /// Show no progress.
    pub quiet: bool,
}

/// Runs the rest of a campaign, with its journal in a folder. The work that the journal has of the same
/// campaign is not done again. If it is told to stop, the results are not complete, and the same call goes on
/// from there.
///
/// # Errors
/// If it does not fit its budget, the folder cannot be used, or a run cannot be made.
pub fn run(
    source: &CampaignSource,
    folder: &Path,
    options: &CampaignOptions,
    stop: &AtomicBool,
    mut tell: impl FnMut(&str),
) -> anyhow::Result<CampaignRun> {
    let campaign = source.campaign()?;
    let completed = journal::completed(folder, source)?;
    let left = Remaining::of(&campaign, &completed, options.network);
    tell(&left.to_string());
    if let Some(budget) = options.budget
        && let Some(refusal) = cost::estimate(&campaign, &left, options.jobs)?.refusal(budget, options.jobs)
    {
        bail!(UsageError(refusal));
    }
    let mut journal = Journal::open(folder, source)?;
    let complete = simulate(&campaign, &left.cells, options, stop, &mut journal)?
        && network::run(&campaign, &left.network, stop, |sampled| journal.network(sampled))?;
    journal.flush()?;
    let results = results::results(source, &campaign, journal.completed());
    Ok(CampaignRun { results, complete })
}

fn simulate(
    campaign: &Campaign,
    cells: &[&CellPlan],
    options: &CampaignOptions,
    stop: &AtomicBool,
    journal: &mut Journal,
) -> anyhow::Result<bool> {
    // Counted in messages, as the cost of a run is.
    let all = cells.iter().map(|cell| cell.messages() * cell.runs()).sum();
    let shown = WorkProgress::even(all, options.quiet);
    let (mut messages, mut runs_done, mut cells_done) = (0, 0, 0);
    engine::run(campaign, cells, options.jobs, stop, |cell, runs, counts| {
        runs_done += runs;
        messages += runs * cell.messages();
        let text = || format!("{cells_done}/{} cells  {:.0} runs/s", cells.len(), shown.rate(runs_done));
        shown.show(messages, text);
        let Some(counts) = counts else { return Ok(()) };
        cells_done += 1;
        journal.cell(cell.number, counts)
    })
}

/// A campaign that was run.
#[derive(Clone, Debug)]
pub struct CampaignRun {
    /// The results so far.
    pub results: Results,
    /// Whether all of it is done.
    pub complete: bool,
}
