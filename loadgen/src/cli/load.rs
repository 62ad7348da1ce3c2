//! `load`: many instances at once, timed and judged.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use clap::Args;
use stickycas_harness::exit::{Exit, UsageError};
use stickycas_harness::host::open_files;
use stickycas_harness::report::json;
use stickycas_harness::run::{COORDINATOR, Identities, OwnServer, ServerHandle};
use stickycas_load::engine::CutShort;
use stickycas_load::limit::{self, LimitProgress, LimitRequest, Probe, ProbeResult};
use stickycas_load::merge::read_result;
use stickycas_load::profile::Flags;
use stickycas_load::report::{self as report, folder, table};
use stickycas_load::{LoadResult, Measurement, Profile};
use stickycas_server::limits::Limits;
use tokio::runtime::Runtime;

use super::live::{Live, LiveArgs};
use super::output::{log_to_stderr, show_result, tell};
use super::scenario::{check_free, repeat};
use super::{runtime, with_cure};

/// How long a server of our own keeps finished instances: as long as a history may take to be collected.
const RETENTION: Duration = Duration::from_secs(2);

/// Open files beside those of connections.
const OTHER_FILES: u64 = 64;

/// Instances per second that a search without a profile begins with.
const FIRST_RATE: &str = "100";

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
    #[arg(long, alias = "principal", value_name = "NAME", default_value = COORDINATOR)]
    coordinator: String,
    /// With --server: a folder with a folder of credentials for each principal, of its name: load-1-1, ...,
    /// and that of --coordinator; or with the tokens of all of them (tokens, ca.crt). The server's address
    /// begins with https:// then. With certificates each principal has a connection of its own; with tokens
    /// they can share them
    #[arg(long, value_name = "DIR", env = "STICKYCAS_RUN_CREDENTIALS", requires = "server")]
    credentials: Option<PathBuf>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Where the result folder goes; it must not exist [default: runs/NAME-SEED]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with this result.json, or result folder: a figure that is worse fails the run
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// With --baseline: differences up to this share are noise
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, value_parser = number)]
    noise: f64,
    /// Begin at this time: RFC 3339, such as 2030-01-31T12:00:00Z, or so long from now on, such as +10s. So
    /// generators on several machines begin together
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true, conflicts_with = "conditions")]
    start_at: Option<SystemTime>,
    #[command(flatten)]
    live: LiveArgs,
    #[command(flatten)]
    limit: LimitRequest,
    #[command(flatten)]
    flags: Flags,
}

const AFTER_HELP: &str = "\
A load fails if more than 1 % of its instances failed or were refused (--max-errors), and an open one if more than \
1 % of its starts were late or dropped (--max-missed). An interrupt ends it early and shows what there is.";

pub(super) fn run(args: &LoadArgs) -> anyhow::Result<Exit> {
    let mut flags = args.flags.clone();
    if args.is_search() && args.profile.is_none() && !flags.has("rate") {
        flags.put("rate", FIRST_RATE);
    }
    let profile = Profile::load(args.profile.as_deref(), &flags)?;
    if args.is_search() && profile.arrivals().is_none() {
        let reason = "--find-limit needs an open loop: give --rate, or rate = ... in the profile";
        return Err(UsageError(reason.to_owned()).into());
    }
    if !(args.limit.precision > 0.0 && args.limit.precision < 1.0 && args.noise >= 0.0) {
        return Err(UsageError("--precision and --noise are shares: give more than 0".to_owned()).into());
    }
    if args.json && args.live.is_on_stdout() {
        let reason = "--json and --json-lines - both go to standard output: give --json-lines FILE";
        return Err(UsageError(reason.to_owned()).into());
    }
    check_free(args.out.as_deref())?;
    check_open_files(&profile, args.server.is_none())?;
    let baseline = args.baseline.as_deref().map(read_result).transpose()?;
    tell(&format!("seed {}", profile.seed));
    log_to_stderr();
    let runtime = runtime()?;
    if args.is_search() {
        return search(args, &profile, &runtime);
    }
    let live = runtime.block_on(Live::begin(&args.live))?;
    let put_on = async |handle: &ServerHandle| live.put_on(handle, &profile, args.start_at).await;
    let loaded = runtime.block_on(on_some_server(args, put_on))?;
    live.end()?;
    drop(runtime);
    let mut measured = Measurement::of(&profile, loaded, args.server.clone());
    if let Some(baseline) = &baseline {
        measured.result.compare(baseline, args.noise);
    }
    let written = folder::write(&measured, args.out.as_deref());
    let shown = Shown { json: args.json, is_stdout_taken: args.live.is_on_stdout() };
    let exit = finish(&measured.result, shown, written)?;
    if !exit.is_done() {
        tell(&repeat(profile.seed));
    }
    Ok(exit)
}

