//! The server as a process of its own, and its memory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::serve::{COORDINATOR, ServerProcess};

/// The principal with the observer role.
pub(super) const OBSERVER: &str = "observer";

/// The path of the server's program.
pub(super) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let program = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe()?.with_file_name("stickycas-server"),
    };
    if !program.exists() {
        bail!("{} is missing: cargo build --release -p stickycas-server", program.display());
    }
    Ok(program)
}

/// Its command line: room for this many instances, and no limit that would stop the measurement.
pub(super) fn arguments(instances: &str) -> Vec<String> {
    let arguments = [
        ["serve", "--in-memory", "--insecure-principals"].as_slice(),
        &["--listen", "127.0.0.1:0", "--log", "error"],
        &["--coordinator", COORDINATOR, "--observer", OBSERVER],
        &["--retention", "1h", "--idle-lifetime", "1h"],
        &["--instances", instances, "--instances-per-creator", instances],
        &["--live-instances", instances, "--live-instances-per-creator", instances],
        // All of them are created before the first is played.
        &["--instances-when-busy", instances],
        &["--requests-per-second", "100000000", "--instance-memory", "1048576"],
    ];
    arguments.concat().into_iter().map(str::to_owned).collect()
}

/// Starts it on a free port, with room for this many instances.
pub(super) fn start(program: &Path, instances: usize) -> anyhow::Result<ServerProcess> {
    let mut command = Command::new(program);
    command.args(arguments(&instances.to_string()));
    ServerProcess::start(command, |line| Some(format!("http://{}", line.strip_prefix("listening on ")?)))
}

/// The memory of a process.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Memory {
    pub(super) rss_bytes: u64,
    pub(super) pss_bytes: u64,
}

/// The memory of this process once it no longer changes: freed memory returns to the system with a delay.
pub(super) async fn memory(pid: u32) -> anyhow::Result<Memory> {
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
    let row = |name: &str| -> anyhow::Result<u64> {
        let row = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = row
            .and_then(|row| row.split_whitespace().next())
            .with_context(|| format!("no {name} in {path}"))?;
        Ok(kib.parse::<u64>()? * 1024)
    };
    Ok(Memory { rss_bytes: row("Rss:")?, pss_bytes: row("Pss:")? })
}

/// Raises the limit of open files of this process, and so of the servers that it starts: each connection is one file
/// at either end.
pub(super) fn allow_files(wanted: usize) -> anyhow::Result<()> {
    let allowed = stickycas_server::allow_all_files();
    let needed = wanted as u64 + 256;
    if allowed < needed {
        bail!("{needed} open files are needed and {allowed} may be: raise the hard limit (ulimit -Hn)");
    }
    Ok(())
}
