//! Where the services of a plan run, and the operations on them.
//!
//! | module | what |
//! | --- | --- |
//! | `containers` | the containers of a compose project |
//! | `processes` | servers and members of etcd as processes that are started here |
//! | `cluster` (feature `cluster`) | a cluster on any platform: its faults, and the requests during a fault |
//!
//! The third platform, machines in virtual time, is `loadgen/virtual`.

#[cfg(feature = "cluster")]
mod cluster;
pub mod containers;
pub(crate) mod processes;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use stickycas_client::raw::Connection;
use stickycas_client::{
    Client, ClientBuilder, ClusterInfo, ClusterServer, Error, RefusalReason, RetryPolicy,
};
use stickycas_proto::names::InstanceId;
use tokio::time::{Instant, sleep, timeout_at};

#[cfg(feature = "cluster")]
pub use self::cluster::{ClusterServers, client_of_all, revoke};
use crate::draw::FaultKind;
use crate::plan::{Action, Service, Step};
use crate::violation::ViolationKind;

/// The principal that creates the instances of the kill test.
pub const CREATOR: &str = "crash";
/// How clients try again: as they do by default, but more often, since a round is short, and for longer,
/// since on a busy machine a server that was killed may be back only after a while.
pub const RETRIES: RetryPolicy = RetryPolicy {
    first: Duration::from_millis(20),
    longest: Duration::from_millis(500),
    give_up_after: Duration::from_secs(120),
    reach_within: Duration::MAX,
};
/// The time after a fault within which messages on their way to a client arrive.
pub(crate) const ON_ITS_WAY: Duration = Duration::from_millis(150);
/// How long a server may take to recover.
const LONGEST_RECOVERY: Duration = Duration::from_secs(30);
const PROBE_EVERY: Duration = Duration::from_millis(4);

/// The servers of a cluster and its etcd, as processes or simulated machines, and the operations on them.
pub trait Machines: Send {
    /// Does this to a service, as a part of this step: the step itself, or what undoes it. It has its effect
    /// when this resolves: a service that was killed or stopped has ended.
    ///
    /// # Errors
    /// It cannot be done here, or has no effect.
    fn act(
        &mut self,
        action: Action,
        service: Service,
        step: &Step,
    ) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// The address of a server.
    fn url(&self, server: usize) -> String;

    /// Makes a client, which connects when it is first used.
    ///
    /// # Errors
    /// The errors of [`ClientBuilder::connect_lazy`].
    fn connect(&self, builder: ClientBuilder) -> Result<Client, Error>;

    /// Starts a server that does not run.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self, server: usize) -> anyhow::Result<()>;

    /// Whether all servers run.
    ///
    /// # Errors
    /// One has ended by itself; with what it said.
    fn check_alive(&mut self) -> anyhow::Result<()>;

    /// How long threads of the machine were stalled within this time, in all.
    fn lateness(&self, _time: &Range<std::time::Instant>) -> Duration {
        Duration::ZERO
    }
}

/// The name of a server in its cluster.
#[must_use]
pub fn server_name(server: usize) -> String {
    format!("s{server}")
}

/// A server that is killed, and started again on its log.
pub trait Server: Send {
    /// Sets its clocks so far ahead of those of its clients, from its next start on.
    ///
    /// # Errors
    /// It cannot have other clocks.
    fn set_clocks_ahead(&mut self, _ahead: Duration) -> anyhow::Result<()> {
        bail!("it has the clock of its clients")
    }

    /// Starts it. It serves later, see [`Self::serves`].
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&mut self) -> anyhow::Result<()>;

    /// The client that asks whether it serves.
    fn probe(&self) -> Client;

    /// Resolves when it serves: when it gives an answer that only a recovered server can give.
    ///
    /// # Errors
    /// It has ended, or does not serve in time.
    fn serves(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send {
        async {
            let (probe, deadline) = (self.probe(), Instant::now() + LONGEST_RECOVERY);
            loop {
                self.check_alive()?;
                // There is no such instance: a server that recovers would not say so.
                match timeout_at(deadline, probe.get(InstanceId::new(0))).await {
                    Ok(Ok(_)) => return Ok(()),
                    Ok(Err(error)) if error.reason() == Some(RefusalReason::InstanceUnknown) => return Ok(()),
                    Ok(Err(_)) if Instant::now() < deadline => sleep(PROBE_EVERY).await,
                    Ok(Err(_)) | Err(_) => bail!("it does not serve within {LONGEST_RECOVERY:?}"),
                }
            }
        }
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Errors
    /// It had ended by itself.
    fn kill(&mut self) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// Whether the server that was killed last had served. `seen`: whether a client saw it serve; nothing
    /// more is known of a process.
    fn had_served(&self, seen: bool) -> bool {
        seen
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// It has ended by itself; with what it said.
    fn check_alive(&mut self) -> anyhow::Result<()>;

    /// How often it was started.
    fn starts(&self) -> u32;

    /// The most restarts that an instance may have gone through.
    fn most_restarts(&self) -> u32 {
        self.starts().saturating_sub(1)
    }

    /// Does a step of a plan for a cluster, undoes it after its time, and returns its hit on a server, if the
    /// shards of that server are known. `ask` is called before a paused server goes on, with a connection to
    /// that server.
    ///
    /// # Errors
    /// It is no cluster, or a process does not start or end as it should.
    fn inject(
        &mut self,
        step: &Step,
        _ask: Ask<'_>,
    ) -> impl Future<Output = anyhow::Result<Injected>> + Send {
        let action = step.action;
        async move { bail!("{action}: it is no cluster") }
    }

    /// How long threads of its machine were stalled within this time, in all.
    fn lateness(&self, _time: &Range<std::time::Instant>) -> Duration {
        Duration::ZERO
    }
}

/// Whether so many servers or more take part in a cluster, each owns shards, and each shard has an owner.
pub(crate) fn all_serve(cluster: &ClusterInfo, servers: usize) -> bool {
    let serves = |server: &ClusterServer| !server.shards.is_empty() && !server.draining;
    cluster.servers.len() >= servers
        && cluster.servers.iter().all(serves)
        && cluster.shards_without_owner.is_empty()
}

/// Asks a server for instances that it owned.
pub type Ask<'a> = &'a mut (dyn FnMut(&Hit, &Connection) + Send);

/// A step that was done: its kind, and its hit on a server, if the shards of that server are known.
pub type Injected = (FaultKind, Option<Hit>);

/// A fault that has hit a server.
#[derive(Clone)]
pub struct Hit {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// Whether others had shards of it when it went on or was started again.
    pub is_deposed: bool,
    /// Its stale answers at that time, if others had its shards.
    pub stale: Stale,
    owned: Arc<dyn Fn(InstanceId) -> bool + Send + Sync>,
}

impl Hit {
    /// A fault of this kind. `owned`: whether the server owned an instance then.
    pub fn new(
        kind: FaultKind,
        at: Instant,
        is_deposed: bool,
        owned: impl Fn(InstanceId) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { kind, at, is_deposed, stale: Stale::default(), owned: Arc::new(owned) }
    }

    /// Whether the server owned this instance.
    #[must_use]
    pub fn owned(&self, id: InstanceId) -> bool {
        (self.owned)(id)
    }
}

/// The answers of a deposed server.
#[derive(Clone, Debug, Default)]
pub struct Stale {
    /// The number of Get and List requests.
    pub asked: u64,
    /// The stale answers.
    pub told: Vec<(ViolationKind, String)>,
}

impl Stale {
    /// Adds the answers to other requests.
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.told.extend(other.told);
    }
}
