//! The logs of all shards of a server, for what concerns no single shard: requests wait for room, and refusals for what was
//! logged before them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use stickycas_proto::status::RpcRefusal;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::oneshot;

use super::{CommitLog, LogState};
use crate::gate::{Confirmation, LogSource, NoSpace};

/// See the module.
#[derive(Debug)]
pub(crate) struct Logs {
    state: Arc<LogState>,
    logs: RwLock<Vec<Arc<dyn CommitLog>>>,
    /// How many were removed. It changes with them.
    removals: AtomicU64,
}

impl Logs {
    /// No logs yet; those that come share this.
    pub(crate) fn new(state: Arc<LogState>) -> Self {
        Self { state, logs: RwLock::default(), removals: AtomicU64::new(0) }
    }

    /// The log of a shard that the server owns from now on.
    pub(crate) fn add(&self, log: Arc<dyn CommitLog>) {
        debug_assert!(Arc::ptr_eq(log.state(), &self.state), "the logs of a server have one state");
        self.logs.write().unwrap_or_else(PoisonError::into_inner).push(log);
    }

    /// The server owns its shard no more.
    pub(crate) fn remove(&self, log: &Arc<dyn CommitLog>) {
        let mut logs = self.logs.write().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|it| !Arc::ptr_eq(it, log));
        self.removals.fetch_add(1, Ordering::SeqCst);
    }

    /// See [`LogState::stop_clock`].
    pub(crate) fn stop_clock(&self) {
        self.state.stop_clock();
    }

    /// See [`CommitLog::uncommitted_bytes`].
    pub(crate) fn uncommitted_bytes(&self) -> usize {
        self.collect(|log| Some(log.uncommitted_bytes())).into_iter().sum()
    }

    fn collect<T>(&self, of: impl FnMut(&Arc<dyn CommitLog>) -> Option<T>) -> Vec<T> {
        // Nothing is allocated if there is nothing to wait for.
        self.logs.read().unwrap_or_else(PoisonError::into_inner).iter().filter_map(of).collect()
    }
}

impl LogSource for Logs {
    fn room(&self) -> Option<OwnedNotified> {
        self.state.room()
    }

    fn barriers(&self, bytes: usize) -> Vec<oneshot::Receiver<()>> {
        self.collect(|log| log.barrier(bytes))
    }

    fn confirmations(&self) -> Vec<Confirmation> {
        self.collect(|log| log.confirm())
    }

    fn removed(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    fn failure(&self) -> Option<&RpcRefusal> {
        self.state.failure()
    }

    fn no_space(&self) -> Option<NoSpace> {
        self.state.no_space()
    }
}
