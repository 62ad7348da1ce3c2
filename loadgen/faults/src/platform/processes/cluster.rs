//! The servers of a cluster and its etcd as processes: killed, stopped, paused, cut off and started again.

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use stickycas_client::{Client, ClientBuilder, Error};
use stickycas_cluster::testing::etcd;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::super::{CREATOR, Machines, revoke, server_name};
use super::lateness::Lateness;
use super::network::{Host, Network};
use super::{Process, ServerProgram, free_port};
use crate::draw::ClusterSize;
use crate::plan::{Action, Service, Step};

/// The name of the cluster, and the ports in a network of its own.
const CLUSTER: &str = "crash";
const SERVER_PORT: u16 = 7420;

/// The longest time until a server has stopped that was asked to.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// How often a member of etcd that was killed is started until it answers.
const RESTARTS: usize = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct ClusterProcesses {
    program: ServerProgram,
    rejoin: Duration,
    size: ClusterSize,
    etcd: etcd::Etcd,
    servers: Vec<ServerOfCluster>,
    lateness: Lateness,
    /// Without it, all are on the machine's own loopback interface. Behind the processes: it is removed after
    /// them.
    network: Option<Network>,
}

#[derive(Debug)]
struct ServerOfCluster {
    address: SocketAddrV4,
    /// The command in front of the program.
    command: Vec<OsString>,
    process: Process,
}

/// Whether members and servers can be cut off from each other here.
pub(crate) fn check_network() -> anyhow::Result<()> {
    Network::check()
}

/// The program etcd, with its data in this folder.
pub(crate) fn find_etcd(disk: &Path) -> anyhow::Result<etcd::Program> {
    let found = etcd::Program::find(None, disk)?;
    found.context("etcd is missing: a cluster keeps its logs there (Debian: apt-get install etcd-server)")
}

impl ClusterProcesses {
    /// Starts etcd, and no server yet.
    pub(crate) async fn new(
        program: &ServerProgram,
        folder: &Path,
        rejoin: Duration,
        size: ClusterSize,
        draw: u64,
    ) -> anyhow::Result<Self> {
        let network = size.has_partitions.then(|| Network::new(size.servers + size.members)).transpose()?;
        let mut options = etcd::Options { members: size.members, ..etcd::Options::default() };
        let mut servers: Vec<ServerOfCluster> = Vec::new();
        for number in 0..size.servers {
            let (address, command) = match &network {
                Some(network) => {
                    let host = Host::new(number)?;
                    (SocketAddrV4::new(network.address(host), SERVER_PORT), network.command(host))
                }
                None => {
                    // A port is no longer held when it is drawn, and so may be drawn twice.
                    let taken: Vec<u16> = servers.iter().map(|server| server.address.port()).collect();
                    let port = free_port(draw.wrapping_mul(16).wrapping_add(number as u64 * 1_009), &taken)?;
                    (SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), Vec::new())
                }
            };
            let process = Process::new(server_name(number), folder);
            servers.push(ServerOfCluster { address, command, process });
        }
        for member in 0..size.members {
            if let Some(network) = &network {
                let host = Host::new(size.servers + member)?;
                options.hosts.push(etcd::Host {
                    address: network.address(host).into(),
                    command: network.command(host),
                });
            }
        }
        let etcd = find_etcd(folder)?.start(&options).await?;
        let lateness = Lateness::measure().context("there is no thread that measures")?;
        Ok(Self { program: program.clone(), rejoin, size, etcd, servers, lateness, network })
    }
}

impl Machines for ClusterProcesses {
    async fn act(&mut self, action: Action, service: Service, step: &Step) -> anyhow::Result<()> {
        let index = service.index().with_context(|| format!("{service} is no process of a cluster"))?;
        let is_server = matches!(service, Service::ServerOfCluster(_));
        match (action, is_server) {
            (Action::Kill, true) => self.servers[index].process.kill().await,
            (Action::Kill, false) => {
                self.etcd.kill(index);
                Ok(())
            }
            (Action::Start, true) => self.start(index),
            (Action::Start, false) => self.restart_member(index).await,
            (Action::Stop, true) => self.stop(index).await,
            (Action::Pause, _) => self.signal(service, Signal::STOP),
            (Action::Unpause, _) => self.signal(service, Signal::CONT),
            (Action::Disconnect | Action::DropIncoming, _) => self.cut(service, step),
            (Action::Depose, true) => {
                self.cut(service, step)?;
                let etcd = stickycas_cluster::etcd::Client::new(&self.etcd.config())?;
                revoke(&etcd, CLUSTER, index).await
            }
            (Action::Reconnect, _) => self.network()?.heal(),
            (Action::Restart, _) | (Action::Stop | Action::Depose, false) => {
                bail!("{action} {service}: this is not done to processes")
            }
        }
    }

