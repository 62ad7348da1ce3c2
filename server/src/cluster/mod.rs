//! A server of a cluster (feature `cluster`): it owns some of the shards that the servers share over etcd, for as long as
//! the others agree, and keeps their logs there.
//!
//! ```text
//!  membership ──> claimed: read the log, recover, serve      a step ──> log of its shard ──> engine ─┐
//!   lease, view   requested: commit, drop, release                      batches of all shards        │
//!                 lost: drop                                 etcd <── transactions, fenced <─────────┘
//! ```
//!
//! Safety rests on the fences of [`stickycas_cluster::committer`] and on confirming reads
//! ([`stickycas_cluster::confirm`]), never on the lease: a server that was stopped and wakes up can write and tell
//! nothing of a shard that another one has by now.

mod directory;
mod engine;
mod ownership;
mod sample;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stickycas_cluster::committer::{Committer, CommitterConfig};
use stickycas_cluster::confirm::Confirmer;
use stickycas_cluster::etcd::{self, Client, ConfigError};
use stickycas_cluster::keys::{BadName, Identity, Keys, Name, RulesVersion, ServerInfo};
use stickycas_cluster::maintenance::{MaintenanceConfig, Members, maintenance};
use stickycas_cluster::membership::{Event, IdentityError, Membership, MembershipConfig};
use stickycas_cluster::shard::{BadShardCount, ShardCount, ShardId};
use stickycas_cluster::store::Store;
use stickycas_proto::status::RpcRefusal;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use self::directory::{Directory, Names};
use self::ownership::Held;
use self::store::{KeysIn, SharedStore};
use crate::commit_log::{LogState, RULES};
use crate::config::ClusterConfig;
use crate::instances::Instances;
use crate::limits::Limits;
use crate::metrics::{CommitLogMetrics, ShardMoves};
use crate::quota::KnownPrincipals;

/// The pause before etcd is asked again for the cluster.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Why a server cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// etcd cannot be reached in this way.
    #[error(transparent)]
    Etcd(#[from] ConfigError),
    /// The cluster or the server has no such name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// No cluster has so many shards.
    #[error(transparent)]
    Shards(#[from] BadShardCount),
    /// The keys of the cluster hold something else.
    #[error("the cluster cannot be joined: {0}")]
    Identity(String),
    /// The cluster has another number of shards, which never changes.
    #[error(
        "the cluster has {found} shards, and {wanted} were asked for: give --shards {found}, or another --cluster"
    )]
    OtherShards {
        /// As many it has.
        found: u32,
        /// As many were asked for.
        wanted: u32,
    },
}

/// See the module.
pub(crate) struct Cluster {
    shards: ShardCount,
    directory: Arc<Directory>,
    store: Arc<dyn SharedStore>,
    committer: Committer,
    confirmer: Confirmer,
    state: Arc<LogState>,
    metrics: Arc<CommitLogMetrics>,
    moves: ShardMoves,
    lease: Duration,
    /// Bytes of batches from which on a shard gets checkpoints.
    tail_bytes: u64,
    /// Whether the log of a shard is replayed on a thread of its own. A simulation has one thread.
    has_threads: bool,
    /// Until it is joined: the membership that is to begin.
    begins: Mutex<Option<Begins>>,
    /// Until it is joined: the maintenance of etcd that is to begin.
    maintains: Mutex<Option<Maintains>>,
    /// The shards that are taken or served.
    held: Mutex<BTreeMap<ShardId, Held>>,
    failed: watch::Sender<Option<RpcRefusal>>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// Begins to take part, with so many shards.
type Begins = Box<dyn FnOnce(ShardCount) -> Joined + Send>;

/// Begins to look after etcd's space.
type Maintains = Box<dyn FnOnce(Membership) -> AbortOnDropHandle<()> + Send>;

/// A server that takes part: what it has to do, and what does the work.
type Joined = (Membership, mpsc::UnboundedReceiver<Event>, AbortOnDropHandle<()>);

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("shards", &self.shards).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A server of this cluster, which has not joined it yet.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub(crate) fn new(config: &ClusterConfig, limits: &Limits) -> Result<Arc<Self>, ClusterError> {
        let mut etcd = etcd::Config::new(config.etcd.clone()).with_lease(config.lease);
        if let Some(folder) = &config.etcd_credentials {
            etcd = etcd.with_folder(folder)?;
        }
        let client = Client::new(&etcd)?;
        let cluster = Self::with(client.clone(), config, limits, true)?;
        cluster.look_after(client, config)?;
        Ok(cluster)
    }

    /// The same over any store, in one thread.
    ///
    /// # Errors
    /// See [`ClusterError`].
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn simulated<S: Members + Clone>(
        store: S,
        config: &ClusterConfig,
        limits: &Limits,
    ) -> Result<Arc<Self>, ClusterError> {
        let cluster = Self::with(store.clone(), config, limits, false)?;
        cluster.look_after(store, config)?;
        Ok(cluster)
    }

