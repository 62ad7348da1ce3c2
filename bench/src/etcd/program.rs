//! etcd as a program: found, started, stopped.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::wire::RangeRequest;
use super::wire::kv_client::KvClient;

/// How long it may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Between two attempts to reach it.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Ports are chosen by the kernel, let go of, and then taken by etcd; in between somebody else may have taken them.
const ATTEMPTS: usize = 5;

/// Where it is, and what it can do.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// As it calls itself.
    pub(crate) version: String,
    /// Whether it can be told not to sync to the disk. The flag is there since 3.5, and in later releases of 3.4, whose
    /// help says nothing of it.
    pub(crate) can_leave_fsync: bool,
    /// The directory below which its data lie.
    disk: PathBuf,
    /// The program that kills it when this one is killed, on Linux.
    setpriv: Option<PathBuf>,
}

impl Program {
    /// Looks for it in `PATH`, or takes the one named. `Ok(None)`: there is none, and none was named.
    ///
    /// # Errors
    ///
    /// The one named, or the one found, does not tell its version.
    pub(crate) fn find(named: Option<&Path>, disk: &Path) -> anyhow::Result<Option<Self>> {
        let Some(path) = named.map(Path::to_owned).or_else(|| in_path("etcd")) else { return Ok(None) };
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .with_context(|| format!("{} does not start", path.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        let version = version.with_context(|| format!("{} tells no version", path.display()))?.to_owned();
        // It looks at its flags before it shows its version.
        let flag = Command::new(&path).args(["--unsafe-no-fsync", "--version"]).output()?;
        let setpriv = in_path("setpriv");
        let can_leave_fsync = flag.status.success();
        Ok(Some(Self { path, version, can_leave_fsync, disk: disk.to_owned(), setpriv }))
    }

    /// Starts one with nothing in it, and waits until it answers.
    pub(crate) async fn start(&self, fsync: bool) -> anyhow::Result<Etcd> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut etcd = self.spawn(fsync)?;
            match etcd.ready().await {
                Ok(()) => return Ok(etcd),
                Err(error) => last = Some(error.context(etcd.said())),
            }
        }
        Err(last.context("etcd was not started")?)
    }

    fn spawn(&self, fsync: bool) -> anyhow::Result<Etcd> {
        let directory = tempfile::Builder::new().prefix("stickycas-bench-etcd-").tempdir_in(&self.disk)?;
        // Both are held until both are known, or they could be the same.
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
        // What the caller's environment says of etcd says nothing of this one.
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

/// One that runs. It is killed when this is dropped, and its data are gone.
pub(crate) struct Etcd {
    /// Where its clients reach it.
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

    /// The end of what it wrote.
    fn said(&self) -> String {
        let log = fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(5)..].join("\n");
        format!("etcd said: {}", if end.is_empty() { "nothing" } else { &end })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// The program of this name in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}
