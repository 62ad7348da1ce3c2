//! The server over a simulated machine: its connections come from any [`Listener`], and its log is kept on
//! any [`Disk`] or, if it is one of a cluster, in any store in the place of etcd. Everything above is the
//! real server: accept loop, HTTP/2, services, instances, the log with its queue and its group commit, the
//! engine and recovery.
//!
//! All of it runs in the tasks of one runtime. With a runtime of one thread and a paused clock, and with the
//! operating system's clock and random numbers replaced by the program, a run can be repeated exactly.

use std::fmt;
use std::sync::Arc;

pub use redb::StorageBackend;
#[cfg(feature = "cluster")]
use stickycas_cluster::store::Members;
use stickycas_proto::log::v1::DumpedInstance;
use tokio::net::TcpListener;

#[cfg(feature = "cluster")]
use crate::cluster::{Cluster, ClusterError};
use crate::commit_log::engine::{DiskEngine, Done, Engine, Files, Outcome, StoreUsage, Visit, WriteBatch};
use crate::commit_log::{CommitLog, MemoryLog};
use crate::instances::{Instances, Part, Recovery, RecoveryError};
use crate::limits::Limits;
use crate::quota::KnownPrincipals;
use crate::storage::{Storage, StorageError};
use crate::transport::Listener;
use crate::{Config, EngineError, ServeError, ServerParts, Stopped, serve_in};

/// A disk with the log of a server. Clones are the same disk.
pub trait Disk: Clone + Send + Sync + 'static {
    /// One of its files.
    type File: StorageBackend;

    /// The file of the checkpoints, and that of the tail.
    fn files(&self) -> [Self::File; 2];

    /// The log was opened, or made if there was none.
    fn opened(&self) {}

    /// A commit was written and synced, or has failed. Returns when the server may know that: a commit takes
    /// time; `false`: it never may, since the disk is gone.
    fn tell(&self, is_committed: bool) -> impl Future<Output = bool> + Send;
}

/// Serves on this listener and this disk until `shutdown` completes, as [`crate::run`] does; without a disk,
/// in memory. `http` is for operators. The server is killed by dropping the future.
///
/// # Errors
/// As [`crate::run`].
pub async fn serve<L: Listener>(
    grpc: L,
    http: Option<TcpListener>,
    disk: Option<impl Disk>,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let storage = match disk {
        None => Storage::new(&config)?,
        Some(disk) => {
            let engine = SimulatedEngine::open(disk)
                .map_err(|error| StorageError::from(RecoveryError::Engine(error)))?;
            Storage::durable(Arc::new(engine), None, &config.limits)?
        }
    };
    serve_in(ServerParts { grpc, tokens: None, http, credentials: None, storage }, config, shutdown).await
}

/// Serves on this listener as a server of a cluster over this store, until `shutdown` completes, as
/// [`crate::run`] does. The server is killed when the runtime ends in which it is called.
///
/// # Errors
/// As [`crate::run`]; and if the configuration names no cluster.
#[cfg(feature = "cluster")]
pub async fn serve_in_cluster<L: Listener>(
    grpc: L,
    store: impl Members + Clone,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> Result<Stopped, ServeError> {
    let member = config.cluster.as_ref().ok_or_else(|| ClusterError::Identity("it has no name".to_owned()));
    let cluster = member.and_then(|member| {
        let cluster = Cluster::with(store.clone(), member, &config.limits, false)?;
        cluster.look_after(store, member)?;
        Ok(cluster)
    });
    let storage = Storage::Cluster(cluster.map_err(StorageError::from)?);
    serve_in(ServerParts { grpc, tokens: None, http: None, credentials: None, storage }, config, shutdown)
        .await
}

/// An instance that a server has recovered.
#[derive(Clone, Debug)]
pub struct RecoveredInstance {
    /// What it is, and its history.
    pub dumped: DumpedInstance,
    /// Whether it is found by its name, if it has one.
    pub is_named: bool,
}

/// The instances that a server recovers from the log on this disk.
///
/// # Errors
/// If the log cannot be read, or is damaged.
pub fn recover(disk: impl Disk) -> Result<Vec<RecoveredInstance>, RecoveryError> {
    let engine = SimulatedEngine::open(disk).map_err(RecoveryError::Engine)?;
    let memory: Arc<dyn CommitLog> = Arc::<MemoryLog>::default();
    let limits = Limits { events: usize::MAX / 2, event_bytes: usize::MAX, ..Limits::default() };
    let instances = Instances::with(limits, &memory, KnownPrincipals::default());
    Recovery::run(&instances, &instances.only_shard(), &engine, None, Part::ALL)?;
    let recovered = instances.after(None, usize::MAX).into_iter();
    let recovered = recovered.map(|instance| RecoveredInstance {
        dumped: instance.dump(),
        is_named: instances.holds_name(&instance),
    });
    Ok(recovered.collect())
}

/// Bytes of a slot of the tail: so few that batches are divided, and slots are used again.
const SLOT_BYTES: usize = 16 * 1024;

/// The engine on a disk. A commit is written at once, and told when the disk says so.
struct SimulatedEngine<D> {
    engine: DiskEngine,
    disk: D,
}

impl<D: Disk> SimulatedEngine<D> {
    fn open(disk: D) -> Result<Self, EngineError> {
        let [database, tail] = disk.files();
        let engine = DiskEngine::on(Files { database, tail }, SLOT_BYTES)?;
        disk.opened();
        Ok(Self { engine, disk })
    }
}

impl<D> fmt::Debug for SimulatedEngine<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedEngine").finish_non_exhaustive()
    }
}

impl<D: Disk> Engine for SimulatedEngine<D> {
    fn depth(&self) -> usize {
        self.engine.depth()
    }

    fn blocks(&self) -> bool {
        false
    }

    fn write(&self, batch: WriteBatch, done: Done) {
        let disk = self.disk.clone();
        let done = Box::new(move |outcome| {
            tokio::spawn(async move {
                if disk.tell(matches!(outcome, Outcome::Committed)).await {
                    done(outcome);
                }
            });
        });
        self.engine.write(batch, done);
    }

    fn read(&self, visit: Visit<'_>) -> Result<(), EngineError> {
        self.engine.read(visit)
    }

    fn identity(&self) -> Result<Vec<u8>, EngineError> {
        self.engine.identity()
    }

    fn usage(&self) -> StoreUsage {
        self.engine.usage()
    }
}
