//! The requests of a session.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use crate::keys::{Epoch, Keys, Name, RulesVersion};
use crate::shard::ShardId;
use crate::store::{
    Change, Compare, KeyRange, KeyValue, LeaseId, Op, RangeAnswer, Revision, Store, StoreError, Txn, Watch,
};

/// The pause before a request is sent again.
const RETRY: Duration = Duration::from_millis(100);

/// The result of a request.
#[derive(Debug)]
pub(super) enum Done {
    KeptAlive {
        sent: Instant,
        result: Result<Duration, StoreError>,
    },
    OwnKey(OwnKey),
    Claim(ShardId, Option<Epoch>),
    Released {
        shard: ShardId,
        epoch: Epoch,
        /// Whether the epoch may have ended by the release, and not before.
        was_owner: bool,
        done: oneshot::Sender<bool>,
    },
    /// A watch is over, or something else of which nothing follows.
    Over,
}

/// The result of a read of the server's key.
#[derive(Debug)]
pub(super) struct OwnKey {
    /// The newest known revision of the store when the read was sent.
    pub(super) known: Revision,
    /// The revision of the store at the read.
    pub(super) read_at: Revision,
    /// Whether it is there, under this lease.
    pub(super) is_there: bool,
}

/// Keeps a lease alive.
pub(super) async fn keep_alive<S: Store>(store: S, lease: LeaseId) -> Done {
    // Before it is sent: the lease lasts at least for its time from here on.
    let sent = Instant::now();
    Done::KeptAlive { sent, result: store.keep_alive(lease).await }
}

/// Reads the server's key.
pub(super) async fn own_key<S: Store>(store: S, lease: LeaseId, key: Bytes) -> Done {
    let known = store.newest();
    match store.range(KeyRange::one(key), 1).await {
        Ok(RangeAnswer { revision, found, .. }) => Done::OwnKey(OwnKey {
            known,
            read_at: revision,
            is_there: found.first().is_some_and(|kv| kv.lease == Some(lease)),
        }),
        // The next time.
        Err(_) => Done::Over,
    }
}

/// Claims a shard that is free; `rules`: those that its log needs as far as is known, and those that it needs
/// with this owner.
pub(super) async fn claim<S: Store>(
    store: S,
    keys: Keys,
    (shard, name, lease): (ShardId, Name, LeaseId),
    rules: (Option<RulesVersion>, RulesVersion),
) -> Done {
    let (owner, rules_key) = (keys.owner(shard), keys.rules(shard));
    let mut then =
        vec![Op::Put { key: owner.clone(), value: name.as_str().to_owned().into(), lease: Some(lease) }];
    if rules.0 != Some(rules.1) {
        then.push(Op::Put { key: rules_key.clone(), value: rules.1.encode(), lease: None });
    }
    let same_rules = match rules.0 {
        Some(known) => Compare::Value(rules_key, known.encode()),
        None => Compare::Created(rules_key, Revision(0)),
    };
    let compare = vec![Compare::Created(owner.clone(), Revision(0)), same_rules];
    let epoch = match store.txn(Txn { compare, then, otherwise: Vec::new() }).await {
        Ok(answer) => answer.succeeded.then_some(Epoch(answer.revision)),
        // If it takes effect later, the watch tells.
        Err(StoreError::Unknown(_)) => {
            let found =
                store.range(KeyRange::one(owner), 1).await.map(|answer| answer.found).unwrap_or_default();
            found.first().filter(|kv| kv.lease == Some(lease)).map(|kv| Epoch(kv.created))
        }
        Err(_) => None,
    };
    if epoch.is_none() {
        sleep(RETRY).await;
    }
    Done::Claim(shard, epoch)
}

/// Deletes the owner's key if it is of this epoch; sent until it is answered.
pub(super) async fn release<S: Store>(
    store: S,
    keys: Keys,
    shard: ShardId,
    epoch: Epoch,
    done: oneshot::Sender<bool>,
) -> Done {
    let owner = keys.owner(shard);
    let compare = vec![Compare::Created(owner.clone(), epoch.0)];
    let txn = Txn { compare, then: vec![Op::Delete(KeyRange::one(owner))], otherwise: Vec::new() };
    let mut may_have_ended_it = false;
    loop {
        match store.txn(txn.clone()).await {
            Ok(answer) => {
                let was_owner = answer.succeeded || may_have_ended_it;
                return Done::Released { shard, epoch, was_owner, done };
            }
            Err(error) => may_have_ended_it |= error.may_have_happened(),
        }
        sleep(RETRY).await;
    }
}

