//! `campaign`: many runs over the axes of a scenario, counted.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use stickycas_harness::command_line::{self, word_of};
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::report::folder;
use stickycas_harness::scenario::LARGEST_SEED;
use stickycas_lab::campaign::cell::Results;
use stickycas_lab::campaign::report as files;
use stickycas_lab::campaign::{self, Campaign, CampaignOptions, CampaignRun, CampaignSource};

use super::output::{show, show_result, tell};
use super::scenario::SettingArgs;
use super::{processors, stop_when_asked};

/// The arguments of `campaign`.
#[derive(Debug, Args)]
pub(super) struct CampaignArgs {
    /// The campaign file
    #[arg(value_name = "CAMPAIGN.toml")]
    file: PathBuf,
    /// Takes the place of the file's seed; without any, one is drawn
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=LARGEST_SEED))]
    seed: Option<u64>,
    #[command(flatten)]
    settings: SettingArgs,
    /// Where journal and results go; a campaign that was interrupted there goes on [default:
    /// runs/CAMPAIGN-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run this sweep alone; may be given several times
    #[arg(long, value_name = "SWEEP")]
    only: Vec<String>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Refuse to begin what takes longer, whatever the file says
    #[arg(long, value_name = "DURATION", value_parser = stickycas_program::parse_duration)]
    budget: Option<Duration>,
    /// Make so many of the runs over the network as well, and compare them, whatever the file says
    #[arg(long, value_name = "N")]
    network: Option<u64>,
    /// Run nothing: print this cell as a scenario file, for simulate and run
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["out", "jobs", "budget", "network"])]
    cell: Option<u64>,
    /// Print the results as JSON on standard output
    #[arg(long, conflicts_with = "cell")]
    json: bool,
}

pub(super) fn run(args: &CampaignArgs) -> anyhow::Result<Exit> {
    let (campaign, limits) = Campaign::load(&args.file, args.seed, &args.settings.settings()?)?;
    tell(&format!("seed {}", campaign.seed));
    let campaign = campaign.only(&args.only).map_err(UsageError)?;
    if let Some(number) = args.cell {
        return print_cell(&campaign, number);
    }
    let text = std::fs::read_to_string(&args.file).with_context(|| args.file.display().to_string())?;
    let file = args.file.display().to_string();
    let mut source = CampaignSource::new(file, text, campaign.seed, args.only.clone());
    source.set = args.settings.arguments();
    let out = args.out.clone().unwrap_or_else(|| default_out(&campaign, &args.only));
    let options = CampaignOptions {
        jobs: args.jobs.unwrap_or_else(processors),
        budget: args.budget.or(limits.budget),
        network: args.network.unwrap_or(limits.network),
        quiet: false,
    };
    let stop = stop_when_asked()?;
    let CampaignRun { results, complete } = campaign::run(&source, &out, &options, &stop, tell)?;
    files::write(&results, &out)?;
    finish(&results, args.json, &out)?;
    if !complete {
        // The seed may have been drawn, and the folder is named after it.
        let seed = results.seed;
        let place = out.display().to_string();
        tell(&format!(
            "interrupted: nothing that was done is lost; the same command with --seed {seed} goes on from here: {} \
             --out {}",
            command_line::again(seed, &[]),
            word_of(&place)
        ));
        return Ok(Exit::NotDone);
    }
    Ok(Exit::of(results.worst(), None))
}

fn print_cell(campaign: &Campaign, number: u64) -> anyhow::Result<Exit> {
    let cell = campaign.cells().find(|cell| cell.number == number);
    let last = campaign.cells().last().map_or(0, |cell| cell.number);
    let cell =
        cell.ok_or_else(|| UsageError(format!("there is no cell {number}: the last one is {last}")))?;
    show(&campaign.scenario(cell))?;
    Ok(Exit::Done)
}

fn default_out(campaign: &Campaign, only: &[String]) -> PathBuf {
    let sweeps: String = only.iter().map(|sweep| format!("-{sweep}")).collect();
    Path::new(folder::DEFAULT_PARENT).join(format!("{}{sweeps}-{}", campaign.name, campaign.seed))
}

/// Shows what was found and where it stands.
pub(super) fn finish(results: &Results, json: bool, out: &Path) -> anyhow::Result<()> {
    show_result(&files::table(results), json.then(|| files::json(results)))?;
    tell(&format!("results: {}", out.display()));
    Ok(())
}
