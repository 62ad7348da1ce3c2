//! Servers and members of etcd as processes: one server that is killed and started again on the same folder
//! and port, and a cluster over etcd.

mod clocks;
#[cfg(feature = "cluster")]
mod cluster;
mod lateness;
#[cfg(feature = "cluster")]
mod network;

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use stickycas_client::{Client, RetryPolicy};
use tokio::process::{Child, Command};
use tokio::time::Instant;

pub(crate) use self::clocks::ClockOffset;
#[cfg(feature = "cluster")]
pub(crate) use self::cluster::{ClusterProcesses, check_network, find_etcd};
use self::lateness::Lateness;
use super::{CREATOR, Server};

/// The program of the server.
#[derive(Clone, Debug)]
pub struct ServerProgram {
    /// The program.
    pub program: PathBuf,
    /// The arguments before `serve`.
    pub arguments: Vec<OsString>,
}

/// A server as a process, that runs or has been killed with SIGKILL.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    program: ServerProgram,
    port: u16,
    folder: PathBuf,
    rejoin: Duration,
    /// Its clocks, from its next start on.
    clocks: ClockOffset,
    process: Process,
    probe: Client,
    lateness: Lateness,
}

/// Ports that no system gives to outgoing connections. With one that it does, a client that tries again and
/// again to reach the server that is away may be connected to itself.
const PORTS: Range<u16> = 12_000..32_000;
/// The longest time until a program that was killed is gone.
const LONGEST_END: Duration = Duration::from_secs(30);

impl ServerProcess {
    /// A server in this folder, not started yet. `draw`: where the search for a free port begins.
    pub(crate) fn new(
        program: &ServerProgram,
        folder: &Path,
        rejoin: Duration,
        draw: u64,
    ) -> anyhow::Result<Self> {
        let port = free_port(draw, &[])?;
        let at_once = RetryPolicy { give_up_after: Duration::ZERO, ..RetryPolicy::default() };
        let probe = Client::builder(format!("http://127.0.0.1:{port}")).principal(CREATOR).retry(at_once);
        Ok(Self {
            program: program.clone(),
            port,
            folder: folder.to_owned(),
            rejoin,
            clocks: ClockOffset::default(),
            process: Process::new("server".to_owned(), folder),
            probe: probe.connect_lazy()?,
            lateness: Lateness::measure().context("there is no thread that measures")?,
        })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Server for ServerProcess {
    fn set_clocks_ahead(&mut self, ahead: Duration) -> anyhow::Result<()> {
        self.clocks = ClockOffset::new(ahead);
        Ok(())
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let mut command = self.clocks.command(&self.program.program);
        command
            .args(&self.program.arguments)
            .args(["serve", "--insecure-principals", "--coordinator", CREATOR, "--log", "error"])
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--rejoin", &humantime::format_duration(self.rejoin).to_string()])
            .arg("--data")
            .arg(self.folder.join("data"));
        self.process.start(command)
    }

    fn probe(&self) -> Client {
        self.probe.clone()
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        self.process.check_alive()?;
        self.process.kill().await
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        self.process.check_alive()
    }

    fn starts(&self) -> u32 {
        self.process.starts
    }

    fn lateness(&self, time: &Range<std::time::Instant>) -> Duration {
        self.lateness.within(time)
    }
}

/// A program that is started, killed and started again, with a log for each start. It is killed when this is
/// dropped, and gone then: until then it may still write into the folder of its round, which is removed.
#[derive(Debug)]
struct Process {
    name: String,
    folder: PathBuf,
    child: Option<Child>,
    starts: u32,
}

impl Process {
    fn new(name: String, folder: &Path) -> Self {
        Self { name, folder: folder.to_owned(), child: None, starts: 0 }
    }

    fn start(&mut self, mut command: Command) -> anyhow::Result<()> {
        self.starts += 1;
        let log =
            File::create(self.log()).with_context(|| format!("cannot write the log of {}", self.name))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let child = command.spawn();
        let program = || format!("cannot start {}", command.as_std().get_program().display());
        self.child = Some(child.with_context(program)?);
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.folder.join(format!("{}-{}.log", self.name, self.starts))
    }

    fn take(&mut self) -> anyhow::Result<Child> {
        self.child.take().with_context(|| format!("{} does not run", self.name))
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.take()?;
        child.kill().await.with_context(|| format!("{} cannot be killed", self.name))
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else { bail!("{} does not run", self.name) };
        if let Some(status) = child.try_wait().context("a server cannot be waited for")? {
            let (name, last) = (&self.name, self.last_words());
            bail!("{name} ended by itself ({status}), and said at last: {last}");
        }
        Ok(())
    }

    /// The last lines of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // Fails if it has ended by itself.
        let _ = child.start_kill();
        let deadline = Instant::now() + LONGEST_END;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A port on which nobody listens, and that is not among these.
fn free_port(draw: u64, taken: &[u16]) -> anyhow::Result<u16> {
    let all = u64::from(PORTS.end - PORTS.start);
    let from = draw.wrapping_mul(7).wrapping_add(u64::from(std::process::id()) * 61) % all;
    let ports = (0..all).filter_map(|step| u16::try_from((from + step) % all).ok());
    let mut ports = ports.map(|offset| PORTS.start + offset).filter(|port| !taken.contains(port));
    let free = ports.find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    free.context("no port is free")
}
