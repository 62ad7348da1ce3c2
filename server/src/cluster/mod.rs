//! A server of a cluster (feature `cluster`): it owns some of the shards that the servers share over etcd,
//! for as long as the others agree, and keeps their logs there.
//!
//! ```text
//!  membership ──> claimed: read the log, recover, serve      a step ──> log of its shard ──> engine ─┐
//!   lease, view   requested: commit, drop, release                      batches of all shards        │
//!                 lost: drop                                 etcd <── transactions, fenced <─────────┘
//! ```
//!
//! Safety rests on the fences of [`stickycas_cluster::committer`] and on confirming reads
//! ([`stickycas_cluster::confirm`]), never on the lease: a server that was stopped and wakes up can write and
//! tell nothing of a shard that another one has by now.

mod directory;
mod engine;
mod ownership;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use stickycas_cluster::committer::{Committer, CommitterConfig};
use stickycas_cluster::confirm::Confirmer;
use stickycas_cluster::etcd::{self, Client, ConfigError};
use stickycas_cluster::keys::{BadName, Identity, Keys, Name, RulesVersion, ServerInfo};
use stickycas_cluster::maintenance::{MaintenanceConfig, maintenance};
use stickycas_cluster::membership::{Event, IdentityError, Membership, MembershipConfig};
use stickycas_cluster::shard::{BadShardCount, ShardCount, ShardId};
use stickycas_cluster::store::{Members, Store};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use self::directory::Directory;
use self::ownership::Held;
use self::store::{KeysIn, SharedStore};
use crate::commit_log::{LogState, RULES};
use crate::config::ClusterConfig;
use crate::instances::{Instances, Placement as _};
use crate::limits::Limits;
use crate::metrics::{ClusterSample, CommitLogMetrics, ShardMoves};
use crate::quota::KnownPrincipals;
use crate::readiness::{Readiness, State};

/// The pause before etcd is asked again for the cluster.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// Between two lines that tell the same reason why the cluster cannot be joined yet.
const SAY_EVERY: Duration = Duration::from_secs(30);
/// The time between two checks of whether the server can commit anything.
const CHECK_READY_EVERY: Duration = Duration::from_millis(100);
/// The time of a standstill, in times of a lease.
const STANDSTILL: u32 = 2;

/// The reason for which a server cannot take part.
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
    /// The start of the membership; `None` once the server has joined.
    begins: Mutex<Option<Begins>>,
    /// The shards that are taken or served.
    held: Mutex<BTreeMap<ShardId, Held>>,
    /// `None`: the store is none that is reached with credentials.
    etcd: OnceLock<Client>,
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
}

/// Begins to take part, with so many shards.
type Begins = Box<dyn FnOnce(ShardCount) -> Joined + Send>;

