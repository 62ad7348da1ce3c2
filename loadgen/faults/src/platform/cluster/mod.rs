//! The servers of a cluster and its etcd on any platform, and their faults.
//!
//! | module | what |
//! | --- | --- |
//! | `faults` | the faults, and the requests before, during and after a fault |
//! | `stale` | a check that a deposed server gives no stale answers |

mod faults;
mod stale;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use stickycas_client::{Client, ClientBuilder, Error, RefusalReason, RetryPolicy};
use stickycas_cluster::keys::{Keys, Name};
use stickycas_cluster::shard::{ShardCount, id_in_shard, shard_of};
use stickycas_cluster::store::{KeyRange, Store, StoreError};
use stickycas_proto::names::InstanceId;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Ask, CREATOR, Injected, Machines, RETRIES, Server, all_serve, server_name};
use crate::draw::ClusterSize;
use crate::plan::Step;

/// The longest time until all shards are served. A server keeps shards for 16 leases that it took in the
/// place of another, and on a slow machine more than one of them loses its lease meanwhile.
const LONGEST_TAKE_OVER: Duration = Duration::from_secs(180);
/// The longest time until a server answers with the owners of all shards.
const LONGEST_VIEW: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_millis(20);
/// The pause between two requests whether all servers take part. Until they do, many leases pass.
const ASK_WHETHER_JOINED_EVERY: Duration = Duration::from_millis(200);
/// The keep-alive interval of clients. With the default of 20 s a paused server would mostly go on before its
/// clients leave it.
const KEEP_ALIVE: Duration = Duration::from_secs(1);

/// The time within which etcd must have ended a lease, and the pause before it is asked again.
const LONGEST_REVOCATION: Duration = Duration::from_secs(60);
const REVOKE_AGAIN: Duration = Duration::from_millis(50);

/// A client of all servers for the connection with this number: it asks another server first than the next
/// one.
pub fn client_of_all(size: ClusterSize, machines: &impl Machines, connection: usize) -> ClientBuilder {
    of_servers(machines, (0..size.servers).map(|server| (connection + server) % size.servers))
}

/// A client of these servers, of which there is one.
fn of_servers(machines: &impl Machines, servers: impl IntoIterator<Item = usize>) -> ClientBuilder {
    let mut urls = servers.into_iter().map(|server| machines.url(server));
    let first = Client::builder(urls.next().expect("a server"));
    urls.fold(first, ClientBuilder::server).principal(CREATOR).retry(RETRIES).keep_alive(KEEP_ALIVE)
}

/// A client that knows this server alone, and tries once. A call that names an instance goes where the server
/// says that its owner is; for such calls there is [`Client::connection`].
fn of_one(machines: &impl Machines, server: usize) -> Result<Client, Error> {
    let retry = RetryPolicy { give_up_after: Duration::ZERO, ..RetryPolicy::default() };
    machines.connect(Client::builder(machines.url(server)).principal(CREATOR).retry(retry))
}

/// Ends the lease of a server, which does not learn of it. etcd may be without a leader for a while after the
/// fault before.
///
/// # Errors
/// etcd does not end it in time.
pub async fn revoke(etcd: &impl Store, cluster: &str, server: usize) -> anyhow::Result<()> {
    let key = Keys::new(&Name::new(cluster)?).server(&Name::new(&server_name(server))?);
    let deadline = Instant::now() + LONGEST_REVOCATION;
    loop {
        let ended = match etcd.range(KeyRange::one(key.clone()), 1).await {
            Ok(found) => match found.found.first().and_then(|key| key.lease) {
                Some(lease) => etcd.revoke(lease).await,
                // It has ended already.
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) | Err(StoreError::NoLease) => return Ok(()),
            Err(error) if Instant::now() >= deadline => return Err(error.into()),
            Err(_) => sleep(REVOKE_AGAIN).await,
        }
    }
}

/// The shards that a server owns, with their epochs.
#[derive(Clone, Debug)]
struct Owned {
    epochs: BTreeMap<u32, u64>,
    count: ShardCount,
}

impl Owned {
    fn has(&self, id: InstanceId) -> bool {
        self.epochs.contains_key(&shard_of(id.get(), self.count).get())
    }
}

/// The servers of a round.
#[derive(Debug)]
pub struct ClusterServers<M> {
    machines: M,
    size: ClusterSize,
    /// A client of each server alone.
    probes: Vec<Client>,
    starts: u32,
}

impl<M: Machines> ClusterServers<M> {
    /// Servers that were not started yet.
    ///
    /// # Errors
    /// See [`Machines::connect`].
    pub fn new(machines: M, size: ClusterSize) -> Result<Self, Error> {
        let probes = (0..size.servers).map(|server| of_one(&machines, server)).collect::<Result<_, _>>()?;
        Ok(Self { machines, size, probes, starts: 0 })
    }

    fn start_server(&mut self, server: usize) -> anyhow::Result<()> {
        self.starts += 1;
        self.machines.start(server)
    }

    /// Whether all servers take part.
    async fn all_joined(&self) -> bool {
        let told = timeout(LONGEST_VIEW, self.probes[0].cluster()).await;
        told.is_ok_and(|told| told.is_ok_and(|told| all_serve(&told, self.size.servers)))
    }
}

/// Resolves when the owner of its shard says that there is no such instance.
async fn is_served(all: Client, nothing: InstanceId) {
    while all.get(nothing).await.err().and_then(|error| error.reason())
        != Some(RefusalReason::InstanceUnknown)
    {
        sleep(PROBE_EVERY).await;
    }
}

impl<M: Machines + Sync> Server for ClusterServers<M> {
    fn start(&mut self) -> anyhow::Result<()> {
        (0..self.size.servers).try_for_each(|server| self.start_server(server))
    }

    fn probe(&self) -> Client {
        self.probes[0].clone()
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
            sleep(ASK_WHETHER_JOINED_EVERY).await;
        }
        let told = self.probes[0].cluster().await.context("a server does not tell who owns what")?;
        let count = ShardCount::new(told.shards)?;
        let all = self.machines.connect(of_servers(&self.machines, 0..self.size.servers))?;
        let mut asked = JoinSet::new();
        for shard in count.shards() {
            // There is no such instance: only the owner says so.
            let nothing = InstanceId::new(id_in_shard(1 << 60, shard, count));
            asked.spawn(is_served(all.clone(), nothing));
        }
        while !asked.is_empty() {
            self.check_alive()?;
            let _ = timeout(LONGEST_VIEW, asked.join_next()).await;
            ensure!(
                Instant::now() < deadline || asked.is_empty(),
                "{} shards are not served within {LONGEST_TAKE_OVER:?}",
                asked.len()
            );
        }
        Ok(())
    }

    async fn kill(&mut self) -> anyhow::Result<()> {
        bail!("a cluster is not killed as a whole")
    }

    async fn inject(&mut self, step: &Step, ask: Ask<'_>) -> anyhow::Result<Injected> {
        self.check_alive()?;
        self.inject_fault(step, ask).await
    }

    fn check_alive(&mut self) -> anyhow::Result<()> {
        self.machines.check_alive()
    }

    fn starts(&self) -> u32 {
        self.starts
    }

    /// No count is kept of the takeovers of a shard.
    fn most_restarts(&self) -> u32 {
        u32::MAX
    }

    fn lateness(&self, time: &Range<std::time::Instant>) -> Duration {
        self.machines.lateness(time)
    }
}
