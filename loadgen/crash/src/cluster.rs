//! The servers of a cluster and its etcd as processes: killed, stopped, paused and started again.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use stickycas_client::{Client, ClientBuilder, ClusterServer, RefusalReason, RetryPolicy};
use stickycas_cluster::shard::{ShardCount, id_in_shard, shard_of};
use stickycas_cluster::testing::etcd;
use stickycas_proto::names::InstanceId;
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::fail_over::ON_ITS_WAY;
use crate::fault::{ClusterSize, Fault, FaultKind};
use crate::lateness::Lateness;
use crate::server::{CREATOR, Server, ServerProgram, end_of_log, free_port};

/// The longest time until all shards are served.
const LONGEST_TAKE_OVER: Duration = Duration::from_secs(60);
/// The longest time until a server has stopped that was asked to.
const LONGEST_STOP: Duration = Duration::from_secs(30);
/// The longest time until a server tells who owns what.
const LONGEST_VIEW: Duration = Duration::from_secs(2);
/// A server learns of a change of owners far faster than this.
const VIEW_LAG: Duration = Duration::from_millis(200);
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// The shards that a server owned when a fault hit it.
#[derive(Clone, Debug)]
pub struct Hit {
    /// What hit it.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// Whether others had shards of it when the server went on or was started again.
    pub is_deposed: bool,
    /// The shards, with the number of all.
    shards: (BTreeMap<u32, u64>, ShardCount),
}

impl Hit {
    /// Whether the server owned this instance.
    pub(crate) fn has(&self, id: InstanceId) -> bool {
        self.shards.0.contains_key(&shard_of(id.get(), self.shards.1).get())
    }
}

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
}

