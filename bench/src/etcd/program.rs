//! The program etcd: finds, starts and stops it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::wire::RangeRequest;
use super::wire::kv_client::KvClient;

/// The time within which it has to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The time between two attempts to reach it.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Attempts to start it: the kernel chooses ports, which are closed before etcd opens them, and another program may
/// be faster.
const ATTEMPTS: usize = 5;

/// The path of etcd, and its abilities.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// The version that it prints.
    pub(crate) version: String,
    /// Whether it has `--unsafe-no-fsync`: since 3.5, and undocumented in later releases of 3.4.
    pub(crate) can_leave_fsync: bool,
    /// The directory for its data.
    disk: PathBuf,
    /// The program that has it killed together with this one (Linux).
    setpriv: Option<PathBuf>,
}

impl Program {
    /// The named program, or the one in `PATH`. `Ok(None)`: neither exists.
    ///
    /// # Errors
    ///
    /// The program does not print its version.
    pub(crate) fn find(named: Option<&Path>, disk: &Path) -> anyhow::Result<Option<Self>> {
        let Some(path) = named.map(Path::to_owned).or_else(|| in_path("etcd")) else { return Ok(None) };
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .with_context(|| format!("{} does not start", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        let version = version.with_context(|| format!("{} tells no version", path.display()))?.to_owned();
        // It parses all flags before it prints its version.
        let flag = Command::new(&path).args(["--unsafe-no-fsync", "--version"]).output()?;
        let setpriv = in_path("setpriv");
        let can_leave_fsync = flag.status.success();
        Ok(Some(Self { path, version, can_leave_fsync, disk: disk.to_owned(), setpriv }))
    }

    /// Starts an empty etcd, and waits until it answers.
    pub(crate) async fn start(&self, fsync: bool) -> anyhow::Result<Etcd> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut etcd = self.spawn(fsync)?;
            match etcd.ready().await {
                Ok(()) => return Ok(etcd),
                Err(error) => last = Some(error.context(etcd.log_tail())),
            }
        }
        Err(last.context("etcd was not started")?)
    }

    fn spawn(&self, fsync: bool) -> anyhow::Result<Etcd> {
        let directory = tempfile::Builder::new().prefix("stickycas-bench-etcd-").tempdir_in(&self.disk)?;
        // Both are open until both are known; otherwise they could be the same.
        let (clients, peers) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let url = format!("http://{}", clients.local_addr()?);
        let peer_url = format!("http://{}", peers.local_addr()?);
        drop((clients, peers));
        let mut command = match &self.setpriv {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command
            .args(["--name", "bench", "--logger", "zap", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url])
            .args(["--initial-cluster", &format!("bench={peer_url}")]);
        if !fsync {
            ensure!(self.can_leave_fsync, "etcd {} cannot be told not to sync", self.version);
            command.arg("--unsafe-no-fsync");
        }
        // The environment may configure another etcd.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD")) {
            command.env_remove(name);
        }
        let log = File::create(directory.path().join("log"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| self.path.display().to_string())?;
        Ok(Etcd { url, child, directory })
    }
}

/// A running etcd. When this is dropped, it is killed and its data are deleted.
pub(crate) struct Etcd {
    /// The address for its clients.
    pub(crate) url: String,
    child: Child,
    directory: TempDir,
}

impl Etcd {
    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers.
    async fn ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended at once: {status}");
            }
            let request = RangeRequest { key: "nothing".into(), ..RangeRequest::default() };
            let answer = match KvClient::connect(self.url.clone()).await {
                Ok(mut client) => client.range(request).await.map(drop).map_err(anyhow::Error::from),
                Err(error) => Err(error.into()),
            };
            match answer {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= until => return Err(error.context("it does not answer")),
                Err(_) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    }

    /// The end of its log.
    fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(5)..].join("\n");
        format!("etcd said: {}", if end.is_empty() { "nothing" } else { &end })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The program with this name in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}