/// Whether this process may have as many connections as the profile asks for: better said at once than by a
/// server that cannot accept them.
fn check_open_files(profile: &Profile, own_server: bool) -> anyhow::Result<()> {
    let Some(most) = open_files() else { return Ok(()) };
    // A server of our own has the other end of each.
    let needed = profile.connections() * if own_server { 2 } else { 1 } + OTHER_FILES;
    if needed > most {
        bail!(
            "{} connections need {needed} open files, and this process may have {most}: raise that with ulimit -n \
             {needed}, or let principals share connections with --principals-per-connection",
            profile.connections()
        );
    }
    Ok(())
}

/// Does something with the server that was named, or with one of our own.
async fn on_some_server<T>(
    args: &LoadArgs,
    act: impl AsyncFnOnce(&ServerHandle) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    if let Some(url) = &args.server {
        let identities = args.credentials.as_deref().map(Identities::read).transpose()?.unwrap_or_default();
        let handle = ServerHandle::open_with(url, &args.coordinator, identities)
            .await
            .map_err(|error| with_cure(error, &args.coordinator, " --retention 3s"))?;
        return act(&handle).await;
    }
    let limits = Limits { retention: RETENTION, instances_per_creator: usize::MAX, ..Limits::default() };
    let server = OwnServer::start_with(limits).await?;
    let handle = server.connect().await?;
    let done = act(&handle).await;
    drop(handle);
    server.stop().await?;
    done
}

/// Searches for the limit.
fn search(args: &LoadArgs, profile: &Profile, runtime: &Runtime) -> anyhow::Result<Exit> {
    let live = runtime.block_on(Live::begin(&args.live))?;
    let first = profile.duration.unwrap_or_default();
    tell(&report::limit::estimate(LimitProgress::before(profile, &args.limit), first));
    let (begin, mut probes) = (Instant::now(), 0);
    let found = runtime.block_on(on_some_server(args, async |handle| {
        let probe = async |profile: Profile| {
            let loaded = live.put_on(handle, &profile, None).await?;
            let (figures, judged) = (loaded.figures.clone(), loaded.judged.clone());
            let interrupted = loaded.cut_short == Some(CutShort::Interrupted);
            if judged.violation > 0 {
                let written = folder::write(&Measurement::of(&profile, loaded, args.server.clone()), None)?;
                tell(&format!("a violation; what there is of it: {}", written.display()));
            }
            Ok((!interrupted).then_some(ProbeResult { figures, judged }))
        };
        let look = |probe: &Probe, at: LimitProgress| {
            probes += 1;
            tell(&report::limit::line(probe));
            tell(&report::limit::progress(at, begin.elapsed() / probes));
        };
        limit::find(profile, &args.limit, probe, look).await
    }))?;
    live.end()?;
    let written = folder::write_limit(&found, &profile.name, args.out.as_deref());
    let shown = Shown { json: args.json, is_stdout_taken: args.live.is_on_stdout() };
    shown.show(&report::limit::text(&found), || json::text(&found))?;
    tell(&format!("result folder: {}", written.context("cannot write the result folder")?.display()));
    Ok(match Exit::of(found.verdict, None) {
        Exit::Done if found.interrupted => Exit::NotDone,
        Exit::Done if found.rate.is_none() => Exit::Failed,
        Exit::Done if !found.is_settled() => Exit::Unknown,
        exit => exit,
    })
}

fn number(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number such as 0.1".to_owned())
}

impl LoadArgs {
    fn is_search(&self) -> bool {
        !self.limit.conditions.is_empty()
    }
}

/// How a result is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    /// As JSON on standard output.
    pub(super) json: bool,
    /// Whether standard output has something else.
    pub(super) is_stdout_taken: bool,
}

impl Shown {
    fn show(self, report: &str, json: impl FnOnce() -> String) -> anyhow::Result<()> {
        if self.is_stdout_taken {
            tell(report);
            return Ok(());
        }
        show_result(report, self.json.then(json))
    }
}

/// A time as RFC 3339, or as so long from now on.
fn parse_time(text: &str) -> Result<SystemTime, String> {
    let time = match text.strip_prefix('+') {
        Some(wait) => stickycas_program::parse_duration(wait).ok().map(|wait| SystemTime::now() + wait),
        None => humantime::parse_rfc3339_weak(text).ok(),
    };
    let time = time.ok_or("give a time such as 2030-01-31T12:00:00Z, or +10s")?;
    if time < SystemTime::now() {
        return Err("this time has passed: give a later one, or +10s".to_owned());
    }
    Ok(time)
}

/// Shows a result that was written down, and makes an exit code of it.
pub(super) fn finish(
    result: &LoadResult,
    shown: Shown,
    written: io::Result<PathBuf>,
) -> anyhow::Result<Exit> {
    shown.show(&table::coloured(result), || json::text(result))?;
    // After the report, so that a full disk does not hide it.
    let folder = written.context("cannot write the result folder")?;
    tell(&format!("result folder: {}", folder.display()));
    Ok(result.exit())
}
