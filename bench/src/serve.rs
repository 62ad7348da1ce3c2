//! The servers that are measured: started in this program or in one of their own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use stickycas_server::Config;
use stickycas_server::limits::Limits;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::baseline;

/// The principal that creates instances.
pub(crate) const COORDINATOR: &str = "coordinator";

/// Retention of finished instances: so short that the server drops them while others run.
const RETENTION: Duration = Duration::from_millis(100);

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
}

impl Launch {
    /// By this program.
    pub(crate) fn own(layout: Layout) -> Self {
        Self { layout, program: None }
    }

    /// By the `stickycas-bench` of another build.
    pub(crate) fn other(program: &Path) -> Self {
        Self { layout: Layout::TwoPrograms, program: Some(program.to_owned()) }
    }
}

/// A server that is a program of its own; ends when this is dropped.
pub(crate) struct ServerProcess {
    pub(crate) url: String,
    child: Child,
}

impl ServerProcess {
    /// Starts it, and waits for its first line, in which `url_of` finds where it listens.
    pub(crate) fn start(
        mut command: Command,
        url_of: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let program = PathBuf::from(command.get_program());
        let mut child =
            command.stdout(Stdio::piped()).spawn().with_context(|| program.display().to_string())?;
        let output = child.stdout.take();
        // Built before anything can fail, so that the process ends in any case.
        let mut server = Self { url: String::new(), child };
        let mut line = String::new();
        if BufReader::new(output.context("no standard output")?).read_line(&mut line)? == 0 {
            bail!("{} ended at once: it does not serve", program.display());
        }
        let url = url_of(line.trim());
        server.url = url.with_context(|| format!("{} does not say where it serves", program.display()))?;
        Ok(server)
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
}

/// Where a server runs; ends it when dropped.
enum Host {
    Task(AbortHandle),
    /// A thread with a runtime of its own, which ends when the sender is dropped.
    Thread(Option<oneshot::Sender<()>>, Option<JoinHandle<anyhow::Result<()>>>),
    Program(ServerProcess),
}

impl RunningServer {
    /// Starts a server on a port of the kernel's choice.
    pub(crate) async fn start(service: Service, launch: &Launch) -> anyhow::Result<Self> {
        let Launch { layout, program } = launch.clone();
        if layout == Layout::TwoPrograms {
            return tokio::task::spawn_blocking(move || Self::program(service, program)).await?;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let host = match layout {
            Layout::TwoRuntimes => {
                let (stop, stopped) = oneshot::channel();
                let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
                    let runtime = runtime(1)?;
                    let server =
                        runtime.spawn(async move { serve(service, TcpListener::from_std(listener)?).await });
                    // Completes when the sender is dropped. A server that failed shows in the calls of the clients.
                    let _dropped = runtime.block_on(stopped);
                    server.abort();
                    anyhow::Ok(())
                })?;
                Host::Thread(Some(stop), Some(thread))
            }
            Layout::OneRuntime | Layout::TwoPrograms => {
                Host::Task(tokio::spawn(serve(service, TcpListener::from_std(listener)?)).abort_handle())
            }
        };
        Ok(Self { url, host })
    }

    /// In a process of its own, by its subcommand `serve` (see [`run`]). `program`: if it is not this one.
    fn program(service: Service, program: Option<PathBuf>) -> anyhow::Result<Self> {
        let name = service.to_possible_value().context("a service without a name")?;
        let program = program.map_or_else(std::env::current_exe, Ok)?;
        let mut command = Command::new(&program);
        // It serves until its standard input ends.
        command.args(["serve", name.get_name()]).stdin(Stdio::piped());
        let server =
            ServerProcess::start(command, |line| Some(line.to_owned()).filter(|url| !url.is_empty()))?;
        Ok(Self { url: server.url.clone(), host: Host::Program(server) })
    }

    /// The process id of a server that is a program of its own.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.host {
            Host::Program(server) => Some(server.pid()),
            Host::Task(_) | Host::Thread(..) => None,
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
            Host::Program(_) => {}
        }
    }
}

/// A runtime with this many workers.
pub(crate) fn runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// The subcommand `serve`: serves until standard input ends, so never longer than the program that started it lives.
/// Prints its address as the first line of standard output.
pub(crate) fn run(service: Service) -> anyhow::Result<()> {
    let runtime = runtime(1)?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    runtime.spawn(serve(service, listener));
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    runtime.shutdown_background();
    Ok(())
}

async fn serve(service: Service, listener: TcpListener) -> anyhow::Result<()> {
    match service {
        Service::Baseline => {
            let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
            Server::builder().add_service(baseline::service()).serve_with_incoming(connections).await?;
        }
        Service::Stickycas => {
            // All instances of a turn are created before the first is played.
            let instances_when_busy = usize::MAX;
            let limits = Limits { retention: RETENTION, instances_when_busy, ..Limits::default() };
            let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
            stickycas_server::run(listener, config, std::future::pending()).await?;
        }
    }
    Ok(())
}
