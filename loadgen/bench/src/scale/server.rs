//! The server as a process of its own, and its memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;

use crate::results;
use crate::serve::{COORDINATOR, ServerProcess};

/// The principal with the observer role.
pub(crate) const OBSERVER: &str = "observer";

/// Where a server with a log is, and where the results go.
#[derive(Debug, Args)]
pub(crate) struct DurableOptions {
    /// The directory for the log; by default that of temporary files.
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    /// The server's program; by default beside this one.
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Writes the raw results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl DurableOptions {
    /// The directory for the log.
    pub(crate) fn directory(&self) -> PathBuf {
        self.disk.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// The path of the server's program.
    pub(crate) fn program(&self) -> anyhow::Result<PathBuf> {
        find(self.server.as_deref())
    }

    /// Writes the results of the subcommand `measured`, if they are wanted.
    pub(crate) fn write(&self, measured: &str, findings: &impl Serialize) -> anyhow::Result<()> {
        let Some(path) = &self.json else { return Ok(()) };
        results::write(path, measured, &BTreeMap::new(), findings)
    }
}

/// The path of the server's program.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let program = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe()?.with_file_name("stickycas-server"),
    };
    if !program.exists() {
        bail!("{} is missing: cargo build --release -p stickycas-server", program.display());
    }
    Ok(program)
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Serving {
    /// The number of instances for which it has room.
    instances: String,
    retention: String,
    /// The folder of its log; `None`: it keeps everything in memory.
    log: Option<PathBuf>,
}

impl Serving {
    /// In memory, with a retention of an hour.
    pub(crate) fn in_memory(instances: &str) -> Self {
        Self { instances: instances.to_owned(), retention: "1h".to_owned(), log: None }
    }

    /// With its log in this folder.
    pub(crate) fn durable(instances: usize, retention: &str, log: &Path) -> Self {
        Self { instances: instances.to_string(), retention: retention.to_owned(), log: Some(log.to_owned()) }
    }

    /// Its command line, with no limit that would stop a measurement.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { instances, retention, log } = self;
        let log = log.as_ref().map(|log| log.display().to_string());
        let keeps = match &log {
            None => vec!["--in-memory"],
            Some(log) => {
                let room = ["--log-bytes", "1024TiB", "--log-bytes-per-creator", "1024TiB"];
                [["--data", log, "--http", "127.0.0.1:0"].as_slice(), &room].concat()
            }
        };
        let arguments = [
            ["serve", "--insecure-principals", "--listen", "127.0.0.1:0", "--log", "error"].as_slice(),
            &keeps,
            &["--coordinator", COORDINATOR, "--observer", OBSERVER],
            &["--retention", retention, "--idle-lifetime", "1h"],
            &["--instances", instances, "--instances-per-creator", instances],
            &["--live-instances", instances, "--live-instances-per-creator", instances],
            &["--requests-per-second", "100000000"],
            // In the worst case they would take far more than any machine has.
            &["--memory", "4TiB"],
        ];
        arguments.concat().into_iter().map(str::to_owned).collect()
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(self.arguments());
        command
    }
}

/// The URL in the line in which a server tells where it listens for clients.
fn url(line: &str) -> Option<String> {
    Some(format!("http://{}", line.strip_prefix("listening on ")?))
}

/// Starts a server in memory on a free port, with room for this many instances.
pub(crate) fn start(program: &Path, instances: usize) -> anyhow::Result<ServerProcess> {
    ServerProcess::start(Serving::in_memory(&instances.to_string()).command(program), url)
}

/// A server with a log. It may still recover.
pub(crate) struct DurableServer {
    pub(crate) process: ServerProcess,
    /// The address for operators.
    pub(crate) operators: String,
}

impl DurableServer {
    /// Starts it on free ports.
    pub(crate) fn start(program: &Path, serving: &Serving) -> anyhow::Result<Self> {
        let (mut clients, mut operators) = (None, None);
        let process = ServerProcess::start(serving.command(program), |line| {
            clients = clients.take().or_else(|| url(line));
            operators = line.strip_prefix("http on ").map(str::to_owned);
            operators.as_ref().and(clients.clone())
        })?;
        Ok(Self { process, operators: operators.context("no address for operators")? })
    }
}

/// The memory of a process at most since its start, and now, in bytes.
pub(crate) fn peak_and_resident(pid: u32) -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok((kib_row(&text, "VmHWM:")?, kib_row(&text, "VmRSS:")?))
}

/// Bytes in the row with this name, which has them in KiB.
fn kib_row(text: &str, name: &str) -> anyhow::Result<u64> {
    let row = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = row.and_then(|row| row.split_whitespace().next()).with_context(|| format!("no {name}"))?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// The memory of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) rss_bytes: u64,
    pub(crate) pss_bytes: u64,
}

/// The memory of this process once it no longer changes: freed memory returns to the system with a delay.
pub(crate) async fn memory(pid: u32) -> anyhow::Result<Memory> {
    const AGAIN: Duration = Duration::from_millis(500);
    let mut last = read_memory(pid)?;
    for _ in 0..20 {
        tokio::time::sleep(AGAIN).await;
        let next = read_memory(pid)?;
        if next.rss_bytes.abs_diff(last.rss_bytes) * 1_000 <= last.rss_bytes {
            return Ok(next);
        }
        last = next;
    }
    Ok(last)
}

fn read_memory(pid: u32) -> anyhow::Result<Memory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    Ok(Memory { rss_bytes: kib_row(&text, "Rss:")?, pss_bytes: kib_row(&text, "Pss:")? })
}

/// Raises the limit of open files of this process, and so of the servers that it starts: each connection is
/// one file at either end.
pub(crate) fn allow_files(wanted: usize) -> anyhow::Result<()> {
    let allowed = stickycas_server::allow_all_files();
    let needed = wanted as u64 + 256;
    if allowed < needed {
        bail!("{needed} open files are needed and {allowed} may be: raise the hard limit (ulimit -Hn)");
    }
    Ok(())
}
