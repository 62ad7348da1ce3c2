//! The confirmation of an epoch: an answer without a transaction leaves only after a linearizable read, begun
//! after the request came, has found the owner's key as it was.
//!
//! One read serves all requests that wait when it begins, for any shard. A request that comes while a read is
//! in flight waits for the next one: the read may have seen the store before the request came. A read that is
//! not answered is made again after a pause, for all requests that wait by then, until an epoch has not been
//! confirmed for as long as it may be.
//!
//! A request that waits has nothing but the number of the first read that may confirm it: neither a task nor
//! a place in a queue. So the memory of the confirmer does not grow with the requests, however long the store
//! is silent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, sleep};

use crate::keys::{Epoch, Keys};
use crate::shard::ShardId;
use crate::store::{KeyRange, Op, Store, StoreError, Txn};

/// The most shards that one read confirms: etcd's default of `--max-txn-ops`.
const MAX_SHARDS: usize = 128;
/// The pause after a read that was not answered.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// The result of a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The epoch went on when the read took place.
    Confirmed,
    /// It has ended.
    Deposed,
    /// The store has not answered for as long as the epoch may go on unconfirmed.
    NotConfirmed,
}

/// Confirms epochs. Clones are the same.
#[derive(Clone, Debug)]
pub struct Confirmer(Arc<Reads>);

/// Confirms one epoch of one shard. Clones are the same.
#[derive(Clone, Debug)]
pub struct EpochConfirmer(Arc<Confirmed>);

/// How much was confirmed, since the confirmer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confirmations {
    /// Reads that the store has answered.
    pub reads: u64,
    /// Reads that it has not.
    pub unanswered_reads: u64,
    /// Requests that were confirmed.
    pub confirmed: u64,
    /// Requests of epochs that had ended.
    pub deposed: u64,
    /// Requests whose read was not answered, as often as it was not.
    pub not_confirmed: u64,
}

/// The reads of a confirmer.
#[derive(Debug, Default)]
struct Reads {
    state: Mutex<State>,
    /// Notified when a request waits.
    work: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the read that has begun last. They count from 1.
    begun: u64,
    /// The requests that wait for the next read, by the number of the epoch's confirmer.
    waiting: BTreeMap<u64, Waiting>,
    /// The requests that wait for the read in flight.
    reading: BTreeMap<u64, Waiting>,
    /// How many confirmers of epochs there have been.
    confirmers: u64,
    counts: Confirmations,
    /// Whether there are no more reads.
    is_closed: bool,
}

/// The requests that wait for an epoch to be confirmed.
#[derive(Debug)]
struct Waiting {
    epoch: Arc<Confirmed>,
    /// When the first of them came.
    since: Instant,
    requests: u64,
}

/// The results of the reads for an epoch.
struct Confirmed {
    reads: Arc<Reads>,
    number: u64,
    shard: ShardId,
    epoch: Epoch,
    /// How long it may go on without being confirmed.
    limit: Duration,
    /// The read that has confirmed it last; 0: none.
    last_read: AtomicU64,
    /// Why it is never confirmed any more.
    end: OnceLock<Confirmation>,
    on_end: Mutex<Option<OnEnd>>,
    /// Notified when a read has shown something.
    told: Arc<Notify>,
}

/// Is called when an epoch has ended, or may go on unconfirmed no longer: before anybody is told.
type OnEnd = Box<dyn FnOnce() + Send>;

impl Confirmer {
    /// A confirmer, and the future that does its work, for ever. When that is dropped, nothing is confirmed.
    pub fn new<S: Store>(store: Arc<S>, keys: Keys) -> (Self, impl Future<Output = ()> + Send) {
        let reads = Arc::<Reads>::default();
        let closing = Closing(reads.clone());
        (Self(reads), run(store, keys, closing))
    }

    /// Confirms this epoch of a shard, which may go on unconfirmed for so long: to be made once for each.
    pub fn epoch(&self, shard: ShardId, epoch: Epoch, limit: Duration) -> EpochConfirmer {
        let number = {
            let mut state = self.0.state();
            state.confirmers += 1;
            state.confirmers
        };
        EpochConfirmer(Arc::new(Confirmed {
            reads: self.0.clone(),
            number,
            shard,
            epoch,
            limit,
            last_read: AtomicU64::new(0),
            end: OnceLock::new(),
            on_end: Mutex::default(),
            told: Arc::default(),
        }))
    }

