//! The program etcd: finds, starts and stops it. Its ports are chosen by the kernel, its data are in a
//! temporary directory, and it is killed in any case.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tempfile::TempDir;

use super::lasting_thread;
use crate::etcd::{Client, Config, Tls};
use crate::store::{KeyRange, Store as _, StoreError};

/// The time within which it has to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// The time between two attempts to reach it.
const TRY_EVERY: Duration = Duration::from_millis(20);
/// Attempts to start it: the kernel chooses ports, which are closed before etcd opens them, and another
/// program may be faster.
const ATTEMPTS: usize = 5;
/// etcd's own ports, for its clients and for its members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// The path of etcd, and its abilities.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    /// The version that it prints.
    pub version: String,
    /// Whether it has `--unsafe-no-fsync`: since 3.5, and undocumented in later releases of 3.4.
    pub can_leave_fsync: bool,
    /// The directory for its data.
    disk: PathBuf,
    /// The program that has it killed together with this one (Linux).
    setpriv: Option<PathBuf>,
}

/// The options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many members it has, at least 1.
    pub members: usize,
    /// Whether it waits for the disk.
    pub fsync: bool,
    /// Bytes of the file of a member above which the cluster takes only what frees space.
    pub quota_bytes: Option<u64>,
    /// With TLS for its clients.
    pub tls: Option<ServerTls>,
    /// Where each member runs; none: all on 127.0.0.1, on ports that the kernel chooses.
    pub hosts: Vec<Host>,
}

/// Where a member runs: on etcd's own ports of an address that no other member has.
#[derive(Clone, Debug)]
pub struct Host {
    /// The address.
    pub address: IpAddr,
    /// The command before the program, so that it runs there. That process must become the program.
    pub command: Vec<OsString>,
}

/// TLS for clients, as PEM files.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// The certificate of all members, for 127.0.0.1.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients' certificates; with them every client needs one.
    pub client_authorities: Option<PathBuf>,
    /// How it is asked whether it is ready.
    pub client: Tls,
}

/// A running cluster. When this is dropped, its members are killed and its data are deleted.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    program: Program,
    options: Options,
    /// The value of `--initial-cluster`.
    cluster: String,
    directory: TempDir,
}

#[derive(Debug)]
struct Member {
    name: String,
    url: String,
    peer_url: String,
    /// The command before the program.
    command: Vec<OsString>,
    child: Option<Child>,
}

impl Default for Options {
    /// One member that waits for the disk, without a quota of its own and without TLS.
    fn default() -> Self {
        Self { members: 1, fsync: true, quota_bytes: None, tls: None, hosts: Vec::new() }
    }
}

