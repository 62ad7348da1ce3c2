//! The servers of a cluster and its etcd as processes: killed, stopped, paused, cut off and started again.

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use stickycas_client::{Client, ClientBuilder, Error};
use stickycas_cluster::keys::{Keys, Name};
use stickycas_cluster::store::{KeyRange, KeyValue, Store as _, StoreError};
use stickycas_cluster::testing::etcd;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use super::network::{Host, Network};
use super::{ClusterServers, Machines, client_of_all, server_name};
use crate::fault::{ClusterSize, Fault, FaultKind};
use crate::instance::Site;
use crate::lateness::Lateness;
use crate::options::CrashOptions;
use crate::plan::RoundPlan;
use crate::result::RoundResult;
use crate::round::play_round;
use crate::server::{CREATOR, ServerProgram, end, end_of_log, free_port};

/// The name of the cluster, and the ports in a network of its own.
const CLUSTER: &str = "crash";
const SERVER_PORT: u16 = 7420;

/// The longest time until a server has stopped that was asked to.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// The time within which etcd must have ended a lease, and the pause before it is asked again.
const LONGEST_REVOCATION: Duration = Duration::from_secs(60);
const REVOKE_AGAIN: Duration = Duration::from_millis(50);
/// How often a member of etcd that was killed is started until it answers.
const RESTARTS: usize = 3;

/// See the module.
#[derive(Debug)]
pub(crate) struct ClusterProcesses {
    program: ServerProgram,
    folder: PathBuf,
    rejoin: Duration,
    size: ClusterSize,
    etcd: etcd::Etcd,
    servers: Vec<Member>,
    lateness: Lateness,
    /// Without it, all are on the machine's own loopback interface. Behind the processes: it is removed after
    /// them.
    network: Option<Network>,
}

#[derive(Debug)]
struct Member {
    name: String,
    address: SocketAddrV4,
    /// The command in front of the program.
    command: Vec<OsString>,
    child: Option<Child>,
    starts: u32,
}

/// Plays the round of this seed in this folder.
///
/// # Errors
/// The round cannot be run.
pub(crate) async fn play(
    options: &CrashOptions,
    size: ClusterSize,
    plan: &RoundPlan,
    folder: &Path,
) -> anyhow::Result<RoundResult> {
    let machines = ClusterProcesses::new(&options.program, folder, options.rejoin, size, plan.seed).await?;
    let site = Site::new(plan, |connection| client_of_all(size, &machines, connection).connect_lazy())?;
    let servers = ClusterServers::new(machines, size)?;
    Ok(play_round(plan, servers, site).await)
}

/// Whether members and servers can be cut off from each other here.
///
/// # Errors
/// They cannot; with what is needed.
pub(crate) fn check_network() -> anyhow::Result<()> {
    Network::check()
}

/// The program etcd, with its data in this folder.
///
/// # Errors
/// There is none.
pub(crate) fn find_etcd(disk: &Path) -> anyhow::Result<etcd::Program> {
    let found = etcd::Program::find(None, disk)?;
    found.context("etcd is missing: a cluster keeps its logs there (Debian: apt-get install etcd-server)")
}

impl ClusterProcesses {
    /// Starts etcd, and no server yet.
    ///
    /// # Errors
    /// etcd is missing or does not start.
    pub(crate) async fn new(
        program: &ServerProgram,
        folder: &Path,
        rejoin: Duration,
        size: ClusterSize,
        draw: u64,
    ) -> anyhow::Result<Self> {
        let network = size.has_partitions.then(|| Network::new(size.servers + size.members)).transpose()?;
        let mut options = etcd::Options { members: size.members, ..etcd::Options::default() };
        let mut servers: Vec<Member> = Vec::new();
        for number in 0..size.servers {
            let (address, command) = match &network {
                Some(network) => {
                    let host = Host::new(number)?;
                    (SocketAddrV4::new(network.address(host), SERVER_PORT), network.command(host))
                }
                None => {
                    let draws =
                        (0..).map(|more| draw.wrapping_mul(16).wrapping_add((number as u64 + more) * 1_009));
                    let mut ports = draws.map(free_port);
                    let is_new = |port: &u16| servers.iter().all(|server| server.address.port() != *port);
                    // A port is no longer held when it is drawn, and so may be drawn twice.
                    let port = ports.find(|port| port.as_ref().map_or(true, is_new)).context("no port")??;
                    (SocketAddrV4::new(Ipv4Addr::LOCALHOST, port), Vec::new())
                }
            };
            servers.push(Member { name: server_name(number), address, command, child: None, starts: 0 });
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
        Ok(Self {
            program: program.clone(),
            folder: folder.to_owned(),
            rejoin,
            size,
            etcd,
            servers,
            lateness,
            network,
        })
    }

    fn log(&self, number: usize) -> PathBuf {
        let Member { name, starts, .. } = &self.servers[number];
        self.folder.join(format!("{name}-{starts}.log"))
    }
}

impl Machines for ClusterProcesses {
    fn url(&self, server: usize) -> String {
        format!("http://{}", self.servers[server].address)
    }

