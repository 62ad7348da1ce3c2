//! The log that a configuration asks for, from its opening to its end.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stickycas_proto::status::RpcRefusal;
use tokio::task::spawn_blocking;

use crate::commit_log::engine::Engine;
use crate::commit_log::{CommitLog, DataDir, DataDirError, DurableLog, MemoryLog};
use crate::instances::{Instances, Recovered, Recovery, RecoveryError};
use crate::limits::Limits;
use crate::metrics::CommitLogMetrics;

/// How often the length of the log is looked at.
const CHECK_LENGTH_EVERY: Duration = Duration::from_millis(200);

/// Why a server has no log.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Its folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// What the log holds cannot be recovered.
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    /// There is no thread for it.
    #[error("the log has no thread: {0}")]
    Thread(#[from] io::Error),
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) enum Storage {
    Memory(Arc<MemoryLog>),
    Durable(Arc<Durable>),
}

#[derive(Debug)]
pub(crate) struct Durable {
    log: Arc<DurableLog>,
    engine: Arc<dyn Engine>,
    metrics: Arc<CommitLogMetrics>,
    /// Bytes of batches from which on checkpoints are written; or as many as the checkpoints have, if that is more.
    tail_bytes: u64,
    /// Other processes are kept out of the folder as long as the log may write.
    dir: Option<DataDir>,
}

/// Also when serving is cancelled: what the log has taken is committed, and the folder is free for another server.
impl Drop for Durable {
    fn drop(&mut self) {
        self.log.close();
    }
}

impl Storage {
    /// The log in this folder, or in memory if there is none.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub(crate) fn open(
        data: Option<&Path>,
        limits: &Limits,
        metrics: &Arc<CommitLogMetrics>,
    ) -> Result<Self, StorageError> {
        let Some(path) = data else { return Ok(Self::Memory(Arc::new(MemoryLog))) };
        let dir = DataDir::open(path)?;
        let engine = Arc::new(dir.engine()?);
        Self::durable(engine, Some(dir), limits, metrics)
    }

    /// Whether there may be instances to recover.
    pub(crate) fn recovers(&self) -> bool {
        matches!(self, Self::Durable(_))
    }

    pub(crate) fn log(&self) -> Arc<dyn CommitLog> {
        match self {
            Self::Memory(log) => log.clone(),
            Self::Durable(durable) => durable.log.clone(),
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
        metrics: &Arc<CommitLogMetrics>,
    ) -> Result<Self, StorageError> {
        let log = Arc::new(DurableLog::new(engine.clone(), limits.uncommitted_bytes, metrics.clone())?);
        let tail_bytes = limits.log_tail_bytes as u64;
        Ok(Self::Durable(Arc::new(Durable { log, engine, metrics: metrics.clone(), tail_bytes, dir })))
    }

    /// Recovers the instances.
    ///
    /// # Errors
    /// Why the log cannot be recovered.
    pub(crate) async fn replay(&self, instances: &Arc<Instances>) -> Result<Recovered, RecoveryError> {
        let Self::Durable(durable) = self else { return Ok(Recovered::default()) };
        let (engine, target) = (durable.engine.clone(), instances.clone());
        if !engine.blocks() {
            return Recovery::run(&target, &*engine, None);
        }
        let file_bytes = durable.dir.as_ref().and_then(|dir| Some(dir.log_path().metadata().ok()?.len()));
        let replaying = spawn_blocking(move || Recovery::run(&target, &*engine, file_bytes));
        replaying.await.map_err(|error| RecoveryError::Engine(error.to_string()))?
    }

    /// Recovers the instances, and goes on behind them.
    ///
    /// # Errors
    /// Why the log cannot be recovered.
    pub(crate) async fn recover(&self, instances: &Arc<Instances>) -> Result<(), RecoveryError> {
        let recovered = self.replay(instances).await?;
        let Recovered { instances: found, batches, records, .. } = recovered;
        if self.recovers() {
            tracing::info!(instances = found, batches, records, "recovered");
        }
        self.begin(instances, recovered).await;
        Ok(())
    }

    /// Goes on behind what was recovered: logs that the server has restarted.
    pub(crate) async fn begin(&self, instances: &Instances, recovered: Recovered) {
        let Self::Durable(durable) = self else { return };
        durable.log.begin(recovered.last, recovered.served, recovered.dirty).await;
        instances.restart(recovered.served).await;
    }

    /// Gives every instance with new records a checkpoint, and trims the log.
    pub(crate) async fn shorten(&self, instances: &Instances) {
        if let Self::Durable(durable) = self {
            instances.write_checkpoints(&durable.log).await;
        }
    }

    /// Writes checkpoints and trims the log, for ever.
    pub(crate) async fn keep_short(&self, instances: &Instances) {
        let Self::Durable(durable) = self else { return };
        loop {
            tokio::time::sleep(CHECK_LENGTH_EVERY).await;
            if let Some(metadata) = durable.dir.as_ref().and_then(|dir| dir.log_path().metadata().ok()) {
                durable.metrics.set_bytes_on_disk(metadata.len());
            }
            durable.log.tell_time();
            let usage = durable.log.usage();
            if usage.batches >= durable.tail_bytes.max(usage.checkpoints) {
                let started = Instant::now();
                self.shorten(instances).await;
                let usage = durable.log.usage();
                tracing::debug!(?usage, took = ?started.elapsed(), "checkpoints written");
            }
        }
    }

    /// The folder of the log, and what keeps it.
    pub(crate) fn folder(&self) -> Option<(&Path, Arc<dyn Engine>)> {
        match self {
            Self::Memory(_) => None,
            Self::Durable(durable) => Some((durable.dir.as_ref()?.path(), durable.engine.clone())),
        }
    }

    /// The log, if it is durable.
    #[cfg(test)]
    pub(crate) fn durable_log(&self) -> Option<&DurableLog> {
        match self {
            Self::Memory(_) => None,
            Self::Durable(durable) => Some(&durable.log),
        }
    }

    /// Completes with the reason when the log has failed.
    pub(crate) async fn failed(&self) -> RpcRefusal {
        match self {
            Self::Memory(_) => std::future::pending().await,
            Self::Durable(durable) => durable.log.failure_signal().wait().await,
        }
    }

    /// Commits what was logged, and ends the log.
    pub(crate) async fn close(&self) {
        if let Self::Durable(durable) = self {
            let log = durable.log.clone();
            if durable.engine.blocks() {
                let _ = spawn_blocking(move || log.close()).await;
            } else {
                log.committed().await;
                log.close();
            }
        }
    }
}
