//! A transaction from the writes of several shards, and what its answer says of each.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::{LogWrite, MAX_BYTES, MAX_OPERATIONS, Owner, PIECE_BYTES};
use crate::keys::{BadRecord, Epoch, Keys, LogIndex, PlaceMark, Pointer, encode_batch};
use crate::shard::ShardId;
use crate::store::{Compare, KeyRange, KeyValue, Op, Txn};

/// One shard's part of a transaction.
#[derive(Clone, Debug)]
pub(super) struct ShardWrite {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    /// Where the log ended when this was sent, as far as was known.
    pub(super) known: Option<PlaceMark>,
    /// Where the log ends before.
    pub(super) before: Option<PlaceMark>,
    /// Where it ends afterwards.
    pub(super) after: PlaceMark,
    pub(super) kind: WriteKind,
}

#[derive(Clone, Debug)]
pub(super) enum WriteKind {
    LogWrite(Arc<Prepared>),
    /// The log stays as it is, but for its fence.
    Fence,
}

/// A write as it is sent.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) write: LogWrite,
    /// The operations beside those for the batch and the end of the log.
    ops: Vec<Op>,
    bytes: usize,
    /// Pieces that have to be written before.
    pub(super) pieces: Vec<(Bytes, Bytes)>,
}

/// The state of a shard that a transaction or a read has found.
#[derive(Debug)]
pub(super) struct ReadBack {
    /// The owner: this server or another one.
    pub(super) owner: Option<Owner>,
    pub(super) mark: Option<PlaceMark>,
    /// The holders of the names of the write, in their order; empty after a resolving read.
    pub(super) holders: Vec<Option<Bytes>>,
}

/// A transaction that grows as long as there is room.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) parts: Vec<ShardWrite>,
    operations: usize,
    bytes: usize,
    names: BTreeSet<String>,
}

impl Prepared {
    /// Checks a write, and cuts large checkpoints into pieces. `generation` is raised for each.
    pub(super) fn new(
        keys: &Keys,
        shard: ShardId,
        epoch: Epoch,
        write: LogWrite,
        with_pieces: &mut BTreeSet<u64>,
        generation: &mut u64,
    ) -> Result<Self, String> {
        check(&write)?;
        let (mut ops, mut pieces, mut bytes) = (Vec::new(), Vec::new(), write.batch.len());
        for (number, checkpoint) in &write.checkpoints {
            let had_pieces = with_pieces.contains(number);
            let pointer = match checkpoint {
                None => None,
                Some(state) if state.len() <= PIECE_BYTES => Some(Pointer::Inline(state.clone())),
                Some(state) => {
                    *generation += 1;
                    with_pieces.insert(*number);
                    let first = pieces.len();
                    for (piece, start) in (0_u32..).zip((0..state.len()).step_by(PIECE_BYTES)) {
                        let end = state.len().min(start + PIECE_BYTES);
                        pieces.push((
                            keys.piece(shard, *number, epoch, *generation, piece),
                            state.slice(start..end),
                        ));
                    }
                    let count =
                        u32::try_from(pieces.len() - first).map_err(|_| "a checkpoint is too large")?;
                    let bytes = state.len() as u64;
                    Some(Pointer::Pieces { epoch, generation: *generation, pieces: count, bytes })
                }
            };
            if had_pieces {
                ops.extend(delete_pieces(keys, shard, *number, pointer.as_ref()));
            }
            let key = keys.checkpoint(shard, *number);
            ops.push(match pointer {
                Some(pointer) => {
                    let value = pointer.encode();
                    bytes += value.len();
                    Op::Put { key, value, lease: None }
                }
                None => Op::Delete(KeyRange::one(key)),
            });
        }
        if let Some(trim) = write.trim {
            ops.push(Op::Delete(keys.log_before(shard, trim)));
        }
        for change in &write.names {
            let key = keys.name(&change.name);
            match (&change.before, &change.after) {
                (_, Some(holder)) => {
                    bytes += holder.len();
                    ops.push(Op::Put { key, value: holder.clone(), lease: None });
                }
                (Some(_), None) => ops.push(Op::Delete(KeyRange::one(key))),
                (None, None) => {}
            }
        }
        let prepared = Self { write, ops, bytes, pieces };
        if prepared.operations() > MAX_OPERATIONS || prepared.bytes > MAX_BYTES {
            let (operations, bytes) = (prepared.operations(), prepared.bytes);
            return Err(format!(
                "{operations} operations and {bytes} bytes: give at most {MAX_OPERATIONS} and {MAX_BYTES}"
            ));
        }
        Ok(prepared)
    }

    /// Bytes of what it writes, but for pieces.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn operations(&self) -> usize {
        2 + self.ops.len().max(self.write.names.len())
    }
}

