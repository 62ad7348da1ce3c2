//! `replay`: whether a run folder, or each instance of a dump, follows from its own inputs.

use std::path::PathBuf;

use clap::Args;
use stickycas_harness::dump::DumpReplay;
use stickycas_harness::exit::Exit;
use stickycas_harness::replay::replay;
use stickycas_harness::report::folder::Folder;
use stickycas_harness::report::json;

use super::dump::{InstanceArgs, each_instance};
use super::output::{show, tell};
use super::scenario::run_folder;

/// The arguments of `replay`.
#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The folder that a run wrote, or a folder with several of them: then the newest; or the file that
    /// `stickycas-server data dump` wrote
    #[arg(value_name = "RUN_FOLDER|DUMP")]
    path: PathBuf,
    #[command(flatten)]
    instances: InstanceArgs,
    /// Print what was found as JSON on standard output; of a dump, a line for each instance
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ReplayArgs) -> anyhow::Result<Exit> {
    if args.path.is_file() {
        return replay_dump(args);
    }
    args.instances.check_unused()?;
    let folder = Folder::read(&run_folder(&args.path))?;
    let replayed = replay(&folder);
    show(&if args.json {
        json::text(&replayed)
    } else {
        format!("{replayed}verdict: {}\n", folder.judged_again().verdict.headline())
    })?;
    Ok(if replayed.same { Exit::Done } else { Exit::Failed })
}

/// Failed if one instance differs; unknown if none does and one could not be replayed, or there is none.
fn replay_dump(args: &ReplayArgs) -> anyhow::Result<Exit> {
    let (mut same, mut different, mut not_replayed) = (0_u64, 0_u64, 0_u64);
    each_instance(&args.path, &args.instances, |instance| {
        let replayed: DumpReplay = instance.replay();
        match replayed.same() {
            Some(true) => same += 1,
            Some(false) => different += 1,
            None => not_replayed += 1,
        }
        show(&if args.json { json::line(&replayed) } else { replayed.to_string() })
    })?;
    if (same, different, not_replayed) == (0, 0, 0) {
        tell(&format!("there is no instance in {}", args.path.display()));
    }
    Ok(match (same, different, not_replayed) {
        (1.., 0, 0) => Exit::Done,
        (_, 0, _) => Exit::Unknown,
        _ => Exit::Failed,
    })
}
