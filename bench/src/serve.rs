//! The servers that candidates are played against, and where they run.

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

use crate::floor;
use crate::rig::COORDINATOR;

/// How long a finished instance is kept: so short that finished ones go while others run.
const RETENTION: Duration = Duration::from_millis(100);

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// What does nothing.
    Floor,
    /// The real one, every layer on.
    Stickycas,
}

/// How clients and server share the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Layout {
    /// One runtime of two workers for both.
    OneRuntime,
    /// A runtime of one worker for each, in one program.
    TwoRuntimes,
    /// A program for each, with a runtime of one worker: as it is used.
    #[default]
    TwoPrograms,
}

impl Layout {
    /// How many workers the runtime of the clients has.
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

/// A server that runs until this is dropped.
pub(crate) struct Running {
    pub(crate) url: String,
    keeper: Keeper,
}

/// What ends the server when it is dropped.
enum Keeper {
    Task(AbortHandle),
    /// With a runtime of its own, which ends when the other end of the first is gone.
    Thread(Option<oneshot::Sender<()>>, Option<JoinHandle<anyhow::Result<()>>>),
    Program(Child),
}

impl Running {
    /// Starts it, on a port of the kernel's choice.
    pub(crate) async fn start(service: Service, launch: &Launch) -> anyhow::Result<Self> {
        let Launch { layout, program } = launch.clone();
        if layout == Layout::TwoPrograms {
            return tokio::task::spawn_blocking(move || Self::program(service, program)).await?;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let keeper = match layout {
            Layout::TwoRuntimes => {
                let (keeper, dropped) = oneshot::channel();
                let thread = std::thread::Builder::new().name("server".to_owned()).spawn(move || {
                    let runtime = runtime(1)?;
                    let server =
                        runtime.spawn(async move { serve(service, TcpListener::from_std(listener)?).await });
                    // Ends either way: a server that failed is told by the clients' calls.
                    let _gone = runtime.block_on(dropped);
                    server.abort();
                    anyhow::Ok(())
                })?;
                Keeper::Thread(Some(keeper), Some(thread))
            }
            Layout::OneRuntime | Layout::TwoPrograms => {
                Keeper::Task(tokio::spawn(serve(service, TcpListener::from_std(listener)?)).abort_handle())
            }
        };
        Ok(Self { url, keeper })
    }

    /// In a process of its own, by its subcommand `serve` (see [`run`]). `program`: if it is not this one.
    fn program(service: Service, program: Option<PathBuf>) -> anyhow::Result<Self> {
        let name = service.to_possible_value().context("a service without a name")?;
        let program = program.map_or_else(std::env::current_exe, Ok)?;
        let mut child = Command::new(&program)
            .args(["serve", name.get_name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut url = String::new();
        let told = child.stdout.take().context("no standard output")?;
        let read = BufReader::new(told).read_line(&mut url);
        let running = Self { url: url.trim().to_owned(), keeper: Keeper::Program(child) };
        if read? == 0 {
            bail!("{} ended at once: it does not serve", program.display());
        }
        Ok(running)
    }

    /// The process id of its program, where that is not this one.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.keeper {
            Keeper::Program(child) => Some(child.id()),
            Keeper::Task(_) | Keeper::Thread(..) => None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        match &mut self.keeper {
            Keeper::Task(server) => server.abort(),
            Keeper::Thread(keeper, thread) => {
                drop(keeper.take());
                // Waited for: a thread that ends within the next turn would take its processor time along.
                if let Some(thread) = thread.take() {
                    let _ended = thread.join();
                }
            }
            Keeper::Program(child) => {
                // It may have ended by itself; then there is nothing to kill.
                let _ended = child.kill();
                let _reaped = child.wait();
            }
        }
    }
}

/// A runtime with so many workers.
pub(crate) fn runtime(workers: usize) -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()
}

/// The subcommand: serves until standard input ends, so never longer than who started it. Its address is the first
/// line of its standard output.
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
        Service::Floor => {
            let connections = TcpIncoming::from(listener).with_nodelay(Some(true));
            Server::builder().add_service(floor::service()).serve_with_incoming(connections).await?;
        }
        Service::Stickycas => {
            // All instances of a turn are created before anybody plays.
            let instances_when_busy = usize::MAX;
            let limits = Limits { retention: RETENTION, instances_when_busy, ..Limits::default() };
            let config = Config { limits, ..Config::insecure([COORDINATOR.to_owned()]) };
            stickycas_server::run(listener, config, std::future::pending()).await?;
        }
    }
    Ok(())
}
