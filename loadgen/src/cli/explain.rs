//! `explain`: the outcome of a run folder, or of each instance of a dump, and the reasons, for people.

use std::path::PathBuf;

use clap::Args;
use stickycas_harness::command_line::word_of;
use stickycas_harness::exit::Exit;
use stickycas_harness::explain::{ROWS, text};
use stickycas_harness::replay::replay;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::report::grid::width;
use stickycas_harness::report::json;

use super::dump::{InstanceArgs, each_instance};
use super::output::{show, tell};
use super::scenario::run_folder;

/// The arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest; or the file that
    /// `stickycas-server data dump` wrote
    #[arg(value_name = "RUN_FOLDER|DUMP")]
    path: PathBuf,
    #[command(flatten)]
    instances: InstanceArgs,
    /// Print the explanation as JSON on standard output; of a dump, a line for each instance
    #[arg(long)]
    json: bool,
}

/// Explains. Done whatever the verdict: the run is not judged by whether it can be explained.
pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<Exit> {
    if args.path.is_file() {
        return explain_dump(args);
    }
    args.instances.check_unused()?;
    let place = run_folder(&args.path);
    let folder = Folder::read(&place)?;
    let record = folder.judged_again();
    let explanation = record.explained();
    if args.json {
        show(&json::text(&explanation))?;
    } else {
        show(&text(&record, &explanation, ROWS, width()))?;
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

fn explain_dump(args: &ExplainArgs) -> anyhow::Result<Exit> {
    each_instance(&args.path, &args.instances, |instance| {
        let record = &instance.record;
        let explanation = record.explained();
        show(&if args.json { json::line(&explanation) } else { text(record, &explanation, ROWS, width()) })
    })?;
    Ok(Exit::Done)
}
