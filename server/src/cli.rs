//! The command line of the server.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::data::Data;
use crate::limits::Limits;
use crate::{AuthMode, Config, PRINCIPAL_KEY, Stopped, run, telemetry};

const MIB: usize = 1024 * 1024;

/// The StickyCAS server: a write-once, totally ordered list guarded by a warp scheduler, over gRPC.
#[derive(Debug, Parser)]
#[command(name = "stickycas-server", version, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve until SIGTERM or SIGINT, then drain; a second signal ends it at once.
    ///
    /// It has failed if connections had to be cut off.
    #[command(after_help = EXIT_CODES)]
    Serve(Serve),
    /// Ask a server whether it serves; for probes.
    ///
    /// It has failed if the server answers that it does not serve.
    #[command(after_help = EXIT_CODES)]
    Health(Health),
    /// Check, dump, compact, back up or restore the log of a server.
    #[command(subcommand, after_help = EXIT_CODES)]
    Data(Data),
}

#[derive(Debug, Args)]
struct Serve {
    /// Address to listen on; port 0 takes a free one. The address is printed on standard output.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420", env = "STICKYCAS_LISTEN")]
    listen: SocketAddr,
    /// Believe the principal that a caller names in the metadata key `stickycas-principal`. Proves nothing.
    #[arg(long, required = true)]
    insecure_principals: bool,
    /// With --insecure-principals, allow listening on an address that other machines may reach.
    #[arg(long)]
    insecure_allow_remote: bool,
    /// Folder of the log, made if it does not exist: a server that is started again on it goes on where it was, however
    /// it ended. Without this, $STATE_DIRECTORY as systemd sets it, else $XDG_STATE_HOME/stickycas, else
    /// ~/.local/state/stickycas.
    #[arg(long, value_name = "DIR", env = "STICKYCAS_DATA", conflicts_with = "in_memory")]
    data: Option<PathBuf>,
    /// Keep no log: all instances are lost when the server stops.
    #[arg(long)]
    in_memory: bool,
    /// A principal that may create instances; without one no instance can be created. Repeat for several.
    #[arg(long = "coordinator", value_name = "NAME", env = "STICKYCAS_COORDINATORS", value_delimiter = ',')]
    coordinators: Vec<String>,
    /// A principal that may look at every instance. Repeat for several.
    #[arg(long = "observer", value_name = "NAME", env = "STICKYCAS_OBSERVERS", value_delimiter = ',')]
    observers: Vec<String>,
    /// How long connections have to end once the server is told to stop.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// How long a finished or closed instance can still be read.
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = humantime::parse_duration)]
    retention: Duration,
    /// How long an instance lives without a call.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = humantime::parse_duration)]
    idle_lifetime: Duration,
    /// How long no patience drains after a restart, unless all processes are back before.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    rejoin: Duration,
    /// Frames on Attach that one principal may send in a second; a unary call counts as ten.
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_per_second,
          value_parser = clap::value_parser!(u32).range(1..))]
    requests_per_second: u32,
    /// Connections that one principal may have open.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_per_principal,
          value_parser = clap::value_parser!(u32).range(1..))]
    connections_per_principal: u32,
    /// Instances that may be live: neither finished nor closed.
    #[arg(long, value_name = "N", default_value_t = Limits::default().live_instances)]
    live_instances: usize,
    /// Instances of one creator among them.
    #[arg(long, value_name = "N", default_value_t = Limits::default().live_instances_per_creator)]
    live_instances_per_creator: usize,
    /// Instances that the server may hold: those that are live and those that have ended and can still be read.
    #[arg(long, value_name = "N", default_value_t = Limits::default().instances)]
    instances: usize,
    /// Instances of one creator among them.
    #[arg(long, value_name = "N", default_value_t = Limits::default().instances_per_creator)]
    instances_per_creator: usize,
    /// Live instances that one creator may have while the server has no time to spare.
    #[arg(long, value_name = "N", default_value_t = Limits::default().instances_when_busy)]
    instances_when_busy: usize,
    /// MiB that all instances may take in the worst case, without their event logs.
    #[arg(long, value_name = "MIB", default_value_t = Limits::default().instance_bytes / MIB)]
    instance_memory: usize,
    /// MiB of events that all instances keep for watchers; above it the longest event logs drop their oldest events.
    #[arg(long = "record-memory", value_name = "MIB", default_value_t = Limits::default().event_bytes / MIB)]
    event_memory: usize,
    /// Threads that serve; one for each processor if not given. Fewer leave processors to others on the same machine.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Do not tell tools the service definitions (gRPC reflection).
    #[arg(long)]
    no_reflection: bool,
    /// What to log, on standard error: off, error, warn, info, debug, trace, or filters by module.
    #[arg(long, value_name = "FILTER", default_value = "info", env = "STICKYCAS_LOG")]
    log: String,
    /// Log as JSON, one object a line.
    #[arg(long)]
    log_json: bool,
}

