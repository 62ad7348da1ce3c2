//! The servers that are measured: started in this program or in one of their own.

use std::future::pending;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use stickycas_server::limits::Limits;
use stickycas_server::{AuthMode, ClusterConfig, Config, CredentialFolder, Listeners};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::operators::{self, Commits};
use crate::{baseline, disk};

/// The principal that creates instances.
pub(crate) const COORDINATOR: &str = "coordinator";

/// The trust domain of the callers of a server with TLS.
pub(crate) const TRUST_DOMAIN: &str = "stickycas";

/// Retention of finished instances: so short that the server drops them while others run.
const RETENTION: Duration = Duration::from_millis(100);
/// The time within which a server with an empty log has to be ready.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Enough space that etcd is not full within a turn.
pub(crate) const ETCD_QUOTA: u64 = 8 << 30;
/// The cluster of servers that take part in one.
const CLUSTER: &str = "bench";
/// Its number of shards: the default.
const SHARDS: u32 = 64;

/// The service of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// Answers at once, and does nothing else.
    #[value(name = "floor")]
    Baseline,
    /// StickyCAS with all of its layers.
    Stickycas,
}

/// How clients and server share the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// One runtime of two workers for both.
    OneRuntime,
    /// A runtime of one worker for each, in one program.
    TwoRuntimes,
    /// A program for each, with a runtime of one worker, as in use.
    #[default]
    TwoPrograms,
}

impl Layout {
    /// Workers of the runtime of the clients.
    pub(crate) fn workers(self) -> usize {
        match self {
            Self::OneRuntime => 2,
            Self::TwoRuntimes | Self::TwoPrograms => 1,
        }
    }
}

/// How a server is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    layout: Layout,
    /// The program that serves, if it is not this one.
    program: Option<PathBuf>,
    /// The directory in which StickyCAS has the folder of its log; `None`: it keeps everything in memory.
    disk: Option<PathBuf>,
    /// The folder in which the credentials of StickyCAS (`server`) and of its callers (`clients`) are;
    /// `None`: it believes names.
    credentials: Option<PathBuf>,
}

impl Launch {
    /// By this program.
    pub(crate) fn own(layout: Layout) -> Self {
        Self { layout, program: None, disk: None, credentials: None }
    }

    /// By the `stickycas-bench` of another build.
    pub(crate) fn other(program: &Path) -> Self {
        Self { layout: Layout::TwoPrograms, program: Some(program.to_owned()), disk: None, credentials: None }
    }

    /// With a log in a folder of its own in this directory.
    pub(crate) fn durable(self, disk: &Path) -> Self {
        Self { disk: Some(disk.to_owned()), ..self }
    }

    /// With TLS, and the credentials in this folder.
    pub(crate) fn certified(self, folder: &Path) -> Self {
        Self { credentials: Some(folder.to_owned()), ..self }
    }
}

/// A server that is a program of its own; ends when this is dropped.
pub(crate) struct ServerProcess {
    pub(crate) url: String,
    child: Child,
}

impl ServerProcess {
    /// Starts it, and reads its lines until `url_of` has found where it listens.
    pub(crate) fn start(
        mut command: Command,
        mut url_of: impl FnMut(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| program.display().to_string())?;
        let output = child.stdout.take();
        // Built before anything can fail, so that the process ends in any case.
        let mut server = Self { url: String::new(), child };
        for line in BufReader::new(output.context("no standard output")?).lines() {
            if let Some(url) = url_of(&line?) {
                server.url = url;
                return Ok(server);
            }
        }
        bail!("{} ended at once: it does not serve", program.display())
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Fails if it has ended by itself.
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A server; ends when this is dropped.
pub(crate) struct RunningServer {
    pub(crate) url: String,
    host: Host,
    /// The address for operators of a server with a log.
    operators: Option<String>,
    /// The folder of the credentials of its callers.
    clients: Option<PathBuf>,
    // Deleted when the server has ended.
    _log: Option<TempDir>,
}

/// Where a server keeps its log, and how it knows its callers.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerOptions {
    /// The folder of the log; without it everything is kept in memory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The folder of the credentials of a server with TLS; without it names are believed.
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// The addresses of etcd, which has the logs of a server of a cluster.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub(crate) etcd: Vec<String>,
    /// The name of a server of a cluster.
    #[arg(long, value_name = "NAME", default_value_t)]
    pub(crate) server_name: String,
    /// The lease of a server of a cluster.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = stickycas_program::parse_duration)]
    pub(crate) lease: Duration,
    /// How long ended instances are kept.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = stickycas_program::parse_duration)]
    pub(crate) retention: Duration,
}

impl ServerOptions {
    fn new(data: Option<&Path>, credentials: Option<&Path>) -> Self {
        let (data, credentials) = (data.map(Path::to_owned), credentials.map(Path::to_owned));
        Self { data, credentials, retention: RETENTION, ..Self::default() }
    }