    fn connect(&self, builder: ClientBuilder) -> Result<Client, Error> {
        builder.connect_lazy()
    }

    fn start(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].starts += 1;
        let log = File::create(self.log(number)).context("cannot write the log of a server")?;
        let server = &mut self.servers[number];
        let program = std::iter::once(self.program.program.as_os_str())
            .chain(self.program.arguments.iter().map(AsRef::as_ref));
        let mut words = server.command.iter().map(AsRef::as_ref).chain(program);
        let mut command = tokio::process::Command::new(words.next().context("there is no program")?);
        command
            .args(words)
            .args(["serve", "--insecure-principals", "--coordinator", CREATOR, "--log", "info", "--no-http"])
            .args(["--insecure-allow-remote", "--listen", &server.address.to_string()])
            .args(["--cluster", CLUSTER, "--server-name", &server.name])
            .args(["--rejoin", &humantime::format_duration(self.rejoin).to_string()])
            .args(["--lease", &humantime::format_duration(self.size.lease).to_string()]);
        for url in self.etcd.urls() {
            command.args(["--etcd", &url]);
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true).spawn();
        let program = || format!("cannot start {}", self.program.program.display());
        server.child = Some(child.with_context(program)?);
        Ok(())
    }

    async fn begin(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let Fault { kind, target, .. } = *fault;
        match kind {
            FaultKind::ServerKilled => {
                let Some(mut child) = self.servers[target].child.take() else { bail!("it does not run") };
                child.kill().await.context("a server cannot be killed")
            }
            FaultKind::ServerStopped => self.stop(target).await,
            FaultKind::ServerPaused => self.signal(target, Signal::STOP),
            FaultKind::ServerDeposed => {
                self.cut(kind, target)?;
                self.revoke(target).await
            }
            FaultKind::ServerCutFromEtcd
            | FaultKind::ServerReceivesNothing
            | FaultKind::ServerCutOff
            | FaultKind::MemberCutOff
            | FaultKind::MemberReceivesNothing => self.cut(kind, target),
            FaultKind::MemberKilled | FaultKind::EtcdKilled => {
                self.etcd.kill(target);
                Ok(())
            }
            FaultKind::MemberPaused => self.signal_members(target..target + 1, Signal::STOP),
            FaultKind::EtcdPaused => self.signal_members(0..self.size.members, Signal::STOP),
        }
    }

    async fn end(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let Fault { kind, target, .. } = *fault;
        match kind {
            FaultKind::ServerKilled | FaultKind::ServerStopped => bail!("it is started again"),
            FaultKind::ServerPaused => self.signal(target, Signal::CONT),
            FaultKind::ServerDeposed
            | FaultKind::ServerCutFromEtcd
            | FaultKind::ServerReceivesNothing
            | FaultKind::ServerCutOff
            | FaultKind::MemberCutOff
            | FaultKind::MemberReceivesNothing => self.heal(),
            FaultKind::MemberKilled | FaultKind::EtcdKilled => self.restart_member(target).await,
            FaultKind::MemberPaused => self.signal_members(target..target + 1, Signal::CONT),
            FaultKind::EtcdPaused => self.signal_members(0..self.size.members, Signal::CONT),
        }
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        for number in 0..self.servers.len() {
            let log = self.log(number);
            let Member { name, child, .. } = &mut self.servers[number];
            let Some(child) = child else { bail!("{name} does not run") };
            if let Some(status) = child.try_wait().context("a server cannot be waited for")? {
                bail!("{name} ended by itself ({status}), and said at last: {}", end_of_log(&log));
            }
        }
        Ok(())
    }