#[derive(Debug, Args)]
struct Health {
    /// The server to ask.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7420", env = "STICKYCAS_SERVER")]
    server: String,
    /// How long it may take to answer.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

impl Cli {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let outcome = match self.command {
            Command::Serve(serve) => runtime(serve.workers).and_then(|runtime| runtime.block_on(serve.run())),
            Command::Health(health) => runtime(Some(1)).and_then(|runtime| runtime.block_on(health.run())),
            Command::Data(data) => {
                runtime(None).and_then(|runtime| runtime.block_on(data.run(default_data())))
            }
        };
        outcome.unwrap_or_else(|error| {
            print_error(&format!("error: {error:#}"));
            if error.is::<UsageError>() { USAGE } else { NOT_DONE }.into()
        })
    }
}

/// Exit code: flags are wrong.
const USAGE: u8 = 2;
/// Exit code: it was not possible.
const NOT_DONE: u8 = 3;

/// Exit code: the log could not be written any more. What the server had told is in it; a restart reads it.
const LOG_FAILED: u8 = 5;

const EXIT_CODES: &str = "\
Exit codes, the same in all three programs:
  0  done; of a run: its verdict is valid or outside
  1  failed: a promise or a condition was not kept, an instance ended without a decision
  2  wrong usage: flags or files
  3  refused, or not possible: it did not happen
  4  unknown: it may have happened; of a run: it proves nothing";

/// Flags are wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct UsageError(String);

/// A runtime of this number of threads, or of one for each processor.
fn runtime(workers: Option<u16>) -> anyhow::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers.into());
    }
    builder.enable_all().build().context("cannot start the threads that serve")
}

impl Serve {
    async fn run(self) -> anyhow::Result<ExitCode> {
        if !self.listen.ip().is_loopback() && !self.insecure_allow_remote {
            return Err(UsageError(format!(
                "{} can be reached from other machines, and any caller can name any principal: \
                 listen on a loopback address, or add --insecure-allow-remote",
                self.listen
            ))
            .into());
        }
        telemetry::init(&self.log, self.log_json).map_err(|error| UsageError(format!("--log: {error:#}")))?;
        let files = allow_all_files();
        if files < FILES_BESIDE_CONNECTIONS + Limits::default().connections as u64 {
            tracing::warn!(
                files,
                "fewer files may be open than connections: raise the hard limit (ulimit -Hn)"
            );
        }
        let data = self.data()?;
        if self.in_memory {
            tracing::info!("in memory: every instance is lost when the server stops");
        } else {
            tracing::info!(data = %data.display(), "the log is kept in this folder");
        }
        // Installed before the address is announced.
        let signals = Signals::install()?;
        let listener = TcpListener::bind(self.listen)
            .await
            .with_context(|| format!("cannot listen on {}", self.listen))?;
        let address = listener.local_addr().context("the listener has no address")?;
        tracing::warn!(
            "principals are not checked: a caller is the principal that it names in {PRINCIPAL_KEY}"
        );
        tracing::info!(%address, "serving");
        announce(address)?;

        let (first, second) = signals.split();
        let serving = run(listener, self.config(data), first);
        tokio::select! {
            stopped = serving => Ok(match stopped? {
                Stopped::Clean => ExitCode::SUCCESS,
                Stopped::Forced => ExitCode::FAILURE,
                Stopped::LogFailed => LOG_FAILED.into(),
            }),
            () = second => Ok(ExitCode::FAILURE),
        }
    }

