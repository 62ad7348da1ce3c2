//! Reads the log of a shard back at a take-over.
//!
//! The reading takes many requests, and needs no snapshot: the reader owns the shard, so nobody else writes
//! it, and at the end it reads the owner's key again. If that key was created in the reader's epoch, the
//! reader was the owner all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::sleep;

use crate::committer::LogEnd;
use crate::keys::{BadRecord, Epoch, Keys, LogIndex, PlaceMark, Pointer, decode_batch};
use crate::shard::ShardId;
use crate::store::{Compare, KeyRange, KeyValue, Op, Store, StoreError, Txn};

/// The bytes of an answer that is wished for.
const PAGE_BYTES: usize = 1 << 20;
/// The most keys of an answer, whatever is in them.
const PAGE_KEYS: usize = 64;
/// The pause before a request that was not taken is sent again.
const RETRY: Duration = Duration::from_millis(100);

/// An item of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The checkpoint with this number.
    Checkpoint(u64, Bytes),
    /// The batch at this place.
    Batch(LogIndex, Bytes),
}

/// Why a log cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The reader does not own the shard any more. The items that were read may be inconsistent.
    #[error("another server owns the shard by now")]
    Deposed,
    /// etcd refuses the reading.
    #[error(transparent)]
    Store(StoreError),
    /// A key or value is none of ours.
    #[error(transparent)]
    Record(#[from] BadRecord),
    /// Something is missing.
    #[error("the log of shard {0} is damaged: {1}")]
    Damaged(ShardId, String),
    /// An item that was read is not accepted.
    #[error("the log cannot be used: {0}")]
    Refused(String),
}

/// Reads the log of a shard that this server owns: `visit` gets all checkpoints, in no order, and then the
/// batches in theirs. Deletes pieces of checkpoints that no pointer leads to. Requests that are not taken are
/// sent again until the future is dropped.
///
/// # Errors
/// See [`ReadError`]; an error of `visit` ends the reading.
pub async fn read_shard<S: Store>(
    store: &S,
    keys: &Keys,
    shard: ShardId,
    epoch: Epoch,
    mut visit: impl FnMut(Stored) -> Result<(), String> + Send,
) -> Result<LogEnd, ReadError> {
    let found = read(store, keys, shard, epoch, &mut visit).await;
    // A record that is missing or strange is no damage if a later owner has changed it meanwhile.
    let owner = range(store, KeyRange::one(keys.owner(shard)), 1).await?;
    if owner.first().map(|kv| Epoch(kv.created)) != Some(epoch) {
        return Err(ReadError::Deposed);
    }
    found
}

async fn read<S: Store>(
    store: &S,
    keys: &Keys,
    shard: ShardId,
    epoch: Epoch,
    visit: &mut (impl FnMut(Stored) -> Result<(), String> + Send),
) -> Result<LogEnd, ReadError> {
    let mark = range(store, KeyRange::one(keys.log_index(shard)), 1).await?;
    let mark = mark.first().map(|kv| PlaceMark::decode(&kv.value)).transpose()?;
    let end = mark.map_or(LogIndex(0), |mark| mark.log_index);

    let mut pieced = BTreeMap::new();
    let mut pages = Pages::new(keys.checkpoints(shard));
    while let Some(kv) = pages.next(store).await? {
        let number = keys.parse_checkpoint(shard, &kv.key)?;
        match Pointer::decode(&kv.value)? {
            Pointer::Inline(state) => visit(Stored::Checkpoint(number, state)).map_err(ReadError::Refused)?,
            Pointer::Pieces { epoch, generation, pieces, bytes } => {
                pieced.insert(number, (epoch, generation, pieces, bytes));
            }
        }
    }
    let with_pieces = pieced.keys().copied().collect();
    read_pieces(store, keys, shard, epoch, pieced, visit).await?;

    let mut last = None;
    let mut pages = Pages::new(keys.whole_log(shard));
    while let Some(kv) = pages.next(store).await? {
        let log_index = keys.parse_log(shard, &kv.key)?;
        if last.is_some_and(|last: LogIndex| last.0 + 1 != log_index.0) {
            return Err(ReadError::Damaged(shard, format!("there is no place before {}", log_index.0)));
        }
        last = Some(log_index);
        visit(Stored::Batch(log_index, decode_batch(&kv.value)?.1)).map_err(ReadError::Refused)?;
    }
    if last.unwrap_or_default() != end {
        return Err(ReadError::Damaged(shard, format!("it ends at place {last:?} and not at {}", end.0)));
    }
    Ok(LogEnd { mark, with_pieces })
}