    /// Whether it has a listener for operators.
    fn has_log(&self) -> bool {
        self.data.is_some() || !self.etcd.is_empty()
    }

    /// The cluster of a server that clients reach at this address; `None`: it is alone.
    fn cluster(&self, advertise: String) -> Option<ClusterConfig> {
        let of = || ClusterConfig {
            etcd: self.etcd.clone(),
            etcd_credentials: None,
            etcd_quota: ETCD_QUOTA,
            name: CLUSTER.to_owned(),
            server: self.server_name.clone(),
            advertise,
            lease: self.lease,
            shards: SHARDS,
        };
        (!self.etcd.is_empty()).then(of)
    }
}

/// The listeners of a server, and its options.
#[derive(Debug)]
struct Addresses {
    clients: std::net::TcpListener,
    /// Of a server with a log.
    operators: Option<std::net::TcpListener>,
    options: ServerOptions,
}

impl Addresses {
    /// Ports of the kernel's choice.
    fn bind(options: ServerOptions) -> std::io::Result<Self> {
        let listen = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            std::io::Result::Ok(listener)
        };
        let operators = if options.has_log() { Some(listen()?) } else { None };
        Ok(Self { clients: listen()?, operators, options })
    }

    /// The URL for clients and, behind a space, the address for operators.
    fn announcement(&self) -> std::io::Result<String> {
        let scheme = if self.options.credentials.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", self.clients.local_addr()?);
        match &self.operators {
            None => Ok(url),
            Some(operators) => Ok(format!("{url} {}", operators.local_addr()?)),
        }
    }
}

/// Where a server runs; ends it when dropped.
enum Host {
    Task(AbortHandle),
    /// A thread with a runtime of its own, which ends when the sender is dropped.
    Thread(Option<oneshot::Sender<()>>, Option<JoinHandle<anyhow::Result<()>>>),
    Program(ServerProcess),
    /// A program that somebody else has started.
    Elsewhere,
}

impl RunningServer {
    /// A server that somebody else has started and ends.
    pub(crate) fn elsewhere(url: String) -> Self {
        Self { url, host: Host::Elsewhere, operators: None, clients: None, _log: None }
    }

    /// Starts a server on a port of the kernel's choice, and waits until it is ready.
    pub(crate) async fn start(service: Service, launch: &Launch) -> anyhow::Result<Self> {
        let log = launch.disk.as_deref().map(|disk| disk::folder(disk, "log")).transpose()?;
        let folder = log.as_ref().map(|log| log.path().to_owned());
        let launch = launch.clone();
        let clients = launch.credentials.as_ref().map(|folder| folder.join("clients"));
        let credentials = launch.credentials.as_ref().map(|folder| folder.join("server"));
        let (announcement, host) = match launch.layout {
            Layout::TwoPrograms => {
                let start =
                    move || Self::program(service, launch.program, folder.as_deref(), credentials.as_deref());
                tokio::task::spawn_blocking(start).await??
            }
            Layout::TwoRuntimes => {
                let options = ServerOptions::new(folder.as_deref(), credentials.as_deref());
                let addresses = Addresses::bind(options)?;
                (addresses.announcement()?, Self::thread(service, addresses)?)
            }
            Layout::OneRuntime => {
                let options = ServerOptions::new(folder.as_deref(), credentials.as_deref());
                let addresses = Addresses::bind(options)?;
                (
                    addresses.announcement()?,
                    Host::Task(tokio::spawn(serve(service, addresses, pending())).abort_handle()),
                )
            }
        };
        let (url, operators) = match announcement.split_once(' ') {
            None => (announcement, None),
            Some((url, operators)) => (url.to_owned(), Some(operators.to_owned())),
        };
        if let Some(operators) = &operators {
            operators::ready(operators, READY_WITHIN).await?;
        }
        Ok(Self { url, host, operators, clients, _log: log })
    }