    /// The folder of the log, should there be one.
    fn data(&self) -> anyhow::Result<PathBuf> {
        if self.in_memory {
            return Ok(PathBuf::new());
        }
        self.data.clone().or_else(default_data).ok_or_else(|| {
            UsageError(
                "there is no folder for the log: give one with --data DIR, or serve with --in-memory".into(),
            )
            .into()
        })
    }

    fn config(self, data: PathBuf) -> Config {
        let limits = Limits {
            retention: self.retention,
            idle_lifetime: self.idle_lifetime,
            rejoin: self.rejoin,
            requests_per_second: self.requests_per_second,
            connections_per_principal: self.connections_per_principal,
            live_instances: self.live_instances,
            live_instances_per_creator: self.live_instances_per_creator,
            instances: self.instances,
            instances_per_creator: self.instances_per_creator,
            instances_when_busy: self.instances_when_busy,
            instance_bytes: self.instance_memory.saturating_mul(MIB),
            event_bytes: self.event_memory.saturating_mul(MIB),
            ..Limits::default()
        };
        debug_assert!(self.insecure_principals, "the only way to identify callers is required by clap");
        Config {
            auth_mode: AuthMode::InsecurePrincipals,
            coordinators: BTreeSet::from_iter(self.coordinators),
            observers: BTreeSet::from_iter(self.observers),
            limits,
            drain: self.drain,
            data: (!self.in_memory).then_some(data),
            reflection: !self.no_reflection,
        }
    }
}

impl Health {
    async fn run(self) -> anyhow::Result<ExitCode> {
        let endpoint = Endpoint::from_shared(self.server.clone())
            .ok()
            .filter(|endpoint| endpoint.uri().scheme_str() == Some("http") && endpoint.uri().host().is_some())
            .ok_or_else(|| {
                UsageError(format!("--server {}: give a URL such as http://127.0.0.1:7420", self.server))
            })?;
        let check = async {
            let channel = endpoint.connect().await?;
            let response = HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
            anyhow::Ok(response.into_inner().status())
        };
        let status = tokio::time::timeout(self.timeout, check)
            .await
            .with_context(|| format!("{} did not answer in {:?}", self.server, self.timeout))??;
        let mut out = std::io::stdout();
        writeln!(out, "{}", status.as_str_name())?;
        Ok(if status == ServingStatus::Serving { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The folder of the log if none is given.
fn default_data() -> Option<PathBuf> {
    let folder =
        |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd gives several folders separated by colons; the first is ours.
    let state = std::env::var("STATE_DIRECTORY").ok();
    let state = state.and_then(|paths| paths.split(':').next().map(PathBuf::from));
    state.filter(|path| path.is_absolute()).or_else(|| {
        let home = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        Some(home?.join("stickycas"))
    })
}

/// Open files of a server that are no connections.
const FILES_BESIDE_CONNECTIONS: u64 = 64;

/// Raises the soft limit on open files to the hard limit, which is often far higher; returns the limit. Every
/// connection is a file.
#[must_use]
pub fn allow_all_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, the present one is returned.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Prints the address on standard output, for programs that start the server on port 0.
fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "listening on {address}")?;
    out.flush()
}

fn print_error(message: &str) {
    // Without standard error there is nowhere to write.
    let _ = writeln!(std::io::stderr(), "{message}");
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Two futures: one completes with the first signal, one with the second.
    fn split(mut self) -> (impl Future<Output = ()>, impl Future<Output = ()>) {
        let (first, first_received) = tokio::sync::oneshot::channel();
        let (second, second_received) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            self.next().await;
            tracing::info!("told to stop: draining; a second signal ends it at once");
            let _ = first.send(());
            self.next().await;
            let _ = second.send(());
        });
        let wait = |signal: tokio::sync::oneshot::Receiver<()>| async { signal.await.unwrap_or_default() };
        (wait(first_received), wait(second_received))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