    /// Looks after the space of the store from the joining on.
    fn look_after<S: Members>(&self, store: S, config: &ClusterConfig) -> Result<(), ClusterError> {
        let (keys, first) = (Keys::new(&Name::new(&config.name)?), self.shards.shards().next());
        let (directory, quota) = (self.directory.clone(), config.etcd_quota);
        *lock(&self.maintains) = Some(Box::new(move |membership| {
            let elected = move || first.is_some_and(|first| membership.owns(first));
            let config = MaintenanceConfig { quota, ..MaintenanceConfig::default() };
            let (space, work) = maintenance(store, keys, config, elected);
            directory.set_space(space);
            AbortOnDropHandle::new(tokio::spawn(work))
        }));
        Ok(())
    }

    /// A server whose etcd nobody looks after.
    fn with<S: Store + Clone>(
        store: S,
        config: &ClusterConfig,
        limits: &Limits,
        has_threads: bool,
    ) -> Result<Arc<Self>, ClusterError> {
        let (cluster, name) = (Name::new(&config.name)?, Name::new(&config.server)?);
        let (shards, keys) = (ShardCount::new(config.shards)?, Keys::new(&cluster));
        let shared = Arc::new(store.clone());
        let (committer, commits) = Committer::new(shared.clone(), keys.clone(), CommitterConfig::default());
        let (confirmer, confirms) = Confirmer::new(shared.clone(), keys.clone());
        let member = MembershipConfig {
            name: name.clone(),
            info: ServerInfo {
                address: config.advertise.clone(),
                incarnation: rand::random(),
                replays: RulesVersion(RULES),
                draining: false,
            },
            time_to_live: config.lease,
        };
        let joins = keys.clone();
        let begins: Begins = Box::new(move |shards| {
            let (membership, events, work) = Membership::new(store, joins, shards, member);
            (membership, events, AbortOnDropHandle::new(tokio::spawn(work)))
        });
        let tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(commits)),
            AbortOnDropHandle::new(tokio::spawn(confirms)),
        ];
        let metrics = Arc::<CommitLogMetrics>::default();
        Ok(Arc::new(Self {
            shards,
            directory: Arc::new(Directory::new(name, committer.full())),
            store: Arc::new(KeysIn { store: shared, keys }),
            committer,
            confirmer,
            state: Arc::new(LogState::new(limits.uncommitted_bytes)),
            metrics,
            moves: ShardMoves::default(),
            lease: config.lease,
            tail_bytes: (limits.log_tail_bytes as u64 / u64::from(shards.get())).max(LEAST_TAIL),
            has_threads,
            begins: Mutex::new(Some(begins)),
            maintains: Mutex::new(None),
            held: Mutex::default(),
            failed: watch::Sender::new(None),
            tasks: Mutex::new(tasks),
        }))
    }

    /// The instances of this server: none yet.
    pub(crate) fn instances(&self, limits: Limits, known: KnownPrincipals) -> Arc<Instances> {
        let names = Arc::new(Names(self.store.clone()));
        Instances::without_shards(limits, &self.state, known, self.directory.clone(), Some(names))
    }

    /// What the logs of all shards measure of themselves.
    pub(crate) fn metrics(&self) -> Arc<CommitLogMetrics> {
        self.metrics.clone()
    }

    /// Joins the cluster, however long etcd is silent, and takes part in it from then on.
    ///
    /// # Errors
    /// If it is no such cluster.
    pub(crate) async fn join(self: &Arc<Self>, instances: &Arc<Instances>) -> Result<(), ClusterError> {
        let found = self.identity().await?;
        if found != self.shards {
            return Err(ClusterError::OtherShards { found: found.get(), wanted: self.shards.get() });
        }
        let Some(begins) = lock(&self.begins).take() else { return Ok(()) };
        let (membership, events, work) = begins(self.shards);
        self.directory.set_joined(self.shards, membership.clone());
        let (cluster, instances) = (Arc::downgrade(self), instances.clone());
        let events = AbortOnDropHandle::new(tokio::spawn(ownership::follow(cluster, instances, events)));
        lock(&self.tasks).extend([work, events]);
        if let Some(maintains) = lock(&self.maintains).take() {
            lock(&self.tasks).push(maintains(membership.clone()));
        }
        // It is a member when it has its lease.
        let _ = membership.valid_until().wait_for(Option::is_some).await;
        Ok(())
    }

    async fn identity(&self) -> Result<ShardCount, ClusterError> {
        loop {
            match self.store.identity(Identity { shards: self.shards }).await {
                Ok(identity) => return Ok(identity.shards),
                Err(IdentityError::Record(error)) => return Err(ClusterError::Identity(error.to_string())),
                Err(IdentityError::Store(error)) => {
                    tracing::warn!(%error, "etcd does not answer yet");
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// Completes with the reason when the server may take no part any more.
    pub(crate) async fn failed(&self) -> RpcRefusal {
        let mut failed = self.failed.subscribe();
        let why = failed.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        // The sender lives as long as this.
        why.unwrap_or_else(RpcRefusal::internal)
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<ShardId, Held>> {
        lock(&self.held)
    }
}

/// A shard gets no checkpoints before its log has so many bytes.
const LEAST_TAIL: u64 = 256 << 10;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