/// Sets the key of a server as long as its lease lasts.
pub(super) async fn announce<S: Store>(store: S, put: Op) -> Done {
    let txn = Txn { then: vec![put], ..Txn::default() };
    while store.txn(txn.clone()).await.is_err_and(|error| error.may_pass()) {
        sleep(RETRY).await;
    }
    Done::Over
}

/// The changes of one revision, or why there are no more.
pub(super) type Changes = Result<Vec<Change>, StoreError>;

/// A range whose changes a session is told, and what it was told of it.
#[derive(Debug)]
pub(super) struct Watched {
    range: KeyRange,
    /// The keys that are there.
    keys: BTreeSet<Bytes>,
    /// The next changes are told from this revision on.
    from: Revision,
}

impl Watched {
    /// The changes behind a read of this range.
    pub(super) fn new(range: KeyRange, found: &[KeyValue], read_at: Revision) -> Self {
        Self { range, keys: found.iter().map(|kv| kv.key.clone()).collect(), from: read_at.next() }
    }

    /// Tells changes until the watch ends, or nobody listens any more.
    async fn tell_until_it_ends<S: Store>(
        &mut self,
        store: &S,
        changes: &mpsc::Sender<Changes>,
    ) -> Result<(), StoreError> {
        let mut watch = store.watch(self.range.clone(), self.from).await?;
        loop {
            let told = watch.next().await?;
            let revision = told.iter().map(Change::revision).max().unwrap_or(self.from);
            if !self.tell(told, revision, changes).await {
                return Ok(());
            }
        }
    }

    /// Tells the changes since as far as they show in the newest state.
    async fn tell_what_is_there(
        &mut self,
        store: &impl Store,
        changes: &mpsc::Sender<Changes>,
    ) -> Result<(), StoreError> {
        let RangeAnswer { revision, found, .. } = store.range(self.range.clone(), 0).await?;
        let there: BTreeSet<&Bytes> = found.iter().map(|kv| &kv.key).collect();
        let gone = self.keys.iter().filter(|key| !there.contains(key));
        let mut told: Vec<_> = gone.map(|key| Change::Deleted(key.clone(), revision)).collect();
        told.extend(found.iter().filter(|kv| kv.modified >= self.from).cloned().map(Change::Put));
        self.tell(told, revision, changes).await;
        Ok(())
    }

    /// False: nobody listens any more.
    async fn tell(&mut self, told: Vec<Change>, revision: Revision, changes: &mpsc::Sender<Changes>) -> bool {
        for change in &told {
            match change {
                Change::Put(kv) => self.keys.insert(kv.key.clone()),
                Change::Deleted(key, _) => self.keys.remove(key),
            };
        }
        self.from = revision.next();
        changes.send(Ok(told)).await.is_ok()
    }
}

/// Tells the changes of a range. A watch that ends begins again behind what it has told, or, if that is
/// compacted away, behind a read: so a member of etcd that stops, or has no leader for a moment, ends no
/// session. When nothing more can be told, it tells an error.
pub(super) async fn watch<S: Store>(store: S, mut watched: Watched, changes: mpsc::Sender<Changes>) -> Done {
    loop {
        let mut ended = watched.tell_until_it_ends(&store, &changes).await;
        if let Err(StoreError::Compacted(_)) = ended {
            ended = watched.tell_what_is_there(&store, &changes).await;
        }
        match ended {
            Ok(()) => {}
            Err(StoreError::NotDone(why) | StoreError::Unknown(why)) => {
                tracing::debug!(why, "a watch of etcd has ended, and begins again");
                sleep(RETRY).await;
            }
            Err(error) => {
                let _ = changes.send(Err(error)).await;
                return Done::Over;
            }
        }
        if changes.is_closed() {
            return Done::Over;
        }
    }
}

/// Everything that a view is made of, at one revision, and what is to be watched from there on.
pub(super) async fn snapshot<S: Store>(
    store: &S,
    keys: &Keys,
) -> Result<(Revision, Vec<Watched>, Vec<KeyValue>), StoreError> {
    let ranges = [keys.servers(), keys.owners(), keys.all_rules()];
    let then = ranges.clone().map(Op::Get).into();
    let answer = store.txn(Txn { then, ..Txn::default() }).await?;
    let revision = answer.revision;
    let watched =
        ranges.into_iter().zip(&answer.found).map(|(range, found)| Watched::new(range, found, revision));
    Ok((revision, watched.collect(), answer.found.into_iter().flatten().collect()))
}