    /// On a thread with a runtime of its own.
    fn thread(service: Service, addresses: Addresses) -> anyhow::Result<Host> {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
            let runtime = runtime(1)?;
            let server = runtime.spawn(serve(service, addresses, pending()));
            // Completes when the sender is dropped. A server that failed shows in the calls of the clients.
            let _dropped = runtime.block_on(stopped);
            server.abort();
            anyhow::Ok(())
        })?;
        Ok(Host::Thread(Some(stop), Some(thread)))
    }

    /// In a process of its own, by its subcommand `serve` (see [`run`]). `program`: if it is not this one.
    fn program(
        service: Service,
        program: Option<PathBuf>,
        log: Option<&Path>,
        credentials: Option<&Path>,
    ) -> anyhow::Result<(String, Host)> {
        let name = service.to_possible_value().context("a service without a name")?;
        let program = program.map_or_else(std::env::current_exe, Ok)?;
        let mut command = Command::new(&program);
        // It serves until its standard input ends.
        command.args(["serve", name.get_name()]).stdin(Stdio::piped());
        if let Some(log) = log {
            command.arg("--data").arg(log);
        }
        if let Some(credentials) = credentials {
            command.arg("--credentials").arg(credentials);
        }
        let server =
            ServerProcess::start(command, |line| Some(line.to_owned()).filter(|url| !url.is_empty()))?;
        Ok((server.url.clone(), Host::Program(server)))
    }

    /// The folder with a folder of credentials for each of its callers; `None`: it believes names.
    pub(crate) fn clients(&self) -> Option<&Path> {
        self.clients.as_deref()
    }

    /// The commits of the server's log; `None` without a log.
    pub(crate) async fn commits(&self) -> anyhow::Result<Option<Commits>> {
        match &self.operators {
            None => Ok(None),
            Some(operators) => Commits::read(operators).await.map(Some),
        }
    }

    /// The process id of a server that is a program of its own.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.host {
            Host::Program(server) => Some(server.pid()),
            Host::Task(_) | Host::Thread(..) | Host::Elsewhere => None,
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        match &mut self.host {
            Host::Task(server) => server.abort(),
            Host::Thread(stop, thread) => {
                drop(stop.take());
                // Joined, so that its end does not take processor time within the next turn.
                if let Some(thread) = thread.take() {
                    let _ended = thread.join();
                }
            }
            // It ends itself.
            Host::Program(_) | Host::Elsewhere => {}
        }
    }
}

/// A runtime with this many workers.
pub(crate) fn runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// The subcommand `serve`: serves until standard input ends, so never longer than the program that started it
/// lives. Prints its address as the first line of standard output and, with a log, that for operators behind
/// it. A server of a cluster hands its shards over before it ends.
pub(crate) fn run(service: Service, options: ServerOptions) -> anyhow::Result<()> {
    // Every connection is a file.
    let _files = stickycas_server::allow_all_files();
    let runtime = runtime(1)?;
    let in_cluster = !options.etcd.is_empty();
    // A shard that moves while nobody comes or goes spoils a measurement: the reason has to be seen.
    let _log = in_cluster.then(|| stickycas_server::log_to_stderr("warn")).transpose()?;
    let addresses = Addresses::bind(options)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", addresses.announcement()?)?;
    out.flush()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = runtime.spawn(serve(service, addresses, async {
        // The sender is dropped to stop the server.
        let _dropped = stopped.await;
    }));
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    if in_cluster {
        drop(stop);
        runtime.block_on(server)??;
    }
    runtime.shutdown_background();
    Ok(())
}

async fn serve(
    service: Service,
    addresses: Addresses,
    shutdown: impl Future<Output = ()> + Send,
) -> anyhow::Result<()> {
    let Addresses { clients, operators, options } = addresses;
    let clients = TcpListener::from_std(clients)?;
    match service {
        Service::Baseline => {
            let connections = TcpIncoming::from(clients).with_nodelay(Some(true));
            Server::builder().add_service(baseline::service()).serve_with_incoming(connections).await?;
        }
        Service::Stickycas => {
            let cluster = options.cluster(clients.local_addr()?.to_string());
            // All instances of a turn are created before the first is played.
            let instances_when_busy = usize::MAX;
            let limits = Limits {
                retention: options.retention,
                instances_when_busy,
                // One principal has as many as the memory of a connection is measured with.
                connections_per_principal: u32::MAX,
                ..Limits::default()
            };
            let http = operators.map(TcpListener::from_std).transpose()?;
            let auth_mode = match options.credentials {
                None => AuthMode::InsecurePrincipals,
                Some(path) => AuthMode::Certificates(CredentialFolder {
                    path,
                    trust_domain: TRUST_DOMAIN.to_owned(),
                    allow_missing_revocation_list: false,
                }),
            };
            let data = options.data;
            let config =
                Config { limits, data, cluster, auth_mode, ..Config::insecure([COORDINATOR.to_owned()]) };
            let listeners = Listeners { http, ..Listeners::from(clients) };
            stickycas_server::run(listeners, config, shutdown).await?;
        }
    }
    Ok(())
}
