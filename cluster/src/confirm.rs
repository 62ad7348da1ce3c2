//! The confirmation of an epoch: what is told without a transaction leaves only after a linearizable read, begun after the
//! request came, has found the owner's key as it was.
//!
//! One read serves all who wait when it begins, for any shard. Who comes while a read is in flight waits for the next one:
//! the read may have seen the store before the request came.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::keys::{Epoch, Keys};
use crate::shard::ShardId;
use crate::store::{KeyRange, Op, Store, StoreError, Txn};

/// The most shards that one read confirms: etcd's default of `--max-txn-ops`.
const MAX_SHARDS: usize = 128;

/// What a read has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The epoch went on when the read took place.
    Confirmed,
    /// It has ended.
    Deposed,
    /// The store has not answered.
    NotConfirmed,
}

/// Confirms epochs. Clones are the same.
#[derive(Clone, Debug)]
pub struct Confirmer {
    requests: mpsc::UnboundedSender<Request>,
}

#[derive(Debug)]
struct Request {
    shard: ShardId,
    epoch: Epoch,
    done: oneshot::Sender<Confirmation>,
}

/// A mistake that the tests must notice: a request is served by the read that is in flight when it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Joins {
    Next,
    #[cfg(test)]
    InFlight,
}

impl Confirmer {
    /// A confirmer, and the future that does its work. When that is dropped, nothing is confirmed.
    pub fn new<S: Store>(store: Arc<S>, keys: Keys) -> (Self, impl Future<Output = ()> + Send) {
        let (requests, received) = mpsc::unbounded_channel();
        (Self { requests }, run(store, keys, received, Joins::Next))
    }

    #[cfg(test)]
    pub(crate) fn faulty<S: Store>(store: Arc<S>, keys: Keys) -> (Self, impl Future<Output = ()> + Send) {
        let (requests, received) = mpsc::unbounded_channel();
        (Self { requests }, run(store, keys, received, Joins::InFlight))
    }

    /// Confirms that this epoch of a shard goes on. The caller bounds how many wait.
    pub fn confirm(&self, shard: ShardId, epoch: Epoch) -> impl Future<Output = Confirmation> + Send + use<> {
        let (done, confirmed) = oneshot::channel();
        let _ = self.requests.send(Request { shard, epoch, done });
        async move { confirmed.await.unwrap_or(Confirmation::NotConfirmed) }
    }
}

async fn run<S: Store>(
    store: Arc<S>,
    keys: Keys,
    mut requests: mpsc::UnboundedReceiver<Request>,
    joins: Joins,
) {
    let mut waiting = Vec::new();
    while !waiting.is_empty() || requests.recv_many(&mut waiting, usize::MAX >> 1).await > 0 {
        while let Ok(request) = requests.try_recv() {
            waiting.push(request);
        }
        let (shards, now, later) = choose(std::mem::take(&mut waiting));
        let found = read(&*store, &keys, &shards).await;
        waiting = later;
        tell(now, found.as_ref().ok());
        if joins != Joins::Next {
            let mut late = Vec::new();
            while let Ok(request) = requests.try_recv() {
                late.push(request);
            }
            let (late, next) = late.into_iter().partition(|request| shards.contains(&request.shard));
            waiting.extend::<Vec<_>>(next);
            tell(late, found.as_ref().ok());
        }
    }
}

/// Who is served by the next read: all but what is too much for one.
fn choose(waiting: Vec<Request>) -> (BTreeSet<ShardId>, Vec<Request>, Vec<Request>) {
    let mut shards = BTreeSet::new();
    let (now, later) = waiting.into_iter().partition(|request| {
        shards.contains(&request.shard) || (shards.len() < MAX_SHARDS && shards.insert(request.shard))
    });
    (shards, now, later)
}

/// The epochs of these shards; none for a shard without an owner.
async fn read<S: Store>(
    store: &S,
    keys: &Keys,
    shards: &BTreeSet<ShardId>,
) -> Result<BTreeMap<ShardId, Epoch>, StoreError> {
    let then = shards.iter().map(|&shard| Op::Get(KeyRange::one(keys.owner(shard)))).collect();
    let answer = store.txn(Txn { then, ..Txn::default() }).await?;
    let epochs = answer.found.iter().map(|found| found.first().map(|kv| Epoch(kv.created)));
    Ok(shards.iter().zip(epochs).filter_map(|(&shard, epoch)| Some((shard, epoch?))).collect())
}

fn tell(requests: Vec<Request>, found: Option<&BTreeMap<ShardId, Epoch>>) {
    for Request { shard, epoch, done } in requests {
        let confirmation = match found {
            None => Confirmation::NotConfirmed,
            Some(epochs) if epochs.get(&shard) == Some(&epoch) => Confirmation::Confirmed,
            Some(_) => Confirmation::Deposed,
        };
        let _ = done.send(confirmation);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::keys::Name;
    use crate::model::{Faults, Model};
    use crate::shard::ShardCount;

    /// The owner is deposed after a read has begun and taken place; a request that comes then must not profit from it.
    async fn request_behind_a_read(faulty: bool) -> (Confirmation, Confirmation) {
        let keys = Keys::new(&Name::new("demo").unwrap());
        let shard = ShardCount::default().shard(3).unwrap();
        for seed in 0.. {
            let model = Model::new(seed, Faults { delay: Duration::from_millis(100), ..Faults::default() });
            let store = Arc::new(model.connect());
            let put = Op::Put { key: keys.owner(shard), value: "a".into(), lease: None };
            let epoch = Epoch(store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap().revision);
            let (confirmer, driver) = if faulty {
                let (confirmer, driver) = Confirmer::faulty(Arc::clone(&store), keys.clone());
                (confirmer, tokio::spawn(driver))
            } else {
                let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys.clone());
                (confirmer, tokio::spawn(driver))
            };
            let first = tokio::spawn(confirmer.confirm(shard, epoch));
            let delete = vec![Op::Delete(KeyRange::one(keys.owner(shard)))];
            store.txn(Txn { then: delete, ..Txn::default() }).await.unwrap();
            if first.is_finished() {
                continue;
            }
            let second = confirmer.confirm(shard, epoch).await;
            let first = first.await.unwrap();
            driver.abort();
            if first == Confirmation::Confirmed {
                return (first, second);
            }
        }
        unreachable!("the seeds do not end")
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_serves_nobody_who_comes_behind_its_start() {
        assert_eq!(request_behind_a_read(false).await, (Confirmation::Confirmed, Confirmation::Deposed));
        // The mistake that the test would notice.
        assert_eq!(request_behind_a_read(true).await, (Confirmation::Confirmed, Confirmation::Confirmed));
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_confirms_all_who_wait_and_the_silent_store_none() {
        let keys = Keys::new(&Name::new("demo").unwrap());
        let model = Model::new(1, Faults::default());
        let store = Arc::new(model.connect());
        let shards = ShardCount::new(300).unwrap();
        let mut epochs = Vec::new();
        for shard in shards.shards() {
            let put = Op::Put { key: keys.owner(shard), value: "a".into(), lease: None };
            epochs.push(Epoch(store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap().revision));
        }
        let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys);
        let driver = tokio::spawn(driver);
        let all: Vec<_> =
            shards.shards().zip(&epochs).map(|(shard, &epoch)| confirmer.confirm(shard, epoch)).collect();
        for one in all {
            assert_eq!(one.await, Confirmation::Confirmed);
        }
        store.cut_off(true);
        let shard = shards.shard(0).unwrap();
        assert_eq!(confirmer.confirm(shard, epochs[0]).await, Confirmation::NotConfirmed);
        driver.abort();
    }
}