    /// How much was confirmed.
    pub fn confirmations(&self) -> Confirmations {
        self.0.state().counts
    }
}

impl EpochConfirmer {
    /// Asks whether the epoch goes on: returns the number of the next read that begins, or of one behind it.
    /// Its [`outcome`](Self::outcome) is what to wait for.
    pub fn ask(&self) -> u64 {
        let Confirmed { reads, number, end, .. } = &*self.0;
        let mut state = reads.state();
        let next = state.begun + 1;
        if let Some(end) = end.get() {
            state.counts.add(*end, 1);
            return next;
        }
        if state.is_closed {
            drop(state);
            self.0.end(Confirmation::NotConfirmed);
            return next;
        }
        let first = || Waiting { epoch: self.0.clone(), since: Instant::now(), requests: 0 };
        state.waiting.entry(*number).or_insert_with(first).requests += 1;
        drop(state);
        reads.work.notify_one();
        next
    }

    /// The result of a read of this number or a later one; `None`: there is none yet.
    pub fn outcome(&self, read: u64) -> Option<Confirmation> {
        let is_confirmed = self.0.last_read.load(Ordering::Acquire) >= read;
        if is_confirmed { Some(Confirmation::Confirmed) } else { self.0.end.get().copied() }
    }

    /// Completes when a read has shown something since this was called.
    pub fn told(&self) -> OwnedNotified {
        self.0.told.clone().notified_owned()
    }

    /// Calls this once, when the epoch has ended or may go on unconfirmed no longer: before anybody is told.
    pub fn on_end(&self, call: OnEnd) {
        *self.0.on_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(call);
    }
}

async fn run<S: Store>(store: Arc<S>, keys: Keys, reads: Closing) {
    let reads = &reads.0;
    loop {
        let Some(shards) = reads.begin() else {
            reads.work.notified().await;
            continue;
        };
        let found = read(&*store, &keys, &shards).await;
        reads.tell(found.as_ref().ok());
        if found.is_err() {
            sleep(READ_AGAIN).await;
        }
    }
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

impl Reads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a read for all requests that wait, or for those that have waited longest if that is too much
    /// for one: its shards. `None`: no request waits.
    fn begin(&self) -> Option<BTreeSet<ShardId>> {
        let mut state = self.state();
        if state.waiting.is_empty() {
            return None;
        }
        let mut order: Vec<_> = state.waiting.iter().map(|(number, it)| (it.since, *number)).collect();
        order.sort_unstable();
        let mut shards = BTreeSet::new();
        for (_, number) in order {
            let shard = state.waiting[&number].epoch.shard;
            if (shards.contains(&shard) || shards.len() < MAX_SHARDS)
                && let Some(waiting) = state.waiting.remove(&number)
            {
                shards.insert(shard);
                state.reading.insert(number, waiting);
            }
        }
        state.begun += 1;
        Some(shards)
    }

    /// Tells what the read in flight has found; `None`: it was not answered.
    fn tell(&self, found: Option<&BTreeMap<ShardId, Epoch>>) {
        let (mut confirmed, mut ended) = (Vec::new(), Vec::new());
        {
            let mut state = self.state();
            match found {
                Some(_) => state.counts.reads += 1,
                None => state.counts.unanswered_reads += 1,
            }
            let (read, now) = (state.begun, Instant::now());
            for (number, waiting) in std::mem::take(&mut state.reading) {
                let outcome = waiting.outcome(found);
                state.counts.add(outcome, waiting.requests);
                if outcome == Confirmation::Confirmed {
                    waiting.epoch.last_read.store(read, Ordering::Release);
                    confirmed.push(waiting.epoch);
                } else if outcome == Confirmation::NotConfirmed && now < waiting.since + waiting.epoch.limit {
                    state.wait_again(number, waiting);
                } else {
                    let came_since = state.waiting.remove(&number).map_or(0, |came| came.requests);
                    state.counts.add(outcome, came_since);
                    ended.push((waiting.epoch, outcome));
                }
            }
        }
        ended.iter().for_each(|(epoch, outcome)| epoch.end(*outcome));
        confirmed.iter().for_each(|epoch| epoch.told.notify_waiters());
    }
}