#[derive(Debug)]
struct Member {
    name: String,
    port: u16,
    child: Option<Child>,
    starts: u32,
    /// A client of this server alone.
    probe: Client,
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
        let options = etcd::Options { members: size.members, ..etcd::Options::default() };
        let etcd = find_etcd(folder)?.start(&options).await?;
        let mut servers: Vec<Member> = Vec::new();
        for number in 0..size.servers {
            let port = free_port(draw.wrapping_mul(16).wrapping_add(number as u64 * 1_009))?;
            ensure!(servers.iter().all(|server| server.port != port), "two servers have drawn one port");
            let retry = RetryPolicy { give_up_after: Duration::ZERO, ..RetryPolicy::default() };
            let probe = Client::builder(format!("http://127.0.0.1:{port}")).principal(CREATOR).retry(retry);
            let probe = probe.connect_lazy()?;
            servers.push(Member { name: format!("s{number}"), port, child: None, starts: 0, probe });
        }
        let lateness = Lateness::measure().context("there is no thread that measures")?;
        Ok(Self {
            program: program.clone(),
            folder: folder.to_owned(),
            rejoin,
            size,
            etcd,
            servers,
            lateness,
        })
    }

    /// The addresses of all servers.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("http://127.0.0.1:{}", server.port)).collect()
    }

    fn log(&self, number: usize) -> PathBuf {
        let Member { name, starts, .. } = &self.servers[number];
        self.folder.join(format!("{name}-{starts}.log"))
    }

    fn start_server(&mut self, number: usize) -> anyhow::Result<()> {
        self.servers[number].starts += 1;
        let log = File::create(self.log(number)).context("cannot write the log of a server")?;
        let server = &mut self.servers[number];
        let mut command = tokio::process::Command::new(&self.program.program);
        command
            .args(&self.program.arguments)
            .args(["serve", "--insecure-principals", "--coordinator", CREATOR, "--log", "info", "--no-http"])
            .args(["--listen", &format!("127.0.0.1:{}", server.port), "--server-name", &server.name])
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

    /// What a server tells of the owner of this server's shards.
    async fn shards_of(&self, owner: usize, as_told_by: usize) -> Option<(BTreeMap<u32, u64>, ShardCount)> {
        let told = timeout(LONGEST_VIEW, self.servers[as_told_by].probe.cluster()).await.ok()?.ok()?;
        let server = told.servers.iter().find(|server| server.name == self.servers[owner].name)?;
        let shards = server.shards.iter().map(|owned| (owned.shard, owned.epoch)).collect();
        Some((shards, ShardCount::new(told.shards).ok()?))
    }

    /// The shards that a server owned that does not answer any more: as it has told, and as another server tells still,
    /// before the lease has ended.
    async fn hit(
        &self,
        fault: &Fault,
        before: Option<(BTreeMap<u32, u64>, ShardCount)>,
        at: Instant,
    ) -> Option<Hit> {
        let (mut shards, count) = before?;
        if self.servers.len() > 1 {
            sleep(VIEW_LAG).await;
            let other = (fault.target + 1) % self.servers.len();
            let (after, _) = self.shards_of(fault.target, other).await?;
            shards.retain(|shard, epoch| after.get(shard) == Some(epoch));
        }
        Some(Hit { kind: fault.kind, at, is_deposed: false, shards: (shards, count) })
    }

    /// Looks whether others have the shards by now.
    async fn note_deposed(&self, target: usize, hit: &mut Option<Hit>) {
        if let Some(hit) = hit {
            let other = &self.servers[(target + 1) % self.servers.len()];
            let told = timeout(LONGEST_VIEW, other.probe.cluster()).await;
            let Ok(Ok(told)) = told else { return };
            let owned = |owner: &ClusterServer| {
                owner.name != self.servers[target].name
                    && owner.shards.iter().any(|owned| hit.shards.0.contains_key(&owned.shard))
            };
            hit.is_deposed = told.servers.iter().any(owned);
        }
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

    async fn inject_fault(
        &mut self,
        fault: &Fault,
        ask: &mut (dyn FnMut(&Hit, &Client) + Send),
    ) -> anyhow::Result<Option<Hit>> {
        let Fault { kind, target, lasts, .. } = *fault;
        let mut hit = None;
        match kind {
            FaultKind::ServerKilled => {
                let before = self.shards_of(target, target).await;
                let Some(mut child) = self.servers[target].child.take() else { bail!("it does not run") };
                child.kill().await.context("a server cannot be killed")?;
                let at = Instant::now();
                hit = self.hit(fault, before, at).await;
                sleep(lasts.saturating_sub(at.elapsed())).await;
                self.note_deposed(target, &mut hit).await;
                self.start_server(target)?;
            }
            FaultKind::ServerPaused => {
                let before = self.shards_of(target, target).await;
                self.signal(target, Signal::STOP)?;
                let at = Instant::now();
                hit = self.hit(fault, before, at).await;
                sleep(lasts.saturating_sub(at.elapsed())).await;
                self.note_deposed(target, &mut hit).await;
                if let Some(hit) = &hit {
                    ask(hit, &self.servers[target].probe);
                    sleep(ON_ITS_WAY).await;
                }
                self.signal(target, Signal::CONT)?;
            }
            FaultKind::ServerStopped => {
                self.stop(target).await?;
                sleep(lasts).await;
                self.start_server(target)?;
            }
            FaultKind::MemberKilled | FaultKind::EtcdKilled => {
                self.etcd.kill(target);
                sleep(lasts).await;
                self.etcd.restart(target).await?;
            }
            FaultKind::MemberPaused => {
                self.signal_members(target..target + 1, Signal::STOP)?;
                sleep(lasts).await;
                self.signal_members(target..target + 1, Signal::CONT)?;
            }
            FaultKind::EtcdPaused => {
                self.signal_members(0..self.size.members, Signal::STOP)?;
                sleep(lasts).await;
                self.signal_members(0..self.size.members, Signal::CONT)?;
            }
        }
        Ok(hit)
    }

    /// Whether all servers take part.
    async fn all_joined(&self) -> bool {
        let Some(Ok(told)) = timeout(LONGEST_VIEW, self.servers[0].probe.cluster()).await.ok() else {
            return false;
        };
        let takes_part = |server: &Member| {
            told.servers
                .iter()
                .any(|told| told.name == server.name && !told.draining && !told.shards.is_empty())
        };
        self.servers.iter().all(takes_part) && told.shards_without_owner.is_empty()
    }
}

fn send(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no process has such an id")?;
    kill_process(pid, signal).context("a process takes no signal")
}

impl Server for ClusterProcesses {
    fn set_clocks_ahead(&mut self, _: Duration) -> anyhow::Result<()> {
        bail!("the servers of a cluster have the clock of their clients")
    }

    fn start(&mut self) -> anyhow::Result<()> {
        (0..self.servers.len()).try_for_each(|number| self.start_server(number))
    }

    fn probe(&self) -> Client {
        self.servers[0].probe.clone()
    }

    /// Resolves when all servers take part, and each shard is served by one of them.
    async fn serves(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + LONGEST_TAKE_OVER;
        while !self.all_joined().await {
            self.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "not all servers take part and own shards within {LONGEST_TAKE_OVER:?}"
            );
            sleep(PROBE_EVERY).await;
        }
        let Some((_, count)) = self.shards_of(0, 0).await else {
            bail!("a server does not tell who owns what")
        };
        let urls = self.urls();
        let all = urls[1..].iter().fold(Client::builder(&urls[0]), ClientBuilder::server);
        let all = all.principal(CREATOR).connect_lazy()?;
        for shard in count.shards() {
            // There is no such instance: only the owner says so.
            let nothing = InstanceId::new(id_in_shard(1 << 60, shard, count));
            loop {
                self.check_alive()?;
                match timeout_at(deadline, all.get(nothing)).await {
                    Ok(Err(error)) if error.reason() == Some(RefusalReason::InstanceUnknown) => break,
                    Ok(_) if Instant::now() < deadline => sleep(PROBE_EVERY).await,
                    _ => bail!("shard {shard} is not served within {LONGEST_TAKE_OVER:?}"),
                }
            }
        }
        Ok(())
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        bail!("a cluster is not killed as a whole")
    }

    async fn inject(
        &mut self,
        fault: &Fault,
        ask: &mut (dyn FnMut(&Hit, &Client) + Send),
    ) -> anyhow::Result<Option<Hit>> {
        self.check_alive()?;
        self.inject_fault(fault, ask).await.with_context(|| fault.kind.to_string())
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

    fn starts(&self) -> u32 {
        self.servers.iter().map(|server| server.starts).sum()
    }

    /// Nobody counts how often a shard was taken.
    fn most_restarts(&self) -> u32 {
        u32::MAX
    }

    fn lateness(&self, time: &Range<std::time::Instant>) -> Duration {
        self.lateness.within(time)
    }
}