fn check(write: &LogWrite) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    if !write.names.iter().all(|change| names.insert(&change.name)) {
        return Err("a name stands in a write twice".into());
    }
    if !write.checkpoints.iter().all(|(number, _)| numbers.insert(number)) {
        return Err("a checkpoint stands in a write twice".into());
    }
    if write.trim.is_some_and(|trim| trim > write.log_index) {
        return Err("a write trims the log behind itself".into());
    }
    Ok(())
}

/// Deletes all pieces of a checkpoint but those of this pointer.
fn delete_pieces(keys: &Keys, shard: ShardId, number: u64, pointer: Option<&Pointer>) -> Vec<Op> {
    let all = keys.pieces_of(shard, number);
    let Some(Pointer::Pieces { epoch, generation, .. }) = pointer else { return vec![Op::Delete(all)] };
    let kept = keys.pieces(shard, number, *epoch, *generation);
    vec![
        Op::Delete(KeyRange { from: all.from, to: Some(kept.from) }),
        Op::Delete(KeyRange { from: kept.to.unwrap_or_default(), to: all.to }),
    ]
}

impl Collected {
    /// Whether there is room for a write beside the others. There is for the first.
    pub(super) fn takes(&self, prepared: &Prepared) -> bool {
        self.parts.is_empty()
            || (self.operations + prepared.operations() <= MAX_OPERATIONS
                && self.bytes + prepared.bytes <= MAX_BYTES
                && !prepared.write.names.iter().any(|change| self.names.contains(&change.name)))
    }

    pub(super) fn add(&mut self, part: ShardWrite) {
        if let WriteKind::LogWrite(prepared) = &part.kind {
            self.operations += prepared.operations();
            self.bytes += prepared.bytes;
            self.names.extend(prepared.write.names.iter().map(|change| change.name.clone()));
        }
        self.parts.push(part);
    }
}

/// The transaction of these parts; its other branch reads what [`found`] takes apart.
pub(super) fn transaction(keys: &Keys, parts: &[ShardWrite]) -> Txn {
    let mut txn = Txn::default();
    for part in parts {
        let place_key = keys.log_index(part.shard);
        txn.compare.push(Compare::Created(keys.owner(part.shard), part.epoch.0));
        txn.compare.push(match part.before {
            Some(mark) => Compare::Value(place_key.clone(), mark.encode()),
            None => Compare::Created(place_key.clone(), crate::store::Revision(0)),
        });
        txn.then.push(Op::Put { key: place_key, value: part.after.encode(), lease: None });
        txn.otherwise.extend(reads(keys, part));
        let WriteKind::LogWrite(prepared) = &part.kind else { continue };
        let write = &prepared.write;
        for change in &write.names {
            let key = keys.name(&change.name);
            txn.otherwise.push(Op::Get(KeyRange::one(key.clone())));
            txn.compare.push(match &change.before {
                Some(holder) => Compare::Value(key, holder.clone()),
                None => Compare::Created(key, crate::store::Revision(0)),
            });
        }
        let value = encode_batch(part.epoch, &write.batch);
        txn.then.push(Op::Put { key: keys.log(part.shard, write.log_index), value, lease: None });
        txn.then.extend(prepared.ops.iter().cloned());
    }
    txn
}

/// The read that resolves what became of these parts.
pub(super) fn resolving_read(keys: &Keys, parts: &[ShardWrite]) -> Txn {
    Txn { then: parts.iter().flat_map(|part| reads(keys, part)).collect(), ..Txn::default() }
}

fn reads(keys: &Keys, part: &ShardWrite) -> [Op; 2] {
    [keys.owner(part.shard), keys.log_index(part.shard)].map(|key| Op::Get(KeyRange::one(key)))
}

/// The state that was found for the next part; `names`: whether its names were read too.
pub(super) fn read_back(
    part: &ShardWrite,
    names: bool,
    reads: &mut impl Iterator<Item = Vec<KeyValue>>,
) -> Result<ReadBack, BadRecord> {
    let mut first = || reads.next().and_then(|found| found.into_iter().next());
    let owner = first().map(|kv| Owner {
        server: String::from_utf8_lossy(&kv.value).into_owned(),
        epoch: Epoch(kv.created),
    });
    let mark = first().map(|kv| PlaceMark::decode(&kv.value));
    let holders = match &part.kind {
        WriteKind::LogWrite(prepared) if names => {
            prepared.write.names.iter().map(|_| first().map(|kv| kv.value)).collect()
        }
        _ => Vec::new(),
    };
    Ok(ReadBack { owner, mark: mark.transpose()?, holders })
}

impl ReadBack {
    /// Whether the epoch of the part goes on.
    pub(super) fn is_owned_by(&self, part: &ShardWrite) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.epoch == part.epoch)
    }
}

impl ShardWrite {
    pub(super) fn log_index(&self) -> LogIndex {
        match &self.kind {
            WriteKind::LogWrite(prepared) => prepared.write.log_index,
            // The fence stands before the place that is given back.
            WriteKind::Fence => LogIndex(self.after.log_index.0 + 1),
        }
    }
}
