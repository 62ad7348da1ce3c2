use std::sync::Mutex;

use tokio::sync::Notify;

use super::*;
use crate::keys::Name;
use crate::model::{Faults, Model, ModelStore};
use crate::read::{Stored, read_shard};
use crate::shard::ShardCount;
use crate::store::{KeyRange, LeaseId, Op, RangeAnswer, Revision, StoreError, Txn, TxnAnswer};

/// A store that keeps one transaction back.
#[derive(Debug)]
struct Holding {
    store: ModelStore,
    hold: Mutex<Option<Hold>>,
    held: Mutex<Option<Txn>>,
    changed: Notify,
}

/// What becomes of the transaction.
#[derive(Clone, Copy, Debug)]
enum Hold {
    /// Nobody knows.
    Unknown,
    /// Nobody knows, and somebody else gets the name "n" meanwhile.
    TakesName,
    /// It is not done, which is told when it is taken from `held`.
    NotDone,
}

impl Store for Holding {
    type Watch = <ModelStore as Store>::Watch;

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        let Some(hold) = self.hold.lock().unwrap().take() else { return self.store.txn(txn).await };
        *self.held.lock().unwrap() = Some(txn);
        self.changed.notify_waiters();
        match hold {
            Hold::Unknown => Err(StoreError::Unknown("held".into())),
            Hold::TakesName => {
                let put = Op::Put { key: keys().name("n"), value: "other".into(), lease: None };
                self.store.txn(Txn { then: vec![put], ..Txn::default() }).await?;
                Err(StoreError::Unknown("held".into()))
            }
            Hold::NotDone => {
                self.until(Option::is_none).await;
                Err(StoreError::NotDone("held".into()))
            }
        }
    }
    async fn range(&self, range: KeyRange, limit: usize) -> Result<RangeAnswer, StoreError> {
        self.store.range(range, limit).await
    }
    async fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        self.store.grant(time_to_live).await
    }
    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.store.keep_alive(lease).await
    }
    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke(lease).await
    }
    async fn watch(&self, range: KeyRange, from: Revision) -> Result<Self::Watch, StoreError> {
        self.store.watch(range, from).await
    }
    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

fn keys() -> Keys {
    Keys::new(&Name::new("demo").unwrap())
}

fn shard() -> ShardId {
    ShardCount::default().shard(5).unwrap()
}

async fn own(store: &ModelStore) -> Epoch {
    let put = Op::Put { key: keys().owner(shard()), value: "a".into(), lease: None };
    Epoch(store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap().revision)
}

fn holding(store: &ModelStore, hold: Option<Hold>) -> Arc<Holding> {
    let (hold, held) = (Mutex::new(hold), Mutex::default());
    Arc::new(Holding { store: store.clone(), hold, held, changed: Notify::new() })
}

impl Holding {
    async fn until(&self, is_met: impl Fn(&Option<Txn>) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_met(&self.held.lock().unwrap()) {
                return;
            }
            changed.await;
        }
    }
}

fn write(log_index: u64, batch: &'static str) -> LogWrite {
    LogWrite { log_index: LogIndex(log_index), batch: Bytes::from(batch), ..LogWrite::default() }
}

/// A request was late, its name was taken meanwhile, and its place is used for something else.
#[tokio::test(start_paused = true)]
async fn a_place_is_given_back_behind_a_fence() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let holding = holding(&store, Some(Hold::TakesName));
    let (committer, driver) = Committer::new(Arc::clone(&holding), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    let name = NameChange { name: "n".into(), before: None, after: Some("a".into()) };
    let first = LogWrite { names: vec![name], ..write(1, "first") };
    let outcome = committer.write(shard(), epoch, first).await;
    let taken = Outcome::NameTaken { name: "n".into(), holder: Some("other".into()) };
    assert_eq!(outcome, taken);
    // The name is released, and the late request arrives.
    let delete = Op::Delete(KeyRange::one(keys().name("n")));
    store.txn(Txn { then: vec![delete], ..Txn::default() }).await.unwrap();
    let held = holding.held.lock().unwrap().take().unwrap();
    store.txn(held).await.unwrap();
    let outcome = committer.write(shard(), epoch, write(1, "second")).await;
    driver.abort();
    let log = store.range(keys().whole_log(shard()), 0).await.unwrap().found;
    let (_, batch) = crate::keys::decode_batch(&log[0].value).unwrap();
    assert_eq!((outcome, &batch[..]), (Outcome::Committed, &b"second"[..]));
}

/// The request for the first of two batches is late, and arrives when the second one is there.
#[tokio::test(start_paused = true)]
async fn a_request_that_is_late_changes_nothing_behind_its_place() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let holding = holding(&store, Some(Hold::Unknown));
    let (committer, driver) = Committer::new(Arc::clone(&holding), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    for (log_index, batch) in [(1, "first"), (2, "second")] {
        assert_eq!(committer.write(shard(), epoch, write(log_index, batch)).await, Outcome::Committed);
    }
    let held = holding.held.lock().unwrap().take().unwrap();
    store.txn(held).await.unwrap();
    driver.abort();
    let found = store.range(KeyRange::one(keys().log_index(shard())), 1).await.unwrap().found;
    assert_eq!(PlaceMark::decode(&found[0].value).unwrap().log_index, LogIndex(2));
}

