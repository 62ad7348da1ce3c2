//! The outcomes of transactions, counted for operators.

use std::sync::{Arc, Mutex, PoisonError};

use super::txn::{ShardWrite, WriteKind};

/// The number of transactions with each outcome, since the committer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transactions {
    /// Done.
    pub committed: u64,
    /// Refused, since another server owns a shard of it.
    pub refused_owner: u64,
    /// Refused, since a log does not end where it should: a write before it is not there.
    pub refused_place: u64,
    /// Refused, since a name does not have the expected holder.
    pub refused_name: u64,
    /// Of unknown outcome: a read has resolved it. Refusals by a full store are here too.
    pub unknown: u64,
    /// Surely not done, and sent again.
    pub not_taken: u64,
    /// Refused for ever: it is too large, say.
    pub rejected: u64,
    /// Batches in those that were committed.
    pub batches: u64,
    /// Bytes of batches, of checkpoints in one piece and of names in those that were committed.
    pub bytes: u64,
}

/// Counts. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(Arc<Mutex<Transactions>>);

/// Why a transaction was refused. If there are several reasons, the first of these counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Owner,
    Name,
    LogIndex,
}

impl Counts {
    pub(super) fn add(&self, add: impl FnOnce(&mut Transactions)) {
        add(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn refused(&self, cause: Cause) {
        self.add(|counts| match cause {
            Cause::Owner => counts.refused_owner += 1,
            Cause::Name => counts.refused_name += 1,
            Cause::LogIndex => counts.refused_place += 1,
        });
    }

    pub(super) fn get(&self) -> Transactions {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transactions {
    pub(super) fn committed(&mut self, parts: &[ShardWrite]) {
        self.committed += 1;
        for part in parts {
            if let WriteKind::LogWrite(prepared) = &part.kind {
                self.batches += 1;
                self.bytes += prepared.bytes() as u64;
            }
        }
    }
}
