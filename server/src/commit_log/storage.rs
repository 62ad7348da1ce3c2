//! The log that a configuration asks for, from its opening to its end.

use std::io;
use std::path::Path;
use std::sync::Arc;

use stickycas_proto::status::RpcRefusal;
use tokio::task::spawn_blocking;

use super::engine::Engine;
use super::{CommitLog, DataDir, DataDirError, DurableLog, MemoryLog};
use crate::instances::{Instances, Recovery, RecoveryError};
use crate::limits::Limits;

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
    /// Other processes are kept out of the folder as long as the log may write.
    _dir: DataDir,
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
    pub(crate) fn open(data: Option<&Path>, limits: &Limits) -> Result<Self, StorageError> {
        let Some(path) = data else { return Ok(Self::Memory(Arc::new(MemoryLog))) };
        let dir = DataDir::open(path)?;
        let engine: Arc<dyn Engine> = Arc::new(dir.engine()?);
        let log = Arc::new(DurableLog::new(engine.clone(), limits.uncommitted_bytes)?);
        Ok(Self::Durable(Arc::new(Durable { log, engine, _dir: dir })))
    }

    pub(crate) fn log(&self) -> Arc<dyn CommitLog> {
        match self {
            Self::Memory(log) => log.clone(),
            Self::Durable(durable) => durable.log.clone(),
        }
    }

    /// Recovers the instances, and logs that the server has restarted.
    ///
    /// # Errors
    /// Why the log cannot be recovered.
    pub(crate) async fn recover(&self, instances: &Arc<Instances>) -> Result<(), RecoveryError> {
        let Self::Durable(durable) = self else { return Ok(()) };
        let (engine, target) = (durable.engine.clone(), instances.clone());
        let recovering = spawn_blocking(move || Recovery::run(&target, &*engine));
        let recovered = recovering.await.map_err(|error| RecoveryError::Engine(error.to_string()))??;
        let crate::instances::Recovered { instances: found, batches, records, .. } = recovered;
        tracing::info!(instances = found, batches, records, "recovered");
        durable.log.begin(recovered.last).await;
        instances.restart();
        Ok(())
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
            let _ = spawn_blocking(move || log.close()).await;
        }
    }
}