#[tokio::test(start_paused = true)]
async fn large_checkpoints_are_read_back_and_their_pieces_go() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let (committer, driver) = Committer::new(Arc::new(store.clone()), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    let large = Bytes::from(vec![7; 3 * PIECE_BYTES + 1]);
    let set = |state: &Bytes| vec![(9, Some(state.clone()))];
    let first = LogWrite { checkpoints: set(&large), ..write(1, "a") };
    let second = LogWrite { checkpoints: set(&large), trim: Some(LogIndex(2)), ..write(2, "b") };
    for one in [first, second] {
        assert_eq!(committer.write(shard(), epoch, one).await, Outcome::Committed);
    }
    let pieces = store.range(keys().all_pieces(shard()), 0).await.unwrap().found.len();
    assert_eq!(pieces, 4, "those of the first are deleted");
    let mut stored = Vec::new();
    let keys_of_shard = keys();
    let read = read_shard(&store, &keys_of_shard, shard(), epoch, |one| {
        stored.push(one);
        Ok(())
    });
    let end = read.await.unwrap();
    assert_eq!(end.log_index(), LogIndex(2));
    assert_eq!(stored, [Stored::Checkpoint(9, large), Stored::Batch(LogIndex(2), "b".into())]);
    let third = LogWrite { checkpoints: vec![(9, None)], ..write(3, "c") };
    assert_eq!(committer.write(shard(), epoch, third).await, Outcome::Committed);
    assert!(store.range(keys().all_pieces(shard()), 0).await.unwrap().found.is_empty());
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_told_and_waited_for() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let epoch = own(&store).await;
    let (committer, driver) = Committer::new(Arc::new(store), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    let full = committer.full();
    model.set_quota(Some(1));
    // The first one crosses the quota: it is refused, and found in the log by the read that resolves it.
    assert_eq!(committer.write(shard(), epoch, write(1, "a")).await, Outcome::Committed);
    assert!(*full.borrow());
    let outcome = tokio::spawn(committer.write(shard(), epoch, write(2, "b")));
    tokio::time::sleep(RETRY_FULL * 10).await;
    assert!(*full.borrow() && !outcome.is_finished());
    model.set_quota(None);
    assert_eq!(outcome.await.unwrap(), Outcome::Committed);
    assert!(!*full.borrow());
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_store_is_forgotten_when_nothing_is_left_to_send() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let epoch = own(&store).await;
    let holding = holding(&store, None);
    let (committer, driver) = Committer::new(Arc::clone(&holding), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    let mut full = committer.full();
    model.set_quota(Some(1));
    assert_eq!(committer.write(shard(), epoch, write(1, "a")).await, Outcome::Committed);
    assert!(*full.borrow());
    // After the pause the next one is under way; the shard is closed before it is answered.
    *holding.hold.lock().unwrap() = Some(Hold::NotDone);
    let outcome = tokio::spawn(committer.write(shard(), epoch, write(2, "b")));
    holding.until(Option::is_some).await;
    assert!(*full.borrow());
    committer.close(shard(), epoch);
    assert_eq!(outcome.await.unwrap(), Outcome::Closed);
    drop(holding.held.lock().unwrap().take());
    holding.changed.notify_waiters();
    let forgotten = tokio::time::timeout(Duration::from_secs(60), full.wait_for(|full| !full));
    assert!(forgotten.await.is_ok(), "nothing is sent that could find room");
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn an_append_that_fits_no_transaction_is_refused_at_once() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let (committer, driver) = Committer::new(Arc::new(store), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    let large = LogWrite { batch: vec![0; (1 << 20) + 1].into(), ..write(1, "") };
    let many = LogWrite { checkpoints: (0..127).map(|number| (number, None)).collect(), ..write(1, "") };
    for one in [large, many] {
        assert!(matches!(committer.write(shard(), epoch, one).await, Outcome::Refused(_)));
    }
    assert_eq!(committer.write(shard(), epoch, write(1, "a")).await, Outcome::Committed);
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn transactions_are_counted_by_what_became_of_them() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let (committer, driver) =
        Committer::new(holding(&store, Some(Hold::Unknown)), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    // The first request is held back; what the resolving read does not find is sent again.
    assert_eq!(committer.write(shard(), epoch, write(1, "first")).await, Outcome::Committed);
    let mut counted =
        Transactions { unknown: 1, committed: 1, batches: 1, bytes: 5, ..Transactions::default() };
    assert_eq!(committer.transactions(), counted);

    let name = NameChange { name: "n".into(), before: Some("x".into()), after: Some("a".into()) };
    let named = LogWrite { names: vec![name], ..write(2, "named") };
    assert!(matches!(committer.write(shard(), epoch, named).await, Outcome::NameTaken { .. }));
    counted.refused_name += 1;
    assert_eq!(committer.transactions(), counted);

    // Somebody writes under this epoch what this committer does not know of: its place is not where the log
    // ends.
    let mark = PlaceMark { log_index: LogIndex(1), epoch, fence: 7 };
    let put = Op::Put { key: keys().log_index(shard()), value: mark.encode(), lease: None };
    store.txn(Txn { then: vec![put], ..Txn::default() }).await.unwrap();
    assert_eq!(committer.write(shard(), epoch, write(2, "again")).await, Outcome::Committed);
    counted.refused_place += 1;
    counted.committed += 1;
    counted.batches += 1;
    counted.bytes += 5;
    assert_eq!(committer.transactions(), counted);

    let delete = Op::Delete(KeyRange::one(keys().owner(shard())));
    store.txn(Txn { then: vec![delete], ..Txn::default() }).await.unwrap();
    assert_eq!(committer.write(shard(), epoch, write(3, "late")).await, Outcome::Deposed(None));
    counted.refused_owner += 1;
    assert_eq!(committer.transactions(), counted);
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn a_full_store_gives_back_what_is_not_to_wait_for_space() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let epoch = own(&store).await;
    let (committer, driver) = Committer::new(Arc::new(store.clone()), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    model.set_quota(Some(1));
    let hasty = |log_index, batch| LogWrite { is_given_back_when_full: true, ..write(log_index, batch) };
    // It crosses the quota, and is applied.
    assert_eq!(committer.write(shard(), epoch, hasty(1, "first")).await, Outcome::Committed);
    assert_eq!(committer.write(shard(), epoch, hasty(2, "hasty")).await, Outcome::NoSpace);
    let waits = tokio::spawn(committer.write(shard(), epoch, write(2, "waits")));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(!waits.is_finished() && *committer.full().borrow(), "it is not given up");
    assert!(committer.stalled(), "nothing is committed");
    model.set_quota(None);
    assert_eq!(waits.await.unwrap(), Outcome::Committed);
    assert!(!committer.stalled() && !*committer.full().borrow());
    assert_eq!(batches(&store, epoch).await, ["first", "waits"]);
    driver.abort();
}

#[tokio::test(start_paused = true)]
async fn a_shard_is_closed_if_what_waits_is_not_committed() {
    let store = Model::new(1, Faults::default()).connect();
    let epoch = own(&store).await;
    let holding = holding(&store, Some(Hold::NotDone));
    let config = CommitterConfig::default();
    let standstill = config.standstill;
    let (committer, driver) = Committer::new(Arc::clone(&holding), keys(), config);
    let driver = tokio::spawn(driver);
    committer.open(shard(), epoch, LogEnd::default());
    tokio::time::sleep(standstill * 3).await;
    assert!(!committer.stalled(), "nothing waits");
    let began = tokio::time::Instant::now();
    assert_eq!(committer.write(shard(), epoch, write(1, "a")).await, Outcome::Closed);
    assert!(began.elapsed() >= standstill && committer.stalled());
    // Once anything is committed again, it goes on.
    holding.held.lock().unwrap().take();
    holding.changed.notify_waiters();
    let release = vec![Op::Delete(KeyRange::one(keys().owner(shard())))];
    store.txn(Txn { then: release, ..Txn::default() }).await.unwrap();
    let epoch = own(&store).await;
    committer.open(shard(), epoch, LogEnd::default());
    assert_eq!(committer.write(shard(), epoch, write(1, "b")).await, Outcome::Committed);
    assert!(!committer.stalled());
    driver.abort();
}

/// The owner is as before, and the end of the log is an older one.
#[tokio::test(start_paused = true)]
async fn a_shard_is_closed_at_once_if_its_log_has_gone_back() {
    let model = Model::new(1, Faults::default());
    let store = model.connect();
    let epoch = own(&store).await;
    let (committer, driver) = Committer::new(Arc::new(store.clone()), keys(), CommitterConfig::default());
    let driver = tokio::spawn(driver);
    for before in 0..3 {
        committer.open(shard(), epoch, LogEnd::default());
        let mut saved = model.saved();
        for log_index in 1..=3 {
            if log_index == before + 1 {
                saved = model.saved();
            }
            assert_eq!(committer.write(shard(), epoch, write(log_index, "x")).await, Outcome::Committed);
        }
        model.put_back(saved);
        assert_eq!(committer.write(shard(), epoch, write(4, "y")).await, Outcome::Closed);
        assert!(committer.transactions().refused_place <= before + 1, "it is not sent again and again");
        let delete = vec![
            Op::Delete(KeyRange::prefix("/stickycas/demo/log")),
            Op::Delete(KeyRange::one(keys().log_index(shard()))),
        ];
        store.txn(Txn { then: delete, ..Txn::default() }).await.unwrap();
    }
    driver.abort();
}

/// The batches of the log.
async fn batches(store: &ModelStore, epoch: Epoch) -> Vec<Bytes> {
    let mut found = Vec::new();
    let visit = |stored| {
        if let Stored::Batch(_, batch) = stored {
            found.push(batch);
        }
        Ok(())
    };
    read_shard(store, &keys(), shard(), epoch, visit).await.unwrap();
    found
}
