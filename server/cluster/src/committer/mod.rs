//! The fenced commit: writes to the logs of the shards that this server owns.
//!
//! A transaction carries one write of each of several shards. For each it compares the owner's key, whose
//! create revision is the epoch, and the end of the log, so a write takes effect once, in its place, or not
//! at all. Several transactions are in flight at once: the write after one that is in flight compares the end
//! that this one will leave.
//!
//! * **A refused transaction** has read why in its other branch. [`Outcome::Deposed`] only if the owner's key
//!   differs. Otherwise its writes are sent again, each alone until one has succeeded.
//! * **An unknown outcome** is resolved before anything is told or sent again: a linearizable read of the end
//!   of the log and of the owner's key. If the write is not there, the same write is sent again; a request
//!   that is late by then fails its comparison, since the end of the log has moved, or takes effect in its
//!   stead.
//! * **A place that is given back** ([`Outcome::NameTaken`], [`Outcome::Refused`]) may be used for something
//!   else. If a request for it may still be under way, the committer first changes the `fence` in the end of
//!   the log, by a transaction of its own: then that request can never take effect.
//! * **A full store** is waited for, but for a write that is [given back](LogWrite::is_given_back_when_full);
//!   [`Committer::full`] tells it. Its refusal is an unknown outcome, too: etcd applies the request that is
//!   the first to cross the quota, and answers with the same error. But it has answered, so the read that
//!   resolves it is final.
//! * **A standstill.** A shard of which nothing was committed for long although something waits is closed:
//!   another server may be able to commit it. Not for want of space, which no other server has either.
//!   [`Committer::stalled`] tells both.
//! * **A store that was put back** tells an older end of a log than it did. Such a shard is closed at once.

mod counts;
mod driver;
mod jobs;
mod open_shard;
mod stall;
mod txn;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::counts::Transactions;
use crate::keys::{Epoch, Keys, LogIndex, PlaceMark};
use crate::shard::ShardId;
use crate::store::Store;

/// The largest checkpoint, or piece of one, that one value holds: 512 KiB.
pub const PIECE_BYTES: usize = 512 << 10;

/// Transactions in flight at once, at least 1.
const DEPTH: usize = 4;
/// Operations of a transaction: etcd's default of `--max-txn-ops`.
const MAX_OPERATIONS: usize = 128;
/// Bytes of the values of a transaction. It stays well below etcd's `--max-request-bytes`.
const MAX_BYTES: usize = 1 << 20;
/// The wait before a request that was not taken is sent again.
const RETRY: Duration = Duration::from_millis(50);
/// The wait before a request is sent again to a full store.
const RETRY_FULL: Duration = Duration::from_secs(1);

/// When a shard is closed.
#[derive(Clone, Debug)]
pub struct CommitterConfig {
    /// The time in which something of a shard is committed, if anything waits: see the module.
    pub standstill: Duration,
}

impl Default for CommitterConfig {
    fn default() -> Self {
        Self { standstill: Duration::from_secs(10) }
    }
}

/// The changes that are committed together, for one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogWrite {
    /// One more than the place of the write before.
    pub log_index: LogIndex,
    /// The batch.
    pub batch: Bytes,
    /// Checkpoints that are set, by number; `None`: removed. No number stands here twice.
    pub checkpoints: Vec<(u64, Option<Bytes>)>,
    /// The batches before this place are not needed any more. It is no later than `place`.
    pub trim: Option<LogIndex>,
    /// Names that are claimed or released. No name stands here twice.
    pub names: Vec<NameChange>,
    /// Whether it is given back if the store is full, [`Outcome::NoSpace`]; else it waits for space.
    pub is_given_back_when_full: bool,
}

/// A name that changes hands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameChange {
    /// The name.
    pub name: String,
    /// The holder that it must have; `None`: it must have none.
    pub before: Option<Bytes>,
    /// The holder afterwards; `None`: none.
    pub after: Option<Bytes>,
}

/// The owner of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the server.
    pub server: String,
    /// Its epoch.
    pub epoch: Epoch,
}