    fn lateness(&self, time: &Range<std::time::Instant>) -> Duration {
        self.lateness.within(time)
    }
}

impl ClusterProcesses {
    /// Ends the lease of a server, which does not learn of it. etcd may be without a leader for a while after
    /// the fault before.
    async fn revoke(&self, server: usize) -> anyhow::Result<()> {
        let (cluster, name) = (Name::new(CLUSTER)?, Name::new(&self.servers[server].name)?);
        let key = Keys::new(&cluster).server(&name);
        let etcd = stickycas_cluster::etcd::Client::new(&self.etcd.config())?;
        let attempt = async || match etcd.range(KeyRange::one(key.clone()), 1).await?.found.first() {
            Some(KeyValue { lease: Some(lease), .. }) => etcd.revoke(*lease).await,
            _ => Ok(()),
        };
        let deadline = Instant::now() + LONGEST_REVOCATION;
        loop {
            match attempt().await {
                Ok(()) | Err(StoreError::NoLease) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => sleep(REVOKE_AGAIN).await,
            }
        }
    }

    /// Starts a member again; once more if it does not answer in time, as on a busy machine.
    async fn restart_member(&mut self, member: usize) -> anyhow::Result<()> {
        for _ in 1..RESTARTS {
            if self.etcd.restart(member).await.is_ok() {
                return Ok(());
            }
        }
        self.etcd.restart(member).await
    }

    /// Drops the packets that this partition loses.
    fn cut(&mut self, kind: FaultKind, target: usize) -> anyhow::Result<()> {
        let host = |number| Host::new(number);
        let servers = (0..self.size.servers).map(host).collect::<anyhow::Result<Vec<_>>>()?;
        let members = (0..self.size.members).map(|member| host(self.size.servers + member));
        let members = members.collect::<anyhow::Result<Vec<_>>>()?;
        let all = [servers.as_slice(), &members].concat();
        let network = self.network.as_mut().context("there is no network of its own")?;
        match kind {
            FaultKind::ServerCutFromEtcd | FaultKind::ServerDeposed => {
                network.cut(&servers[target..=target], &members)?;
                network.cut(&members, &servers[target..=target])
            }
            FaultKind::ServerReceivesNothing => network.cut(&members, &servers[target..=target]),
            FaultKind::ServerCutOff => {
                let all = [all.as_slice(), &[Host::CLIENTS]].concat();
                network.cut(&servers[target..=target], &all)?;
                network.cut(&all, &servers[target..=target])
            }
            FaultKind::MemberCutOff => {
                network.cut(&members[target..=target], &all)?;
                network.cut(&all, &members[target..=target])
            }
            FaultKind::MemberReceivesNothing => network.cut(&all, &members[target..=target]),
            _ => bail!("it is no partition"),
        }
    }

    fn heal(&mut self) -> anyhow::Result<()> {
        self.network.as_mut().context("there is no network of its own")?.heal()
    }

    fn signal(&self, number: usize, signal: Signal) -> anyhow::Result<()> {
        let pid = self.servers[number].child.as_ref().and_then(Child::id).context("it does not run")?;
        send(pid, signal)
    }

    fn signal_members(&self, members: Range<usize>, signal: Signal) -> anyhow::Result<()> {
        for member in members {
            send(self.etcd.pid(member).context("a member of etcd does not run")?, signal)?;
        }
        Ok(())
    }

    async fn stop(&mut self, number: usize) -> anyhow::Result<()> {
        self.signal(number, Signal::TERM)?;
        let log = self.log(number);
        let Some(mut child) = self.servers[number].child.take() else { bail!("it does not run") };
        let name = &self.servers[number].name;
        let status = timeout(LONGEST_STOP, child.wait()).await;
        let status = status.with_context(|| format!("{name} does not stop within {LONGEST_STOP:?}"))??;
        ensure!(status.success(), "{name} was asked to stop, and ended with {status}: {}", end_of_log(&log));
        Ok(())
    }
}

impl Drop for ClusterProcesses {
    fn drop(&mut self) {
        self.servers.iter_mut().for_each(|server| end(&mut server.child));
    }
}

fn send(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has such an id")?;
    kill_process(pid, signal).context("a process takes no signal")
}
