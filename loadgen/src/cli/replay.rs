//! `replay`: whether a run folder follows from its own inputs.

use std::path::PathBuf;

use clap::Args;
use stickycas_harness::exit::Exit;
use stickycas_harness::replay::replay;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::report::json;

use super::output::show;
use super::scenario::run_folder;

/// The arguments of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest
    #[arg(value_name = "RUN_FOLDER")]
    folder: PathBuf,
    /// Print what was found as JSON on standard output
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let replayed = replay(&Folder::read(&run_folder(&args.folder))?);
    show(&if args.json { json::text(&replayed) } else { replayed.to_string() })?;
    Ok(if replayed.same { Exit::Done } else { Exit::Failed })
}