impl State {
    /// Those whose read was not answered wait for the next one, with those who have come since.
    fn wait_again(&mut self, number: u64, mut waiting: Waiting) {
        if let Some(came_since) = self.waiting.remove(&number) {
            waiting.requests += came_since.requests;
        }
        self.waiting.insert(number, waiting);
    }
}

impl Waiting {
    fn outcome(&self, found: Option<&BTreeMap<ShardId, Epoch>>) -> Confirmation {
        match found {
            None => Confirmation::NotConfirmed,
            Some(epochs) if epochs.get(&self.epoch.shard) == Some(&self.epoch.epoch) => {
                Confirmation::Confirmed
            }
            Some(_) => Confirmation::Deposed,
        }
    }
}

impl fmt::Debug for Confirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confirmed")
            .field("shard", &self.shard)
            .field("epoch", &self.epoch)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl Confirmed {
    /// It is never confirmed any more.
    fn end(&self, why: Confirmation) {
        let on_end = self.on_end.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(on_end) = on_end {
            on_end();
        }
        let _ = self.end.set(why);
        self.told.notify_waiters();
    }
}

/// Ends all that waits when there are no more reads.
struct Closing(Arc<Reads>);

impl Drop for Closing {
    fn drop(&mut self) {
        let left: Vec<_> = {
            let mut state = self.0.state();
            state.is_closed = true;
            let [waiting, reading] = [std::mem::take(&mut state.waiting), std::mem::take(&mut state.reading)];
            waiting.into_values().chain(reading.into_values()).collect()
        };
        left.iter().for_each(|waiting| waiting.epoch.end(Confirmation::NotConfirmed));
    }
}

