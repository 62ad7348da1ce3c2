//! The requests of a session.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep};

use crate::keys::{Epoch, Keys, Name, RulesVersion};
use crate::shard::ShardId;
use crate::store::{
    Change, Compare, KeyRange, KeyValue, LeaseId, Op, Revision, Store, StoreError, Txn, Watch,
};

/// The pause before a request is sent again.
const RETRY: Duration = Duration::from_millis(100);

/// What a request has brought.
#[derive(Debug)]
pub(super) enum Done {
    KeptAlive {
        sent: Instant,
        result: Result<Duration, StoreError>,
    },
    Claim(ShardId, Option<Epoch>),
    Released {
        shard: ShardId,
        epoch: Epoch,
        /// Whether the epoch may have ended by the release, and not before.
        was_owner: bool,
        done: oneshot::Sender<()>,
    },
    /// A watch is over, or something else that ends no session.
    Over,
}

pub(super) async fn keep_alive<S: Store>(store: S, lease: LeaseId) -> Done {
    // Before it is sent: the lease lasts at least for its time from here on.
    let sent = Instant::now();
    Done::KeptAlive { sent, result: store.keep_alive(lease).await }
}

/// Claims a shard that is free; `rules`: what its log needs as far as is known, and what it needs with this owner.
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
    done: oneshot::Sender<()>,
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
    while let Err(StoreError::NotDone(_) | StoreError::Unknown(_) | StoreError::NoSpace) =
        store.txn(txn.clone()).await
    {
        sleep(RETRY).await;
    }
    Done::Over
}

/// Tells the changes of a range; when it can tell no more, it tells an error.
pub(super) async fn watch<S: Store>(
    store: S,
    range: KeyRange,
    from: Revision,
    changes: mpsc::Sender<Result<Vec<Change>, StoreError>>,
) -> Done {
    let mut watch = match store.watch(range, from).await {
        Ok(watch) => watch,
        Err(error) => {
            let _ = changes.send(Err(error)).await;
            return Done::Over;
        }
    };
    loop {
        let next = watch.next().await;
        let over = next.is_err();
        if changes.send(next).await.is_err() || over {
            return Done::Over;
        }
    }
}

/// Everything that a view is made of, at one revision.
pub(super) async fn snapshot<S: Store>(
    store: &S,
    keys: &Keys,
) -> Result<(Revision, Vec<KeyValue>), StoreError> {
    let then = [keys.servers(), keys.owners(), keys.all_rules()].map(Op::Get).into();
    let answer = store.txn(Txn { then, ..Txn::default() }).await?;
    Ok((answer.revision, answer.found.into_iter().flatten().collect()))
}
