//! `load`: many instances at once, timed and judged.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use stickycas_server::limits::Limits;

use super::output::{log_to_stderr, show, tell};
use super::stop::asked_to_stop;
use crate::load::live::Live;
use crate::load::merge::read_result;
use crate::load::profile::Flags;
use crate::load::{self, LoadResult, Loaded, Measured, Profile};
use crate::report::json;
use crate::report::load::{folder, table};
use crate::run::{COORDINATOR, OwnServer, Site};

/// How long a server of our own keeps finished instances: as long as a history may take to be collected.
const RETENTION: Duration = Duration::from_secs(3);

/// The arguments of `load`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct LoadArgs {
    /// The profile; without one, a closed loop of small instances for ten seconds
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Put the load on this server; without it, on one started for the run in this process
    #[arg(long, value_name = "URL", env = "STICKYCAS_SERVER")]
    server: Option<String>,
    /// With --server: create instances as this principal
    #[arg(long, value_name = "NAME", default_value = COORDINATOR)]
    principal: String,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Where the result folder goes; it must not exist [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with this result.json, or result folder: what is worse fails the run
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// With --baseline: differences up to this share are noise
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    noise: f64,
    #[command(flatten)]
    flags: Flags,
}

const AFTER_HELP: &str = "\
Exit codes: 0 the verdict is valid or outside and no condition failed, 1 violation, 2 unknown, 3 the load could not be
put on or was interrupted, 4 a condition failed it. An interrupt ends it early and shows what there is.";

pub(super) fn run(args: &LoadArgs) -> anyhow::Result<u8> {
    let profile = Profile::load(args.profile.as_deref(), &args.flags)?;
    // Better now than when there is a result that has nowhere to go.
    if let Some(out) = &args.out
        && crate::report::folder::is_taken(out)
    {
        bail!("{} exists already: give another --out", out.display());
    }
    let baseline = args.baseline.as_deref().map(read_result).transpose()?;
    tell(&format!("seed {}", profile.seed));
    log_to_stderr();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
    let mut loaded = runtime.block_on(put_on_some_server(args, &profile))?;
    drop(runtime);
    let evidence = std::mem::take(&mut loaded.evidence);
    let mut measured = Measured::of(&profile, loaded, args.server.clone());
    if let Some(baseline) = &baseline {
        measured.result.compare(baseline, args.noise);
    }
    let written = folder::write(&measured, &evidence, args.server.as_deref(), args.out.as_deref());
    finish(&measured.result, args.json, written)
}

async fn put_on_some_server(args: &LoadArgs, profile: &Profile) -> anyhow::Result<Loaded> {
    if let Some(url) = &args.server {
        return put_on(url, &args.principal, profile).await;
    }
    let limits = Limits { retention: RETENTION, instances_per_creator: usize::MAX, ..Limits::default() };
    let server = OwnServer::start_with(limits).await?;
    let loaded = put_on(server.url(), COORDINATOR, profile).await;
    server.stop().await?;
    loaded
}

async fn put_on(url: &str, principal: &str, profile: &Profile) -> anyhow::Result<Loaded> {
    let site = Site::open(url, principal).await?;
    let live = Live::new(profile);
    let stop = async {
        // A signal that cannot be heard is no reason to stop.
        if asked_to_stop().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    load::run(&site, profile, stop, |progress| live.show(progress, tell)).await
}

/// Shows a result that was written down, and makes an exit code of it.
pub(super) fn finish(result: &LoadResult, json: bool, written: io::Result<PathBuf>) -> anyhow::Result<u8> {
    let report = table::coloured(result);
    if json {
        tell(&report);
        show(&json::text(result))?;
    } else {
        show(&report)?;
    }
    // After the report, so that a full disk does not hide it.
    let folder = written.context("cannot write the result folder")?;
    tell(&format!("result folder: {}", folder.display()));
    Ok(result.exit_code())
}