impl Confirmations {
    fn add(&mut self, confirmation: Confirmation, requests: u64) {
        match confirmation {
            Confirmation::Confirmed => self.confirmed += requests,
            Confirmation::Deposed => self.deposed += requests,
            Confirmation::NotConfirmed => self.not_confirmed += requests,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Name;
    use crate::model::{Faults, Model, ModelStore};
    use crate::shard::ShardCount;

    const LIMIT: Duration = Duration::from_secs(3);

    impl EpochConfirmer {
        /// Confirms that the epoch goes on: asked when this returns.
        pub(crate) fn confirm(&self) -> impl Future<Output = Confirmation> + Send + use<> {
            let (confirmer, read) = (self.clone(), self.ask());
            async move {
                loop {
                    let told = confirmer.told();
                    if let Some(outcome) = confirmer.outcome(read) {
                        return outcome;
                    }
                    told.await;
                }
            }
        }
    }

    fn keys() -> Keys {
        Keys::new(&Name::new("demo").unwrap())
    }

    /// Gives a shard an owner.
    async fn own(store: &ModelStore, shard: ShardId) -> Epoch {
        let put = Op::Put { key: keys().owner(shard), value: "a".into(), lease: None };
        Epoch(store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap().revision)
    }

    /// The owner is deposed after a read has begun and taken place; a request that comes then must not profit
    /// from it.
    #[tokio::test(start_paused = true)]
    async fn a_read_serves_nobody_who_comes_behind_its_start() {
        let shard = ShardCount::default().shard(3).unwrap();
        for seed in 0.. {
            let model = Model::new(seed, Faults { delay: Duration::from_millis(100), ..Faults::default() });
            let store = Arc::new(model.connect());
            let epoch = own(&store, shard).await;
            let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys());
            let driver = tokio::spawn(driver);
            let confirmer = confirmer.epoch(shard, epoch, LIMIT);
            let first = tokio::spawn(confirmer.confirm());
            let delete = vec![Op::Delete(KeyRange::one(keys().owner(shard)))];
            store.txn(Txn { then: delete, ..Txn::default() }).await.unwrap();
            if first.is_finished() {
                continue;
            }
            let second = confirmer.confirm().await;
            let first = first.await.unwrap();
            driver.abort();
            if first == Confirmation::Confirmed {
                return assert_eq!(second, Confirmation::Deposed);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_confirms_all_who_wait_and_the_silent_store_none() {
        let model = Model::new(1, Faults::default());
        let store = Arc::new(model.connect());
        let shards = ShardCount::new(300).unwrap();
        let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys());
        let mut epochs = Vec::new();
        for shard in shards.shards() {
            epochs.push(confirmer.epoch(shard, own(&store, shard).await, Duration::ZERO));
        }
        let driver = tokio::spawn(driver);
        let all: Vec<_> = epochs.iter().map(EpochConfirmer::confirm).collect();
        for one in all {
            assert_eq!(one.await, Confirmation::Confirmed);
        }
        // 128 shards in each.
        let counted = Confirmations { reads: 3, confirmed: 300, ..Confirmations::default() };
        assert_eq!(confirmer.confirmations(), counted);
        store.cut_off(true);
        assert_eq!(epochs[0].confirm().await, Confirmation::NotConfirmed);
        let counted = Confirmations { unanswered_reads: 1, not_confirmed: 1, ..counted };
        assert_eq!(confirmer.confirmations(), counted);
        driver.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn any_number_of_requests_waits_in_one_place_for_each_epoch() {
        const REQUESTS: usize = 10_000;
        let model = Model::new(1, Faults { time_limit: READ_AGAIN, ..Faults::default() });
        let store = Arc::new(model.connect());
        let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys());
        let mut epochs = Vec::new();
        for shard in ShardCount::new(3).unwrap().shards() {
            epochs.push(confirmer.epoch(shard, own(&store, shard).await, LIMIT));
        }
        let driver = tokio::spawn(driver);
        store.cut_off(true);
        let mut waiting = Vec::new();
        // Some come before a read begins, some while one is in flight, and some between two.
        for _ in 0..10 {
            (0..REQUESTS / 10).for_each(|at| waiting.push(epochs[at % 3].confirm()));
            sleep(READ_AGAIN / 3).await;
            let state = confirmer.0.state();
            assert!(state.waiting.len() + state.reading.len() <= 2 * epochs.len(), "{state:?}");
        }
        let before = confirmer.confirmations();
        assert!(before.unanswered_reads > 1 && before.confirmed == 0, "{before:?}");
        store.cut_off(false);
        for one in waiting {
            assert_eq!(one.await, Confirmation::Confirmed);
        }
        let after = confirmer.confirmations();
        assert_eq!(after.confirmed, REQUESTS as u64, "{after:?}");
        assert!(after.reads <= 2, "{after:?}");
        driver.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_epoch_that_is_not_confirmed_in_time_has_ended_for_all() {
        let model = Model::new(1, Faults::default());
        let store = Arc::new(model.connect());
        let (confirmer, driver) = Confirmer::new(Arc::clone(&store), keys());
        let shard = ShardCount::default().shard(3).unwrap();
        let epoch = confirmer.epoch(shard, own(&store, shard).await, LIMIT);
        let called = Arc::new(AtomicU64::new(0));
        let calls = called.clone();
        epoch.on_end(Box::new(move || {
            calls.fetch_add(1, Ordering::SeqCst);
        }));
        let driver = tokio::spawn(driver);
        assert_eq!(epoch.confirm().await, Confirmation::Confirmed);
        store.cut_off(true);
        let (began, first) = (Instant::now(), epoch.confirm());
        sleep(LIMIT / 2).await;
        let second = epoch.confirm();
        assert_eq!((first.await, called.load(Ordering::SeqCst)), (Confirmation::NotConfirmed, 1));
        assert!(began.elapsed() >= LIMIT);
        assert_eq!(second.await, Confirmation::NotConfirmed);
        // It is given up, whatever the store says later.
        store.cut_off(false);
        assert_eq!(epoch.confirm().await, Confirmation::NotConfirmed);
        assert_eq!(called.load(Ordering::SeqCst), 1);

        let other = confirmer.epoch(shard, Epoch(crate::store::Revision(7)), LIMIT);
        assert_eq!(other.confirm().await, Confirmation::Deposed);
        let waiting = epoch_without_reads(&confirmer, driver).await;
        assert_eq!(waiting, Confirmation::NotConfirmed, "nobody reads any more");
    }

    async fn epoch_without_reads(confirmer: &Confirmer, driver: tokio::task::JoinHandle<()>) -> Confirmation {
        let shard = ShardCount::default().shard(4).unwrap();
        let waiting = confirmer.epoch(shard, Epoch(crate::store::Revision(8)), LIMIT).confirm();
        driver.abort();
        waiting.await
    }
}
