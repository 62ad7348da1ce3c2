//! The jobs that a committer waits for: requests, resolving reads, pauses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::txn::{ShardWrite, resolving_read};
use super::{RETRY, RETRY_FULL};
use crate::keys::{Epoch, Keys, LogIndex};
use crate::shard::ShardId;
use crate::store::{Compare, Op, Store, StoreError, Txn, TxnAnswer};

/// The result of a job.
#[derive(Debug)]
pub(super) enum Done {
    /// A transaction was answered.
    Answered(Vec<ShardWrite>, TxnAnswer),
    /// A read has resolved a transaction whose outcome was unknown; `full`: because the store is full.
    Resolved { parts: Vec<ShardWrite>, answer: TxnAnswer, full: bool },
    /// A transaction was surely not done, and may be sent again.
    NotTaken(Vec<ShardWrite>),
    /// The store will never take a transaction, for this reason.
    Rejected(Vec<ShardWrite>, String),
    /// These are to be sent again.
    Again(Vec<ShardWrite>),
    /// The pause that a full store gets is over.
    Paused,
    /// The pieces of a write are written, or cannot be.
    Staged(ShardId, Epoch, LogIndex, Result<(), String>),
}

/// Sends a transaction. Its outcome is known when this ends.
pub(super) async fn commit<S: Store>(store: Arc<S>, keys: Keys, txn: Txn, parts: Vec<ShardWrite>) -> Done {
    match store.txn(txn).await {
        Ok(answer) => Done::Answered(parts, answer),
        Err(error @ (StoreError::Unknown(_) | StoreError::NoSpace)) => {
            let full = error == StoreError::NoSpace;
            let answer = read(&*store, resolving_read(&keys, &parts)).await;
            Done::Resolved { parts, answer, full }
        }
        Err(StoreError::NotDone(_)) => Done::NotTaken(parts),
        Err(error @ (StoreError::NoLease | StoreError::Compacted(_) | StoreError::Refused(_))) => {
            Done::Rejected(parts, error.to_string())
        }
    }
}

/// Reads until it is answered: without the answer nothing can go on.
async fn read<S: Store>(store: &S, txn: Txn) -> TxnAnswer {
    let mut warnings = Warnings::default();
    loop {
        match store.txn(txn.clone()).await {
            Ok(answer) => return answer,
            Err(error) if warnings.is_due(&error) => tracing::warn!(
                %error,
                "etcd does not tell what became of a transaction, and until it does nothing more of its shards is committed: \
                 see what is wrong with etcd, or with the permissions of the server's user there"
            ),
            Err(error) => tracing::debug!(%error, "the outcome of a transaction is not resolved yet"),
        }
        sleep(RETRY).await;
    }
}

/// The time between two warnings of a read that goes on being refused.
const WARN_EVERY: Duration = Duration::from_mins(1);

/// The warnings of a read that is repeated: of errors that do not pass by themselves, at once and then
/// rarely.
#[derive(Debug, Default)]
struct Warnings(Option<Instant>);

impl Warnings {
    fn is_due(&mut self, error: &StoreError) -> bool {
        if error.may_pass() || self.0.is_some_and(|last| last.elapsed() < WARN_EVERY) {
            return false;
        }
        self.0 = Some(Instant::now());
        true
    }
}

pub(super) async fn pause() -> Done {
    sleep(RETRY_FULL).await;
    Done::Paused
}

pub(super) async fn again(parts: Vec<ShardWrite>) -> Done {
    sleep(RETRY).await;
    Done::Again(parts)
}

/// Writes pieces, each fenced by the owner's key. No pointer leads to them yet, so they may be written twice.
pub(super) async fn stage<S: Store>(
    store: Arc<S>,
    owner: Bytes,
    (shard, epoch, log_index): (ShardId, Epoch, LogIndex),
    pieces: Vec<(Bytes, Bytes)>,
) -> Done {
    for (key, value) in pieces {
        let put = Op::Put { key, value, lease: None };
        let compare = vec![Compare::Created(owner.clone(), epoch.0)];
        let txn = Txn { compare, then: vec![put], otherwise: Vec::new() };
        loop {
            match store.txn(txn.clone()).await {
                // A server that is not the owner any more learns it from the write itself.
                Ok(_) => break,
                Err(StoreError::NotDone(_) | StoreError::Unknown(_)) => sleep(RETRY).await,
                Err(StoreError::NoSpace) => sleep(RETRY_FULL).await,
                Err(error @ (StoreError::NoLease | StoreError::Compacted(_) | StoreError::Refused(_))) => {
                    return Done::Staged(shard, epoch, log_index, Err(error.to_string()));
                }
            }
        }
    }
    Done::Staged(shard, epoch, log_index, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_a_read_that_is_refused_there_is_a_warning_now_and_then() {
        let mut warnings = Warnings::default();
        let refused = StoreError::Refused("permission denied".to_owned());
        assert!(!warnings.is_due(&StoreError::NotDone("no connection".to_owned())), "it may pass");
        assert!(warnings.is_due(&refused));
        let mut due = 0;
        for _ in 0..180 {
            sleep(Duration::from_secs(1)).await;
            due += u32::from(warnings.is_due(&refused));
        }
        assert_eq!(due, 3);
    }
}
