//! What a committer waits for: requests, settling reads, pauses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::parts::{Part, settling_read};
use crate::keys::{Epoch, Keys, Place};
use crate::shard::ShardId;
use crate::store::{Compare, Op, Store, StoreError, Txn, TxnAnswer};

/// What a job has brought.
#[derive(Debug)]
pub(super) enum Done {
    /// A transaction was answered, or was surely not done.
    Answered(Vec<Part>, Result<TxnAnswer, StoreError>),
    /// A read has settled a transaction whose outcome was unknown; `full`: because the store is full.
    Settled { parts: Vec<Part>, answer: TxnAnswer, full: bool },
    /// These are to be sent again.
    Again(Vec<Part>),
    /// The pause that a full store gets is over.
    Paused,
    /// The pieces of an append are written, or cannot be.
    Staged(ShardId, Epoch, Place, Result<(), String>),
}

pub(super) async fn commit<S: Store>(
    store: Arc<S>,
    keys: Keys,
    txn: Txn,
    parts: Vec<Part>,
    retry: Duration,
    settle: bool,
) -> Done {
    match store.txn(txn).await {
        Err(error) if error.may_have_happened() && settle => {
            let full = error == StoreError::NoSpace;
            let answer = read(&*store, settling_read(&keys, &parts), retry).await;
            Done::Settled { parts, answer, full }
        }
        result => Done::Answered(parts, result),
    }
}

/// Reads until it is answered: without the answer nothing can go on.
async fn read<S: Store>(store: &S, txn: Txn, retry: Duration) -> TxnAnswer {
    loop {
        match store.txn(txn.clone()).await {
            Ok(answer) => return answer,
            Err(error) => {
                tracing::debug!(%error, "the outcome of a transaction is not settled yet");
                sleep(retry).await;
            }
        }
    }
}

pub(super) async fn pause(pause: Duration) -> Done {
    sleep(pause).await;
    Done::Paused
}

pub(super) async fn again(parts: Vec<Part>, pause: Duration) -> Done {
    sleep(pause).await;
    Done::Again(parts)
}

/// Writes pieces, each fenced by the owner's key. No pointer leads to them yet, so they may be written twice.
pub(super) async fn stage<S: Store>(
    store: Arc<S>,
    owner: Bytes,
    (shard, epoch, place): (ShardId, Epoch, Place),
    pieces: Vec<(Bytes, Bytes)>,
    retry: Duration,
    retry_full: Duration,
) -> Done {
    for (key, value) in pieces {
        let put = Op::Put { key, value, lease: None };
        let compare = vec![Compare::Created(owner.clone(), epoch.0)];
        let txn = Txn { compare, then: vec![put], otherwise: Vec::new() };
        loop {
            match store.txn(txn.clone()).await {
                // Who is not the owner any more learns it from the append itself.
                Ok(_) => break,
                Err(StoreError::NotDone(_) | StoreError::Unknown(_)) => sleep(retry).await,
                Err(StoreError::NoSpace) => sleep(retry_full).await,
                Err(error @ (StoreError::NoLease | StoreError::Compacted(_) | StoreError::Refused(_))) => {
                    return Done::Staged(shard, epoch, place, Err(error.to_string()));
                }
            }
        }
    }
    Done::Staged(shard, epoch, place, Ok(()))
}
