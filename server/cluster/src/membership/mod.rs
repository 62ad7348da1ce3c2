//! A server as a member of the cluster: its lease, the shards that it claims and gives up.
//!
//! The server's key and its owner's keys live under one lease. The server reckons the time of the lease by
//! its own clock, from before a keep-alive was sent; when that time is over, it drops all shards and begins a
//! new session. This is for moving ownership only: a server that is wrong about its lease is stopped by the
//! fences of [`committer`](crate::committer) and [`confirm`](crate::confirm).
//!
//! A name belongs to the process whose lease its key has. A process that starts under a name in use waits
//! until that lease has ended: nobody can tell a server that lives from one that was killed a moment ago, and
//! two that took the name from each other would go on doing so.
//!
//! etcd may be put back to an older state while servers run. Then what a session knows is not so any more,
//! and a later owner may get an epoch that an earlier one had. So whenever the lease is kept alive, the
//! session also reads its own key, and ends if that is gone, or if the store has come to a lower revision
//! than it had.
//!
//! A shard is claimed when it is free and [`placement`](crate::placement) wants it here. A shard that should
//! be elsewhere is handed over, a few at a time: [`Event::ReleaseRequested`], the owner takes no more for it,
//! commits what is in flight, and calls [`Membership::release`]; then it is free. While that cannot be done
//! it keeps the shard ([`Membership::keep`]), and is asked again later. An owner that cannot serve a shard
//! gives it up ([`Membership::give_up`]), so that another server may try. A lock of etcd would not do: while
//! a holder is paused its lease ends, and on waking it would write beside the next holder.

mod backoff;
mod driver;
mod hand_over;
mod name;
mod requests;
mod view;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::driver::{Driver, Told};
pub use self::view::View;
use crate::keys::{BadRecord, Epoch, Identity, Keys, Name, ServerInfo};
use crate::shard::{ShardCount, ShardId};
use crate::store::{Compare, KeyRange, Op, Revision, Store, StoreError, Txn};

/// How a server takes part.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Its name. While another process has it, this one waits.
    pub name: Name,
    /// The facts that it tells the others.
    pub info: ServerInfo,
    /// The time of its lease: 5 seconds unless there is a reason. etcd makes short ones longer.
    pub time_to_live: Duration,
}

/// A change for a shard that the server has to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It owns this shard: read its log and serve it.
    Claimed {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The shard should be elsewhere: take no more for it, commit what is in flight, [`Membership::release`]
    /// it; or [`Membership::keep`] it.
    ReleaseRequested {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: Epoch,
    },
    /// It does not own the shard any more, or may not assume so: drop it and tell nobody anything.
    Lost {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: Epoch,
    },
}

/// Why a server cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// etcd does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The prefix holds something else.
    #[error(transparent)]
    Record(#[from] BadRecord),
}

/// A server's part in the cluster. Clones are the same.
#[derive(Clone, Debug)]
pub struct Membership {
    commands: mpsc::UnboundedSender<Command>,
    view: watch::Receiver<Arc<View>>,
    valid_until: watch::Receiver<Option<Instant>>,
    name: Name,
}

#[derive(Debug)]
enum Command {
    /// It is told whether this server owned the shard until then.
    Release {
        shard: ShardId,
        epoch: Epoch,
        failed: bool,
        done: oneshot::Sender<bool>,
    },
    Keep {
        shard: ShardId,
        epoch: Epoch,
    },
    Drain,
    Leave(oneshot::Sender<()>),
}

/// The identity of the cluster; `wanted` if it has none yet.
///
/// # Errors
/// See [`IdentityError`]. It may be asked again.
pub async fn identity<S: Store>(store: &S, keys: &Keys, wanted: Identity) -> Result<Identity, IdentityError> {
    let key = keys.identity();
    let txn = Txn {
        compare: vec![Compare::Created(key.clone(), Revision(0))],
        then: vec![Op::Put { key: key.clone(), value: wanted.encode(), lease: None }],
        otherwise: vec![Op::Get(KeyRange::one(key))],
    };
    let answer = store.txn(txn).await?;
    let found = answer.found.first().and_then(|found| found.first());
    Ok(found.map_or(Ok(wanted), |kv| Identity::decode(&kv.value))?)
}

impl Membership {
    /// A member, its events, and the future that does its work. When that is dropped, the lease ends by its
    /// time.
    pub fn new<S: Store + Clone>(
        store: S,
        keys: Keys,
        shards: ShardCount,
        config: MembershipConfig,
    ) -> (Self, mpsc::UnboundedReceiver<Event>, impl Future<Output = ()> + Send) {
        let (commands, received) = mpsc::unbounded_channel();
        let (events, told) = mpsc::unbounded_channel();
        let (view_sender, view) = watch::channel(Arc::default());
        let (valid_sender, valid_until) = watch::channel(None);
        let name = config.name.clone();
        let told_to = Told { events, view: view_sender, valid_until: valid_sender };
        let driver = Driver::new(store, keys, shards, config, told_to);
        (Self { commands, view, valid_until, name }, told, driver.run(received))
    }

    /// Gives a shard up; returns when its key is gone, or the epoch has ended otherwise. False: it had ended
    /// before.
    pub async fn release(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.end(shard, epoch, false).await
    }

    /// The shard, whose release was requested, cannot be handed over now. Its release is requested again
    /// after the time of a lease, if it should still be elsewhere; of a server that drains, at once.
    pub fn keep(&self, shard: ShardId, epoch: Epoch) {
        let _ = self.commands.send(Command::Keep { shard, epoch });
    }

    /// As [`Membership::release`], of a shard that cannot be served here: its log cannot be read, or its
    /// writes are [`Closed`](crate::committer::Outcome::Closed) or
    /// [`Deposed`](crate::committer::Outcome::Deposed). This server does not claim it again for a while,
    /// which grows from 2 to 64 times of a lease with every failure; another one may.
    pub async fn give_up(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.end(shard, epoch, true).await
    }

    async fn end(&self, shard: ShardId, epoch: Epoch, failed: bool) -> bool {
        let (done, released) = oneshot::channel();
        let _ = self.commands.send(Command::Release { shard, epoch, failed, done });
        // When the session ends meanwhile, its lease is revoked.
        released.await.unwrap_or(true)
    }

    /// Asks for the release of all shards, and claims no others.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
    }

    /// Ends the session and with it every ownership; returns when the lease is revoked or the store has not
    /// answered.
    pub async fn leave(&self) {
        let (done, left) = oneshot::channel();
        let _ = self.commands.send(Command::Leave(done));
        let _ = left.await;
    }

    /// The cluster as this server sees it.
    pub fn view(&self) -> watch::Receiver<Arc<View>> {
        self.view.clone()
    }

    /// Whether this server may assume that it owns a shard.
    pub fn owns(&self, shard: ShardId) -> bool {
        self.valid_until.borrow().is_some_and(|until| Instant::now() < until)
            && self.view.borrow().owners.get(&shard).is_some_and(|owner| owner.server == self.name.as_str())
    }

    /// Until when the lease lasts at least, by this server's clock; `None`: it has none.
    pub fn valid_until(&self) -> watch::Receiver<Option<Instant>> {
        self.valid_until.clone()
    }
}

#[cfg(test)]
mod tests;
