//! `report`: results made again: of a campaign from its journal, of several load generators as one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_lab::campaign::report as campaign;
use stickycas_lab::campaign::{journal, results};
use stickycas_load::merge::merge;
use stickycas_load::report::folder;

use super::campaign::finish;
use super::load;

/// The arguments of `report`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct ReportArgs {
    /// The folder of the campaign
    #[arg(value_name = "DIR", required = true)]
    folder: Option<PathBuf>,
    /// Print the results as JSON on standard output
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<ReportCommand>,
}

#[derive(Debug, Subcommand)]
enum ReportCommand {
    /// Make one result of those that several load generators left; exit code as for load
    Merge(MergeArgs),
}

#[derive(Debug, Args)]
struct MergeArgs {
    /// The result folders
    #[arg(value_name = "DIR", required = true)]
    folders: Vec<PathBuf>,
    /// Where the merged result folder goes; it must not exist [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReportArgs) -> anyhow::Result<Exit> {
    if let Some(ReportCommand::Merge(args)) = &args.command {
        let measured = merge(&args.folders)?;
        let written = folder::write(&measured, args.out.as_deref());
        let shown = load::Shown { json: args.json, ..load::Shown::default() };
        return load::finish(&measured.result, shown, written);
    }
    let folder =
        args.folder.as_ref().ok_or_else(|| UsageError("name the folder of the campaign".to_owned()))?;
    let (source, completed) = journal::read(folder)?;
    let results = results::results(&source, &source.campaign()?, &completed);
    campaign::write(&results, folder)?;
    finish(&results, args.json, folder)?;
    Ok(Exit::Done)
}