/// Reads checkpoints in pieces, and deletes the pieces that were left behind.
async fn read_pieces<S: Store>(
    store: &S,
    keys: &Keys,
    shard: ShardId,
    epoch: Epoch,
    mut wanted: BTreeMap<u64, (Epoch, u64, u32, u64)>,
    visit: &mut (impl FnMut(Stored) -> Result<(), String> + Send),
) -> Result<(), ReadError> {
    let (mut state, mut next) = (BytesMut::new(), 0);
    let mut left_behind = BTreeSet::new();
    let mut pages = Pages::new(keys.all_pieces(shard));
    while let Some(kv) = pages.next(store).await? {
        let (number, epoch, generation, piece) = keys.parse_piece(shard, &kv.key)?;
        let Some(&(.., pieces, bytes)) =
            wanted.get(&number).filter(|(e, g, ..)| (*e, *g) == (epoch, generation))
        else {
            left_behind.insert((number, epoch, generation));
            continue;
        };
        if piece != next {
            return Err(ReadError::Damaged(shard, format!("a piece of checkpoint {number} is missing")));
        }
        state.extend_from_slice(&kv.value);
        next += 1;
        if next == pieces {
            if state.len() as u64 != bytes {
                return Err(ReadError::Damaged(shard, format!("checkpoint {number} has another size")));
            }
            visit(Stored::Checkpoint(number, state.split().freeze())).map_err(ReadError::Refused)?;
            next = 0;
            wanted.remove(&number);
        }
    }
    if let Some(number) = wanted.keys().next() {
        return Err(ReadError::Damaged(shard, format!("the pieces of checkpoint {number} are missing")));
    }
    for (number, written, generation) in left_behind {
        let then = vec![Op::Delete(keys.pieces(shard, number, written, generation))];
        let compare = vec![Compare::Created(keys.owner(shard), epoch.0)];
        let txn = Txn { compare, then, otherwise: Vec::new() };
        // A delete may be done twice.
        while let Err(error) = store.txn(txn.clone()).await {
            again(error).await?;
        }
    }
    Ok(())
}

/// The keys of a range, some at a time.
#[derive(Debug)]
struct Pages {
    left: KeyRange,
    page: std::vec::IntoIter<KeyValue>,
    limit: usize,
    more: bool,
}

impl Pages {
    fn new(left: KeyRange) -> Self {
        Self { left, page: Vec::new().into_iter(), limit: 4, more: true }
    }

    async fn next<S: Store>(&mut self, store: &S) -> Result<Option<KeyValue>, ReadError> {
        if self.page.len() == 0 && self.more {
            let page = range(store, self.left.clone(), self.limit).await?;
            self.more = page.len() == self.limit;
            if let Some(last) = page.last() {
                self.left.from = [&last.key[..], &[0]].concat().into();
            }
            let bytes: usize = page.iter().map(|kv| kv.value.len() + kv.key.len()).sum();
            let fitting = self.limit * PAGE_BYTES / bytes.max(1);
            self.limit = fitting.clamp(1, (self.limit * 2).min(PAGE_KEYS));
            self.page = page.into_iter();
        }
        Ok(self.page.next())
    }
}

async fn range<S: Store>(store: &S, keys: KeyRange, limit: usize) -> Result<Vec<KeyValue>, ReadError> {
    loop {
        match store.range(keys.clone(), limit).await {
            Ok(answer) => return Ok(answer.found),
            Err(error) => again(error).await?,
        }
    }
}

/// Waits before a request is sent again, if it may be.
async fn again(error: StoreError) -> Result<(), ReadError> {
    if !error.may_pass() {
        return Err(ReadError::Store(error));
    }
    sleep(RETRY).await;
    Ok(())
}
