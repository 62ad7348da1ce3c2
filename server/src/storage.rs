//! The log that a configuration asks for, from its opening to its end.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use stickycas_proto::status::RpcRefusal;
use tokio::task::spawn_blocking;

#[cfg(feature = "cluster")]
use crate::cluster::{Cluster, ClusterError};
use crate::commit_log::engine::{Engine, EngineError};
use crate::commit_log::{CommitLog, DataDir, DataDirError, DurableLog, LogState, MemoryLog};
use crate::config::Config;
use crate::instances::{Instances, Part, Recovered, Recovery, RecoveryError};
use crate::limits::Limits;
use crate::metrics::CommitLogMetrics;
use crate::quota::KnownPrincipals;
use crate::readiness::Readiness;

/// The interval at which the length of the log is checked.
const CHECK_LENGTH_EVERY: Duration = Duration::from_millis(200);

/// The interval of log lines while the log is still being opened.
const TELL_OPENING_EVERY: Duration = Duration::from_secs(3);

/// Tells that the log is still being opened. The engine does not report its progress.
fn tell_opening(log: &Path, elapsed: Duration) {
    let bytes = log.metadata().map_or(0, |log| log.len());
    tracing::info!("still opening {} for {} s, {bytes} bytes", log.display(), elapsed.as_secs());
}

fn engine_failed(panic: &tokio::task::JoinError) -> RecoveryError {
    RecoveryError::Engine(EngineError::failed(panic.to_string()))
}

/// Warns if instances may come to take more of the disk than is there. `held`: bytes that the log has
/// already.
fn warn_of_small_disk(limit: u64, held: u64, free: u64) {
    if limit > held.saturating_add(free) {
        tracing::warn!(
            log_bytes = limit,
            held,
            free,
            "instances may come to take log_bytes of the disk, which has less (held by the log and free): a full disk ends the \
             server; set log_bytes lower (--log-bytes), or make room"
        );
    }
}

/// The reason for which a server has no log.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Its folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The content of the log cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// The cluster cannot be joined.
    #[cfg(feature = "cluster")]
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// This build belongs to no cluster.
    #[cfg(not(feature = "cluster"))]
    #[error("this build belongs to no cluster: build it with --features cluster")]
    NoCluster,
    /// There is no thread for it.
    #[error("the log has no thread: {0}")]
    Thread(#[from] io::Error),
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Memory(Arc<MemoryLog>),
    Durable(Arc<Durable>),
    #[cfg(feature = "cluster")]
    Cluster(Arc<Cluster>),
}

#[derive(Debug)]
pub(crate) struct Durable {
    log: Arc<DurableLog>,
    /// Set once it is open.
    engine: OnceLock<Arc<dyn Engine>>,
    metrics: Arc<CommitLogMetrics>,
    /// Bytes of batches from which on checkpoints are written; or as many as the checkpoints have, if that is
    /// more.
    tail_bytes: u64,
    /// Other processes are kept out of the folder as long as the log may write.
    dir: Option<Arc<DataDir>>,
}

/// Also when serving is cancelled: all that the log has taken is committed, and the folder is free for
/// another server.
impl Drop for Durable {
    fn drop(&mut self) {
        self.log.close();
    }
}

impl Durable {
    fn new(dir: Option<DataDir>, limits: &Limits) -> Self {
        let metrics = Arc::<CommitLogMetrics>::default();
        Self {
            log: Arc::new(DurableLog::new(
                Arc::new(LogState::new(limits.uncommitted_bytes)),
                metrics.clone(),
            )),
            engine: OnceLock::new(),
            metrics,
            tail_bytes: limits.log_tail_bytes as u64,
            dir: dir.map(Arc::new),
        }
    }

    /// Tells operators how full the disk is.
    fn measure_disk(&self) {
        let Some(dir) = &self.dir else { return };
        self.metrics.bytes_on_disk.store(dir.log_bytes(), Ordering::Relaxed);
        if let Some(free) = dir.free_bytes() {
            self.metrics.free_bytes.store(free, Ordering::Relaxed);
        }
    }

    /// Opens the log in the folder, if it is not open. That walks through the whole file, however long that
    /// takes.
    async fn open_engine(&self) -> Result<(), StorageError> {
        let (None, Some(dir)) = (self.engine.get(), self.dir.clone()) else { return Ok(()) };
        // The folder stays locked as long as its log is open, also if nobody waits for that any more.
        let path = dir.log_path();
        let mut opening = spawn_blocking(move || dir.engine().map(|engine| (engine, dir)));
        let began = Instant::now();
        let opened = loop {
            match tokio::time::timeout(TELL_OPENING_EVERY, &mut opening).await {
                Ok(opened) => break opened,
                Err(_) => tell_opening(&path, began.elapsed()),
            }
        };
        let (engine, _dir) = opened.map_err(|panic| engine_failed(&panic))??;
        Ok(self.set_engine(Arc::new(engine))?)
    }

