//! The servers that are measured: programs of their own, with a runtime of one worker each.
//!
//! StickyCAS is the program `stickycas-server`, beside this one or given by `--server`. Unless every bound is
//! to be as by default, those that would stop a measurement are lifted. What is [`crate::floor`] is served by
//! this program.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use stickycas_certificates::development::{DevelopmentCas, TokenIssuer};
use stickycas_client::Client;
use stickycas_client::raw::Connection;
use stickycas_harness::run::Identities;
use tempfile::TempDir;

use crate::metrics;

/// The principal that creates instances.
pub(crate) const COORDINATOR: &str = "coordinator";
/// The principal that creates the instances of attackers.
pub(crate) const HOST: &str = "host";
/// The trust domain of the callers of a server with TLS.
const TRUST_DOMAIN: &str = "stickycas";
const LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The time within which a server has to be ready, the recovery of a large log included.
const READY_WITHIN: Duration = Duration::from_secs(600);

/// A runtime with this many workers.
pub(crate) fn runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// The path of the server's program: this one, or the one beside this program.
pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let program = match given {
        Some(given) => given.to_owned(),
        None => std::env::current_exe()?.with_file_name("stickycas-server"),
    };
    ensure!(
        program.is_file(),
        "{} is missing: cargo build --profile image -p stickycas-server -p stickycas-bench, or --server FILE",
        program.display()
    );
    Ok(program)
}

/// On loopback, a port that is free.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How StickyCAS is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// The words before the program.
    pub(crate) before: Vec<OsString>,
    pub(crate) program: PathBuf,
    /// Whether it has one worker and the bounds are lifted; else everything is as by default.
    pub(crate) lifted: bool,
    /// How long it keeps finished instances, if the bounds are lifted.
    pub(crate) retention: &'static str,
    /// The folder of its log; `None`: it keeps everything in memory.
    pub(crate) log: Option<PathBuf>,
    /// The folder of the credentials of the server (`server`) and of its callers (`clients`); `None`: it
    /// believes names.
    pub(crate) credentials: Option<PathBuf>,
    /// Further options, divided by spaces.
    pub(crate) more: String,
}

impl Launch {
    /// In memory, with one worker and lifted bounds.
    pub(crate) fn new(program: &Path) -> Self {
        Self {
            before: Vec::new(),
            program: program.to_owned(),
            lifted: true,
            // So short that the server drops ended instances while others run.
            retention: "100ms",
            log: None,
            credentials: None,
            more: String::new(),
        }
    }

    /// With a log in this folder.
    pub(crate) fn durable(self, log: &Path) -> Self {
        Self { log: Some(log.to_owned()), ..self }
    }

    /// The command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        const MANY: u32 = 4_000_000;
        let mut all = format!(
            "serve --http {ANY_PORT} --log error --coordinator {COORDINATOR} --coordinator {HOST} {}",
            self.more
        );
        if !all.contains(" --listen ") {
            all += &format!(" --listen {ANY_PORT}");
        }
        if self.lifted {
            // In the worst case the instances would take far more than any machine has.
            all += &format!(
                " --workers 1 --instances {MANY} --instances-per-creator {MANY} --live-instances {MANY} \
                 --live-instances-per-creator {MANY} --connections 20000 --connections-per-principal 20000 \
                 --requests-per-second {MANY}00 --memory 4TiB --idle-lifetime 1h --retention {}",
                self.retention
            );
            if self.log.is_some() {
                all += " --log-bytes 1024TiB --log-bytes-per-creator 1024TiB";
            }
        }
        let mut all: Vec<String> = all.split_whitespace().map(str::to_owned).collect();
        let folder = |folder: &Path| folder.display().to_string();
        match &self.log {
            Some(log) => all.extend(["--data".to_owned(), folder(log)]),
            None if self.more.contains("--etcd ") => {}
            None => all.push("--in-memory".to_owned()),
        }
        match &self.credentials {
            Some(credentials) => all.extend([
                "--credentials".to_owned(),
                folder(&credentials.join("server")),
                format!("--trust-domain={TRUST_DOMAIN}"),
            ]),
            None => all.push("--insecure-principals".to_owned()),
        }
        all
    }

    /// Starts it on ports of the kernel's choice, and returns when it is ready.
    pub(crate) async fn start(&self) -> anyhow::Result<Server> {
        let mut words = self.before.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).args(self.arguments());
        let clients = self.credentials.as_ref().map(|folder| folder.join("clients"));
        let started = Instant::now();
        let mut server = Server::spawn(command, clients, "http on ")?;
        metrics::ready(server.operators()?, READY_WITHIN).await?;
        server.started = started.elapsed();
        Ok(server)
    }
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Of its listener for tokens.
    pub(crate) token_url: Option<String>,
    /// The address for operators; the floor has none.
    pub(crate) operators: Option<String>,
    /// How its callers prove who they are.
    pub(crate) identities: Identities,
    /// From the start of the program until it was ready.
    pub(crate) started: Duration,
    child: Program,
}

/// A program that runs. Killed when this is dropped.
pub(crate) struct Program(pub(crate) Child);