/// The outcome of a [`LogWrite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in the log, and stays.
    Committed,
    /// This server does not own the shard any more; the owner, if there is one. The owner knows whether the
    /// write is in the log.
    Deposed(Option<Owner>),
    /// This name has another holder than expected, or none. The write is not in the log and never will be;
    /// its place is free. Later writes wait for another one there.
    NameTaken {
        /// The name.
        name: String,
        /// The holder.
        holder: Option<Bytes>,
    },
    /// The write can never be taken: it is too large, or its place is not free. As with
    /// [`Outcome::NameTaken`].
    Refused(String),
    /// The store is full. As with [`Outcome::NameTaken`].
    NoSpace,
    /// The shard was closed here, or is not open, or its log is not as this server has left it. Nobody knows
    /// whether the write is in the log.
    Closed,
}

/// Appends to the logs of this server's shards. Clones are the same.
#[derive(Clone, Debug)]
pub struct Committer {
    commands: mpsc::UnboundedSender<Command>,
    full: watch::Receiver<bool>,
    stalled: watch::Receiver<bool>,
    counts: counts::Counts,
}

#[derive(Debug)]
enum Command {
    Open { shard: ShardId, epoch: Epoch, end: LogEnd },
    LogWrite { shard: ShardId, epoch: Epoch, write: LogWrite, done: oneshot::Sender<Outcome> },
    Close { shard: ShardId, epoch: Epoch },
}

/// The end of a log, which a committer must know to write to it; [`crate::read::read_shard`] returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEnd {
    /// Where it ends; `None`: nothing was ever written.
    pub mark: Option<PlaceMark>,
    /// The numbers whose checkpoints have pieces, or pieces that were left behind.
    pub with_pieces: Vec<u64>,
}

impl LogEnd {
    /// The last place.
    pub fn log_index(&self) -> LogIndex {
        self.mark.map_or(LogIndex(0), |mark| mark.log_index)
    }
}

impl Committer {
    /// A committer, and the future that does its work. When that is dropped, all outcomes are
    /// [`Outcome::Closed`].
    pub fn new<S: Store>(
        store: Arc<S>,
        keys: Keys,
        config: CommitterConfig,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (commands, received) = mpsc::unbounded_channel();
        let ((full_sender, full), (stalled_sender, stalled)) = (watch::channel(false), watch::channel(false));
        let driver = driver::Driver::new(store, keys, config, full_sender, stalled_sender);
        let counts = driver.counts.clone();
        (Self { commands, full, stalled, counts }, driver.run(received))
    }

    /// Begins to take writes for a shard that this server owns, at the end of its log.
    pub fn open(&self, shard: ShardId, epoch: Epoch, end: LogEnd) {
        let _ = self.commands.send(Command::Open { shard, epoch, end });
    }

    /// Appends. The future may be dropped: the write goes on. The caller bounds how many it has under way.
    pub fn write(
        &self,
        shard: ShardId,
        epoch: Epoch,
        write: LogWrite,
    ) -> impl Future<Output = Outcome> + Send + use<> {
        let (done, outcome) = oneshot::channel();
        let _ = self.commands.send(Command::LogWrite { shard, epoch, write, done });
        async move { outcome.await.unwrap_or(Outcome::Closed) }
    }

    /// Ends an epoch: all writes that have no outcome yet are [`Outcome::Closed`].
    pub fn close(&self, shard: ShardId, epoch: Epoch) {
        let _ = self.commands.send(Command::Close { shard, epoch });
    }

    /// Whether the store was full when something was last sent to it.
    pub fn full(&self) -> watch::Receiver<bool> {
        self.full.clone()
    }

    /// Whether the store was full when something was last sent to it, at this moment.
    pub fn is_full(&self) -> bool {
        *self.full.borrow()
    }

    /// Whether nothing was committed for long although something waited, and nothing was since.
    pub fn stalled(&self) -> bool {
        *self.stalled.borrow()
    }

    /// The outcomes of its transactions.
    pub fn transactions(&self) -> Transactions {
        self.counts.get()
    }
}

#[cfg(test)]
mod tests;