impl Program {
    /// The named program, or the one in `PATH`. `Ok(None)`: neither exists. Its data will be in a directory
    /// of `disk`.
    ///
    /// # Errors
    ///
    /// The program does not print its version.
    pub fn find(named: Option<&Path>, disk: &Path) -> anyhow::Result<Option<Self>> {
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

    /// Starts an empty cluster, and waits until each member answers.
    ///
    /// # Errors
    ///
    /// It does not start or answer: with the end of its log.
    pub async fn start(&self, options: &Options) -> anyhow::Result<Etcd> {
        ensure!(options.fsync || self.can_leave_fsync, "etcd {} cannot be told not to sync", self.version);
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mut etcd = self.prepare(options)?;
            for index in 0..options.members {
                etcd.spawn(index)?;
            }
            match etcd.all_ready().await {
                Ok(()) => return Ok(etcd),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("etcd was not started")?)
    }

    fn prepare(&self, options: &Options) -> anyhow::Result<Etcd> {
        let directory = tempfile::Builder::new().prefix("stickycas-etcd-").tempdir_in(&self.disk)?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        // All are open until all are known; otherwise two could be the same.
        let mut open = Vec::new();
        let mut members = Vec::new();
        for index in 0..options.members {
            let (url, peer_url, command) = if let Some(host) = options.hosts.get(index) {
                let address = |port| SocketAddr::new(host.address, port);
                (address(CLIENT_PORT), address(PEER_PORT), host.command.clone())
            } else {
                let (clients, peers) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
                let addresses = (clients.local_addr()?, peers.local_addr()?);
                open.push((clients, peers));
                (addresses.0, addresses.1, Vec::new())
            };
            members.push(Member {
                name: format!("member-{index}"),
                url: format!("{scheme}://{url}"),
                peer_url: format!("http://{peer_url}"),
                command,
                child: None,
            });
        }
        let cluster: Vec<String> =
            members.iter().map(|member| format!("{}={}", member.name, member.peer_url)).collect();
        let (program, options) = (self.clone(), options.clone());
        Ok(Etcd { members, program, options, cluster: cluster.join(","), directory })
    }

    /// etcd behind these words, so that it is killed together with this program if that is possible.
    fn command(&self, before: &[OsString]) -> Command {
        let killed = self.setpriv.iter().flat_map(|setpriv| {
            [setpriv.as_os_str(), "--pdeathsig".as_ref(), "KILL".as_ref(), "--".as_ref()]
        });
        let mut words = killed.chain(before.iter().map(OsString::as_os_str)).chain([self.path.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        // The environment may configure another etcd.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD")) {
            command.env_remove(name);
        }
        command
    }
}

impl Etcd {
    /// The addresses for its clients.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// How a client reaches it, except for its user.
    pub fn config(&self) -> Config {
        let tls = self.options.tls.as_ref().map(|tls| tls.client.clone());
        Config { tls, ..Config::new(self.urls()) }
    }

    /// The process id of a member; `None`: it was killed.
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.members[member].child.as_ref().map(Child::id)
    }

    /// Kills a member. Its data stay.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            // Fails if it has ended by itself.
            let _ended = child.kill();
            let _reaped = child.wait();
        }
    }

    /// A copy of the data of a member, which is restarted.
    ///
    /// # Errors
    ///
    /// The data cannot be copied, or the member does not start again.
    pub async fn saved(&mut self, member: usize) -> anyhow::Result<TempDir> {
        self.kill(member);
        let saved = tempfile::tempdir_in(self.directory.path())?;
        copy(&self.data(member), saved.path())?;
        self.restart(member).await?;
        Ok(saved)
    }

    /// Puts the data of a member back to this copy, and starts it again.
    ///
    /// # Errors
    ///
    /// The data cannot be copied, or the member does not start again.
    pub async fn put_back(&mut self, member: usize, saved: &TempDir) -> anyhow::Result<()> {
        self.kill(member);
        fs::remove_dir_all(self.data(member))?;
        copy(saved.path(), &self.data(member))?;
        self.restart(member).await
    }

    fn data(&self, member: usize) -> PathBuf {
        self.directory.path().join(&self.members[member].name)
    }

    /// Starts a member again that was killed, with its data and addresses, and waits until it answers: so a
    /// majority must live.
    ///
    /// # Errors
    ///
    /// It does not start or answer: with the end of its log.
    pub async fn restart(&mut self, member: usize) -> anyhow::Result<()> {
        self.kill(member);
        self.spawn(member)?;
        self.ready(member).await
    }

    fn spawn(&mut self, index: usize) -> anyhow::Result<()> {
        let Member { name, url, peer_url, command, .. } = &self.members[index];
        let mut command = self.program.command(command);
        command
            .args(["--name", name, "--logger", "zap", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.data(index))
            .args(["--listen-client-urls", url, "--advertise-client-urls", url])
            .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
            .args(["--initial-cluster", &self.cluster]);
        if !self.options.fsync {
            command.arg("--unsafe-no-fsync");
        }
        if let Some(bytes) = self.options.quota_bytes {
            command.args(["--quota-backend-bytes", &bytes.to_string()]);
        }
        if let Some(tls) = &self.options.tls {
            command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
            if let Some(authorities) = &tls.client_authorities {
                command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(authorities);
            }
        }
        let log = File::options().create(true).append(true).open(self.log(index))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = lasting_thread::spawn(command);
        self.members[index].child = Some(child.with_context(|| self.program.path.display().to_string())?);
        Ok(())
    }

    async fn all_ready(&mut self) -> anyhow::Result<()> {
        for index in 0..self.members.len() {
            self.ready(index).await?;
        }
        Ok(())
    }

    /// Waits until a member answers.
    async fn ready(&mut self, index: usize) -> anyhow::Result<()> {
        self.answers(index).await.with_context(|| self.log_tail(index))
    }

    async fn answers(&mut self, index: usize) -> anyhow::Result<()> {
        let until = Instant::now() + READY_WITHIN;
        let config = Config { endpoints: vec![self.members[index].url.clone()], ..self.config() };
        let client = Client::new(&config)?;
        loop {
            if let Some(child) = &mut self.members[index].child
                && let Some(status) = child.try_wait()?
            {
                bail!("it ended at once: {status}");
            }
            match client.range(KeyRange::one("nothing"), 1).await {
                // A member that wants a user is ready, too.
                Ok(_) | Err(StoreError::Refused(_)) => return Ok(()),
                Err(StoreError::NotDone(told)) if told.contains("user name is empty") => return Ok(()),
                Err(error) if Instant::now() >= until => bail!("it does not answer: {error}"),
                Err(_) => tokio::time::sleep(TRY_EVERY).await,
            }
        }
    }

    fn log(&self, index: usize) -> PathBuf {
        self.directory.path().join(format!("{}.log", self.members[index].name))
    }

    /// The end of the log of a member.
    fn log_tail(&self, index: usize) -> String {
        let log = fs::read_to_string(self.log(index)).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(5)..].join("\n");
        format!("etcd said: {}", if end.is_empty() { "nothing" } else { &end })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
    }
}

/// Copies what a folder holds into another one.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// The program with this name in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}