    fn url(&self, server: usize) -> String {
        format!("http://{}", self.servers[server].address)
    }

    fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        builder.connect_lazy()
    }

    fn start(&mut self, number: usize) -> anyhow::Result<()> {
        let server = &mut self.servers[number];
        let program = std::iter::once(self.program.program.as_os_str())
            .chain(self.program.arguments.iter().map(AsRef::as_ref));
        let mut words = server.command.iter().map(AsRef::as_ref).chain(program);
        let mut command = Command::new(words.next().context("there is no program")?);
        command
            .args(words)
            .args(["serve", "--insecure-principals", "--coordinator", CREATOR, "--log", "info", "--no-http"])
            .args(["--insecure-allow-remote", "--listen", &server.address.to_string()])
            .args(["--cluster", CLUSTER, "--server-name", &server.process.name])
            .args(["--rejoin", &humantime::format_duration(self.rejoin).to_string()])
            .args(["--lease", &humantime::format_duration(self.size.lease).to_string()]);
        for url in self.etcd.urls() {
            command.args(["--etcd", &url]);
        }
        server.process.start(command)
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        self.servers.iter_mut().try_for_each(|server| server.process.check_alive())
    }

    fn lateness(&self, time: &Range<std::time::Instant>) -> Duration {
        self.lateness.within(time)
    }
}

impl ClusterProcesses {
    /// Starts a member again; once more if it does not answer in time, as on a busy machine.
    async fn restart_member(&mut self, member: usize) -> anyhow::Result<()> {
        for _ in 1..RESTARTS {
            if self.etcd.restart(member).await.is_ok() {
                return Ok(());
            }
        }
        self.etcd.restart(member).await
    }

    /// Drops the packets to a server or member, and those that it sends unless the step leaves them: of all
    /// others, or of etcd alone.
    fn cut(&mut self, service: Service, step: &Step) -> anyhow::Result<()> {
        let (servers, members) =
            (0..self.size.servers, self.size.servers..self.size.servers + self.size.members);
        let is_member = matches!(service, Service::Etcd(_));
        let number = service.index().context("it is no host")? + if is_member { members.start } else { 0 };
        let own = [Host::new(number)?];
        let others = if step.network.is_some() { members } else { servers.start..members.end };
        let mut others = others.map(Host::new).collect::<anyhow::Result<Vec<_>>>()?;
        if !is_member && step.network.is_none() {
            others.push(Host::CLIENTS);
        }
        let network = self.network()?;
        if step.action != Action::DropIncoming {
            network.cut(&own, &others)?;
        }
        network.cut(&others, &own)
    }

    fn network(&mut self) -> anyhow::Result<&mut Network> {
        self.network.as_mut().context("there is no network of its own")
    }

    fn signal(&self, service: Service, signal: Signal) -> anyhow::Result<()> {
        let index = service.index().context("it is no process")?;
        let pid = match service {
            Service::Etcd(_) => self.etcd.pid(index),
            _ => self.servers[index].process.child.as_ref().and_then(Child::id),
        };
        let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("{service} does not run"))?;
        kill_process(pid, signal).with_context(|| format!("{service} takes no signal"))
    }

    async fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        self.signal(Service::server_of_cluster(number), Signal::TERM)?;
        let process = &mut self.servers[number].process;
        let mut child = process.take()?;
        let name = &process.name;
        let status = timeout(LONGEST_STOP, child.wait()).await;
        let status = status.with_context(|| format!("{name} does not stop within {LONGEST_STOP:?}"))??;
        ensure!(
            status.success(),
            "{name} was asked to stop, and ended with {status}: {}",
            process.last_words()
        );
        Ok(())
    }
}
