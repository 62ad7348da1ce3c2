//! `explain`: what a run folder shows and why, for people.

use std::path::PathBuf;

use clap::Args;
use stickycas_harness::command_line::word_of;
use stickycas_harness::exit::Exit;
use stickycas_harness::explain::{ROWS, text};
use stickycas_harness::replay::replay;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::report::json;

use super::output::{show, tell};
use super::scenario::run_folder;

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest
    #[arg(value_name = "RUN_FOLDER")]
    folder: PathBuf,
    /// Print the explanation as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Explains. Done whatever the verdict: the run is not judged by whether it can be explained.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    let place = run_folder(&args.folder);
    let folder = Folder::read(&place)?;
    let record = folder.judged_again();
    let explanation = record.explained();
    if args.json {
        show(&json::text(&explanation))?;
    } else {
        show(&text(&record, &explanation, ROWS))?;
    }
    if !replay(&folder).same {
        let place = place.display().to_string();
        let place = word_of(&place);
        tell(&format!(
            "this folder does not follow from its own inputs: what is said here rests on its history and reports as \
             they stand; see stickycas-loadgen replay {place}"
        ));
    }
    Ok(Exit::Done)
}