    fn set_engine(&self, engine: Arc<dyn Engine>) -> io::Result<()> {
        self.log.write_to(engine.clone())?;
        // It is set once: here, before anybody recovers.
        let _ = self.engine.set(engine);
        Ok(())
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        self.engine.get().expect("a log is opened before it is read")
    }
}

impl Storage {
    /// The log in the folder of this configuration, which is opened when it is [recovered](Self::recover); or
    /// in memory if there is none.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn new(config: &Config) -> Result<Self, StorageError> {
        let limits = &config.limits;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &config.cluster {
            return Ok(Self::Cluster(Cluster::new(cluster, limits)?));
        }
        #[cfg(not(feature = "cluster"))]
        if config.cluster.is_some() {
            return Err(StorageError::NoCluster);
        }
        let Some(path) = &config.data else { return Ok(Self::Memory(Arc::<MemoryLog>::default())) };
        let dir = DataDir::open(path)?;
        dir.check_restored()?;
        if let Some(free) = dir.free_bytes() {
            warn_of_small_disk(limits.log_bytes as u64, dir.log_bytes(), free);
        }
        let durable = Durable::new(Some(dir), limits);
        durable.measure_disk();
        Ok(Self::Durable(Arc::new(durable)))
    }

    /// Whether there may be instances to recover.
    pub(crate) fn recovers(&self) -> bool {
        !matches!(self, Self::Memory(_))
    }

    /// The instances of a server that keeps them here: none yet.
    pub(crate) fn instances(&self, limits: Limits, known: KnownPrincipals) -> Arc<Instances> {
        let log: Arc<dyn CommitLog> = match self {
            Self::Memory(log) => log.clone(),
            Self::Durable(durable) => durable.log.clone(),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => return cluster.instances(limits, known),
        };
        Instances::with(limits, &log, known)
    }

    /// The metrics of the log, unless it is in memory.
    pub(crate) fn metrics(&self) -> Option<Arc<CommitLogMetrics>> {
        match self {
            Self::Memory(_) => None,
            Self::Durable(durable) => Some(durable.metrics.clone()),
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => Some(cluster.metrics()),
        }
    }

    /// The cluster, if the server belongs to one.
    #[cfg(feature = "cluster")]
    pub(crate) fn cluster(&self) -> Option<Arc<Cluster>> {
        match self {
            Self::Cluster(cluster) => Some(cluster.clone()),
            Self::Memory(_) | Self::Durable(_) => None,
        }
    }

    /// A log on this engine. `dir`: the folder that it keeps from others.
    ///
    /// # Errors
    /// If the log has no thread.
    pub(crate) fn durable(
        engine: Arc<dyn Engine>,
        dir: Option<DataDir>,
        limits: &Limits,
    ) -> Result<Self, StorageError> {
        let durable = Durable::new(dir, limits);
        durable.set_engine(engine)?;
        Ok(Self::Durable(Arc::new(durable)))
    }

    /// Recovers the instances.
    ///
    /// # Errors
    /// The reason for which the log cannot be recovered.
    pub(crate) async fn replay(&self, instances: &Arc<Instances>) -> Result<Recovered, RecoveryError> {
        let Self::Durable(durable) = self else { return Ok(Recovered::default()) };
        let (engine, target) = (durable.engine().clone(), instances.clone());
        if !engine.blocks() {
            return Recovery::run(&target, &target.only_shard(), &*engine, None, Part::ALL);
        }
        // The folder stays locked as long as its log is read, also if nobody waits for that any more.
        let dir = durable.dir.clone();
        let replaying = spawn_blocking(move || {
            let file_bytes = dir.as_ref().map(|dir| dir.log_bytes());
            Recovery::run(&target, &target.only_shard(), &*engine, file_bytes, Part::ALL)
        });
        replaying.await.map_err(|panic| engine_failed(&panic))?
    }

    /// Opens the log, recovers the instances, and goes on behind them.
    ///
    /// # Errors
    /// The reason for which the log cannot be opened or recovered.
    pub(crate) async fn recover(&self, instances: &Arc<Instances>) -> Result<(), StorageError> {
        match self {
            Self::Memory(_) => {}
            Self::Durable(durable) => durable.open_engine().await?,
            #[cfg(feature = "cluster")]
            Self::Cluster(cluster) => return Ok(cluster.join(instances).await?),
        }
        let recovered = self.replay(instances).await?;
        let Recovered { instances: found, batches, records, .. } = recovered;
        if self.recovers() {
            tracing::info!(instances = found, batches, records, "recovered");
        }
        self.begin(instances, recovered).await;
        if let Self::Durable(durable) = self {
            durable.log.serve();
        }
        Ok(())
    }

    /// Goes on behind what was recovered: logs that the server has restarted. Time does not go on with that.
    pub(crate) async fn begin(&self, instances: &Instances, recovered: Recovered) {
        let Self::Durable(durable) = self else { return };
        instances.go_on(&instances.only_shard(), &durable.log, recovered).await;
    }

    /// Gives every instance with new records a checkpoint, and trims the log.
    pub(crate) async fn shorten(&self, instances: &Instances) {
        if let Self::Durable(durable) = self {
            instances.write_checkpoints(&instances.only_shard(), &durable.log).await;
        }
    }

    /// Writes checkpoints and trims the log, for ever.
    pub(crate) async fn keep_short(&self, instances: &Instances) {
        #[cfg(feature = "cluster")]
        if let Self::Cluster(cluster) = self {
            return cluster.keep_short(instances).await;
        }
        let Self::Durable(durable) = self else { return };
        loop {
            tokio::time::sleep(CHECK_LENGTH_EVERY).await;
            if durable.log.failure().is_some() {
                return;
            }
            if let Err(error) = durable.engine().check_place() {
                return durable.log.disk_failed(error);
            }
            durable.measure_disk();
            let (shard, started) = (instances.only_shard(), Instant::now());
            if instances.keep_short(&shard, &durable.log, durable.tail_bytes).await {
                let usage = durable.log.usage();
                tracing::debug!(?usage, took = ?started.elapsed(), "checkpoints written");
            }
        }
    }

    /// The folder of the log, and what keeps it.
    pub(crate) fn folder(&self) -> Option<(&Path, Arc<dyn Engine>)> {
        match self {
            Self::Memory(_) => None,
            #[cfg(feature = "cluster")]
            Self::Cluster(_) => None,
            Self::Durable(durable) => Some((durable.dir.as_ref()?.path(), durable.engine.get()?.clone())),
        }
    }

    /// The log, if it is durable.
    #[cfg(test)]
    pub(crate) fn durable_log(&self) -> Option<&DurableLog> {
        match self {
            Self::Durable(durable) => Some(&durable.log),
            _ => None,
        }
    }

    /// Completes with the reason when the log has failed.
    pub(crate) async fn failed(&self) -> RpcRefusal {
        // In a cluster, a shard whose log has failed is another server's to try.
        let Self::Durable(durable) = self else { return std::future::pending().await };
        durable.log.failed().await
    }

    /// Tells whether anything can be committed, for ever, if that changes without the end of the server.
    pub(crate) async fn follow_readiness(&self, readiness: &Readiness) {
        #[cfg(feature = "cluster")]
        if let Self::Cluster(cluster) = self {
            return cluster.follow_readiness(readiness).await;
        }
        let _ = readiness;
    }

    /// Reads again what proves to etcd who this is, if the server belongs to a cluster.
    #[cfg_attr(not(feature = "cluster"), expect(clippy::unused_async, reason = "etcd is waited for"))]
    pub(crate) async fn read_credentials_again(&self) {
        #[cfg(feature = "cluster")]
        if let Self::Cluster(cluster) = self {
            cluster.read_again().await;
        }
    }

    /// Before a server of a cluster stops, it hands its shards over, in at most this time.
    pub(crate) async fn hand_over(&self, within: Duration) {
        #[cfg(feature = "cluster")]
        if let Self::Cluster(cluster) = self {
            cluster.leave(within).await;
        }
        #[cfg(not(feature = "cluster"))]
        let _ = within;
    }

    /// Instances are not served here any more: writes for how long they were. The shards of a cluster are
    /// handed over.
    pub(crate) fn write_last_served_time(&self) {
        if let Self::Durable(durable) = self {
            durable.log.write_last_served_time();
        }
    }

    /// Commits what was logged, and ends the log.
    pub(crate) async fn close(&self) {
        if let Self::Durable(durable) = self {
            let log = durable.log.clone();
            if durable.engine.get().is_none_or(|engine| engine.blocks()) {
                let _ = spawn_blocking(move || log.close()).await;
            } else {
                log.committed().await;
                log.close();
            }
        }
    }
}