/// A server that takes part: its membership, the events for it, and the task of the membership.
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
        cluster.look_after(client.clone(), config)?;
        let _ = cluster.etcd.set(client);
        Ok(cluster)
    }

    /// Looks after the space of the store from now on.
    ///
    /// # Errors
    /// If the cluster has no name.
    pub(crate) fn look_after<S: Members>(
        &self,
        store: S,
        config: &ClusterConfig,
    ) -> Result<(), ClusterError> {
        let (keys, first) = (Keys::new(&Name::new(&config.name)?), self.shards.shards().next());
        let directory = self.directory.clone();
        let elected = move || {
            let membership = directory.membership();
            first.zip(membership).is_some_and(|(first, membership)| membership.owns(first))
        };
        let config = MaintenanceConfig { quota: config.etcd_quota, ..MaintenanceConfig::default() };
        let (space, work) = maintenance(store, keys, config, elected);
        self.directory.set_space(space);
        lock(&self.tasks).push(AbortOnDropHandle::new(tokio::spawn(work)));
        Ok(())
    }

    /// A server over any store, which nobody looks after.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub(crate) fn with<S: Store + Clone>(
        store: S,
        config: &ClusterConfig,
        limits: &Limits,
        has_threads: bool,
    ) -> Result<Arc<Self>, ClusterError> {
        let (cluster, name) = (Name::new(&config.name)?, Name::new(&config.server)?);
        let (shards, keys) = (ShardCount::new(config.shards)?, Keys::new(&cluster));
        let shared = Arc::new(store.clone());
        let commits = CommitterConfig { standstill: config.lease * STANDSTILL };
        let (committer, commits) = Committer::new(shared.clone(), keys.clone(), commits);
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
        let state = Arc::new(LogState::new(limits.uncommitted_bytes).with_full(committer.full()));
        let (stands_still, mut full) = (state.clone(), committer.full());
        let clock = async move {
            while full.changed().await.is_ok() {
                stands_still.set_store_full(*full.borrow_and_update());
            }
        };
        let tasks = vec![
            AbortOnDropHandle::new(tokio::spawn(commits)),
            AbortOnDropHandle::new(tokio::spawn(confirms)),
            AbortOnDropHandle::new(tokio::spawn(clock)),
        ];
        let metrics = Arc::<CommitLogMetrics>::default();
        Ok(Arc::new(Self {
            shards,
            directory: Arc::new(Directory::new(name, committer.full())),
            store: Arc::new(KeysIn { store: shared, keys }),
            confirmer,
            state,
            committer,
            metrics,
            moves: ShardMoves::default(),
            lease: config.lease,
            tail_bytes: (limits.log_tail_bytes as u64 / u64::from(shards.get())).max(LEAST_TAIL),
            has_threads,
            begins: Mutex::new(Some(begins)),
            held: Mutex::default(),
            etcd: OnceLock::new(),
            tasks: Mutex::new(tasks),
        }))
    }

    /// The instances of this server: none yet.
    pub(crate) fn instances(&self, limits: Limits, known: KnownPrincipals) -> Arc<Instances> {
        Instances::without_shards(
            limits,
            &self.state,
            known,
            self.directory.clone(),
            Some(self.store.clone()),
        )
    }

    /// The metrics of the logs of all shards.
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
        // It is a member when it has its lease.
        let _ = membership.valid_until().wait_for(Option::is_some).await;
        Ok(())
    }

    async fn identity(&self) -> Result<ShardCount, ClusterError> {
        let mut said = None;
        loop {
            match self.store.identity(Identity { shards: self.shards }).await {
                Ok(identity) => return Ok(identity.shards),
                Err(IdentityError::Record(error)) => return Err(ClusterError::Identity(error.to_string())),
                Err(IdentityError::Store(error)) => {
                    let error = error.to_string();
                    if said.as_ref().is_none_or(|(told, at): &(String, Instant)| {
                        *told != error || at.elapsed() >= SAY_EVERY
                    }) {
                        tracing::warn!(error, "the cluster cannot be joined yet: it is tried again");
                        said = Some((error, Instant::now()));
                    }
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    /// Reads the credentials for etcd again, and connects with them.
    pub(crate) async fn read_again(&self) {
        if let Some(etcd) = self.etcd.get() {
            etcd.read_again().await;
            tracing::info!("connecting to etcd anew, with its credentials as they are now");
        }
    }

    /// Tells whether anything can be committed, for ever.
    pub(crate) async fn follow_readiness(&self, readiness: &Readiness) {
        loop {
            let is_ready = self.directory.has_lease() && !self.committer.stalled();
            readiness.set(if is_ready { State::Serving } else { State::Stalled });
            tokio::time::sleep(CHECK_READY_EVERY).await;
        }
    }

    /// The counts of the moves of this server's shards.
    pub(crate) fn moves(&self) -> &ShardMoves {
        &self.moves
    }

    /// The cluster as this server sees it now.
    pub(crate) fn sample(&self) -> ClusterSample {
        let (view, own) = (self.directory.current_view(), self.directory.name().as_str());
        let owned = view.owners.values().filter(|owner| owner.server == own).count() as u64;
        let (served, held) = {
            let held = self.held();
            (held.values().filter(|held| held.is_taken).count() as u64, held.len() as u64)
        };
        // Others are refused at the joining.
        let shards = u64::from(self.shards.get());
        ClusterSample {
            shards,
            owned,
            served,
            taking: held - served,
            without_owner: shards.saturating_sub(view.owners.len() as u64),
            servers: view.servers.len() as u64,
            draining: view.servers.values().filter(|info| info.draining).count() as u64,
            lease: self.lease,
            lease_left: self.directory.lease_left().unwrap_or_default(),
            transactions: self.committer.transactions(),
            confirmations: self.confirmer.confirmations(),
            space: self.directory.space(),
            is_full: self.directory.no_space().is_some(),
        }
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