impl Server {
    /// The floor.
    pub(crate) fn floor() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        // It serves until its standard input ends.
        command.arg("serve-floor").stdin(Stdio::piped());
        Self::spawn(command, None, "listening on ")
    }

    /// Starts a program, and reads its lines until one begins so.
    fn spawn(mut command: Command, clients: Option<PathBuf>, last: &str) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| program.display().to_string())?;
        let output = child.stdout.take();
        let child = Program(child);
        let (scheme, identities) = match clients {
            Some(clients) => ("https", Identities::Folders(clients)),
            None => ("http", Identities::Names),
        };
        let (token_url, operators, started) = (None, None, Duration::ZERO);
        let mut server = Self { url: String::new(), token_url, operators, identities, started, child };
        let mut lines = BufReader::new(output.context("no standard output")?).lines();
        while let Some(line) = tokio::task::block_in_place(|| lines.next().transpose())? {
            if let Some(address) = line.strip_prefix("listening on ") {
                server.url = format!("{scheme}://{address}");
            } else if let Some(address) = line.strip_prefix("tokens on ") {
                server.token_url = Some(format!("{scheme}://{address}"));
            } else if let Some(address) = line.strip_prefix("http on ") {
                server.operators = Some(address.to_owned());
            }
            if line.starts_with(last) {
                return Ok(server);
            }
        }
        bail!("{} ended at once: it does not serve", program.display())
    }

    /// A client of this principal, which connects when it is first used. Nothing is sent on a connection but
    /// its calls.
    pub(crate) fn client(&self, principal: &str) -> anyhow::Result<Client> {
        let client = self.identities.client(&self.url, principal)?;
        Ok(client.keep_alive(Duration::from_secs(3600)).connect_lazy()?)
    }

    /// An open connection of this principal.
    pub(crate) async fn connect(&self, principal: &str) -> anyhow::Result<Connection> {
        let client = self.client(principal)?;
        Ok(Connection::open(client.connection().config().clone()).await?)
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// The address for operators.
    pub(crate) fn operators(&self) -> anyhow::Result<&str> {
        self.operators.as_deref().context("the server has no listener for operators")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Makes credentials for a server and these principals in this folder.
pub(crate) fn make_credentials(
    folder: &Path,
    principals: impl IntoIterator<Item = String>,
) -> anyhow::Result<()> {
    let mut cas = DevelopmentCas::new(TRUST_DOMAIN, LIFETIME)?;
    let server = cas.server(&["127.0.0.1".to_owned()])?;
    cas.write_server(&folder.join("server"), &server)?;
    TokenIssuer::new("bench")?.write_key_set(&folder.join("server"))?;
    for name in principals.into_iter().chain([COORDINATOR.to_owned()]) {
        let client = cas.client(&name)?;
        cas.write_client(&folder.join("clients").join(name), &client)?;
    }
    Ok(())
}

/// The memory of a process at most since its start, and now, in bytes.
pub(crate) fn peak_and_resident(pid: u32) -> anyhow::Result<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let row = |name: &str| -> anyhow::Result<u64> {
        let row = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = row.and_then(|row| row.split_whitespace().next()).with_context(|| format!("no {name}"))?;
        Ok(kib.parse::<u64>()? * 1024)
    };
    Ok((row("VmHWM:")?, row("VmRSS:")?))
}

/// The memory of this process once it no longer changes: freed memory returns to the system with a delay.
pub(crate) async fn settled_memory(pid: u32) -> anyhow::Result<u64> {
    const AGAIN: Duration = Duration::from_millis(500);
    let (_, mut last) = peak_and_resident(pid)?;
    for _ in 0..20 {
        tokio::time::sleep(AGAIN).await;
        let (_, next) = peak_and_resident(pid)?;
        if next.abs_diff(last) * 1_000 <= last {
            return Ok(next);
        }
        last = next;
    }
    Ok(last)
}

/// An empty folder in this directory, deleted when it is dropped. A server takes it for its log: nobody else
/// may look into it.
pub(crate) fn folder(directory: &Path) -> anyhow::Result<TempDir> {
    use std::os::unix::fs::PermissionsExt as _;
    let permissions = fs::Permissions::from_mode(0o700);
    let folder =
        tempfile::Builder::new().prefix("stickycas-bench-").permissions(permissions).tempdir_in(directory);
    folder.with_context(|| directory.display().to_string())
}

/// The kind of file system that holds a directory, if the system tells: `ext4`, `tmpfs`.
pub(crate) fn file_system(directory: &Path) -> Option<String> {
    let output = Command::new("df").arg("--output=fstype").arg(directory).output().ok()?;
    String::from_utf8(output.stdout).ok()?.lines().nth(1).map(str::to_owned)
}

/// Bytes of the disk that the files of a folder take.
pub(crate) fn disk_usage(folder: &Path) -> anyhow::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    /// Of `st_blocks`, whatever the file system has.
    const BLOCK: u64 = 512;
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        bytes += entry?.metadata()?.blocks() * BLOCK;
    }
    Ok(bytes)
}
