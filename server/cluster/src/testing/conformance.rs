//! The behaviour of every [`Store`]: as fixed examples ([`conforms`]), and as a comparison of two stores that
//! are driven with the same random requests ([`compare`]).
//!
//! Both take a prefix for their keys, so that many runs share one store. Nobody else may write to it
//! meanwhile.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::timeout;

use crate::store::{
    Change, Compare, KeyRange, KeyValue, LeaseId, Op, RangeAnswer, Revision, Store, StoreError, Txn,
    TxnAnswer, Watch,
};

/// A lease that does not end by itself during a comparison.
const LONG: Duration = Duration::from_mins(10);
/// The time for a change to be told.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// More operations than etcd takes in a transaction.
const TOO_MANY: usize = 129;

/// Puts a key without a lease.
pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Op {
    Op::Put { key: key.into(), value: value.into(), lease: None }
}

/// A transaction without comparisons.
pub fn unconditional(then: Vec<Op>) -> Txn {
    Txn { then, ..Txn::default() }
}

/// The next changes of a watch.
///
/// # Errors
/// It has ended, or tells nothing for 20 s.
pub async fn next<W: Watch>(watch: &mut W) -> anyhow::Result<Result<Vec<Change>, StoreError>> {
    timeout(TOLD_WITHIN, watch.next()).await.context("a watch tells nothing")
}

/// Fixed examples of what a store does.
///
/// # Errors
/// The first thing that it does otherwise.
pub async fn conforms<S: Store>(store: &S, prefix: &str) -> anyhow::Result<()> {
    let key = |name: &str| Bytes::from(format!("{prefix}{name}"));
    let base = store.range(KeyRange::prefix(prefix.to_owned()), 0).await?;
    ensure!(base.found.is_empty() && !base.more, "the prefix is in use");
    transactions(store, prefix, &key).await.context("transactions")?;
    leases(store, &key).await.context("leases")?;
    watches(store, prefix, &key).await.context("watches")
}

async fn transactions<S: Store>(store: &S, prefix: &str, key: &impl Fn(&str) -> Bytes) -> anyhow::Result<()> {
    let create = Txn {
        compare: vec![Compare::Created(key("a"), Revision(0))],
        then: vec![put(key("a"), "1"), put(key("b"), "2"), Op::Get(KeyRange::prefix(prefix.to_owned()))],
        otherwise: vec![Op::Get(KeyRange::one(key("a")))],
    };
    let first = store.txn(create.clone()).await?;
    ensure!(first.succeeded, "the key did not exist");
    let found: Vec<_> = first.found.concat().iter().map(|kv| (kv.key.clone(), kv.value.clone())).collect();
    ensure!(found == [(key("a"), "1".into()), (key("b"), "2".into())], "it sees its own puts: {found:?}");
    let again = store.txn(create).await?;
    ensure!(!again.succeeded && again.revision == first.revision, "a refused one changes nothing");
    let a = KeyValue {
        key: key("a"),
        value: "1".into(),
        created: first.revision,
        modified: first.revision,
        lease: None,
    };
    ensure!(again.found == [vec![a.clone()]], "the other operations are done: {:?}", again.found);

    let replace = Txn {
        compare: vec![Compare::Value(key("a"), "1".into()), Compare::Created(key("a"), first.revision)],
        then: vec![put(key("a"), "3")],
        otherwise: Vec::new(),
    };
    let replaced = store.txn(replace.clone()).await?;
    ensure!(replaced.succeeded && replaced.revision == first.revision.next());
    ensure!(!store.txn(replace).await?.succeeded, "its value has changed");
    let all = KeyRange::prefix(prefix.to_owned());
    let one = store.range(all.clone(), 1).await?;
    let a = KeyValue { value: "3".into(), modified: replaced.revision, ..a };
    ensure!(one == RangeAnswer { revision: replaced.revision, found: vec![a], more: true }, "{one:?}");
    ensure!(!store.range(all.clone(), 2).await?.more, "there are just two");

    for refused in [
        vec![put(key("c"), "1"), put(key("c"), "2")],
        vec![put(key("c"), "1"), Op::Delete(all.clone())],
        (0..TOO_MANY).map(|number| put(key(&format!("many/{number}")), "")).collect(),
        vec![put(key("c"), vec![0; 2 << 20])],
    ] {
        let answer = store.txn(unconditional(refused)).await;
        ensure!(matches!(answer, Err(StoreError::Refused(_))), "{answer:?}");
    }
    let deleted = store.txn(unconditional(vec![Op::Delete(all.clone()), Op::Get(all.clone())])).await?;
    ensure!(deleted.found == [vec![]] && deleted.revision == replaced.revision.next());
    let nothing = store.txn(unconditional(vec![Op::Delete(all)])).await?;
    ensure!(nothing.revision == deleted.revision, "nothing is deleted twice");
    Ok(())
}

async fn leases<S: Store>(store: &S, key: &impl Fn(&str) -> Bytes) -> anyhow::Result<()> {
    let put = |name: &str, lease| Op::Put { key: key(name), value: "x".into(), lease: Some(lease) };
    let lease = store.grant(LONG).await?;
    ensure!(store.keep_alive(lease).await? == LONG);
    let done = store.txn(unconditional(vec![put("l/a", lease), put("l/b", lease)])).await?;
    let range = KeyRange::prefix(key("l/"));
    let found = store.range(range.clone(), 0).await?.found;
    ensure!(found.iter().all(|kv| kv.lease == Some(lease)) && found.len() == 2);
    let mut watch = store.watch(range.clone(), done.revision.next()).await?;
    store.revoke(lease).await?;
    let at = done.revision.next();
    let told = next(&mut watch).await??;
    ensure!(told == [Change::Deleted(key("l/a"), at), Change::Deleted(key("l/b"), at)], "{told:?}");
    ensure!(store.keep_alive(lease).await == Err(StoreError::NoLease));
    ensure!(store.revoke(lease).await == Err(StoreError::NoLease));
    let refused = store.txn(unconditional(vec![self::put(key("l/c"), ""), put("l/d", lease)])).await;
    ensure!(refused == Err(StoreError::NoLease), "{refused:?}");
    ensure!(store.range(range, 0).await?.found.is_empty(), "a refused one changes nothing");

    // It ends by itself: nobody keeps it alive.
    let lease = store.grant(Duration::from_secs(1)).await?;
    store.txn(unconditional(vec![put("l/e", lease)])).await?;
    let told = next(&mut watch).await??;
    ensure!(matches!(&told[..], [Change::Put(kv)] if kv.key == key("l/e")), "{told:?}");
    let told = next(&mut watch).await??;
    ensure!(matches!(&told[..], [Change::Deleted(deleted, _)] if *deleted == key("l/e")), "{told:?}");
    ensure!(store.keep_alive(lease).await == Err(StoreError::NoLease));
    Ok(())
}

async fn watches<S: Store>(store: &S, prefix: &str, key: &impl Fn(&str) -> Bytes) -> anyhow::Result<()> {
    let range = KeyRange::prefix(key("w/"));
    let first = store.txn(unconditional(vec![put(key("w/a"), "1"), put(key("w/b"), "1")])).await?.revision;
    store.txn(unconditional(vec![put(key("elsewhere"), "")])).await?;
    let last = store.txn(unconditional(vec![Op::Delete(KeyRange::one(key("w/a")))])).await?.revision;
    let mut watch = store.watch(range.clone(), first).await?;
    ensure!(next(&mut watch).await??.len() == 2, "changes of one revision are told together");
    ensure!(next(&mut watch).await?? == [Change::Deleted(key("w/a"), last)]);

    store.compact(last).await?;
    let again = store.compact(last).await;
    ensure!(matches!(again, Err(StoreError::Compacted(_))), "{again:?}");
    let future = store.compact(Revision(last.0 + 1000)).await;
    ensure!(matches!(future, Err(StoreError::Refused(_))), "{future:?}");
    let oldest = last.next();
    for from in [first, last] {
        let gone = first_of(store, range.clone(), from).await?;
        ensure!(gone == Err(StoreError::Compacted(oldest)), "a watch from {from:?}: {gone:?}");
    }
    let mut kept = store.watch(range, oldest).await?;
    let more = store.txn(unconditional(vec![put(key("w/c"), "")])).await?.revision;
    let told = next(&mut watch).await??;
    ensure!(matches!(&told[..], [Change::Put(kv)] if kv.modified == more), "it goes on: {told:?}");
    ensure!(next(&mut kept).await?? == told, "one that begins behind the compaction tells the same");
    ensure!(
        store.range(KeyRange::prefix(prefix.to_owned()), 0).await?.found.len() == 3,
        "compaction keeps keys"
    );
    Ok(())
}

/// The first answer of a new watch. Some stores look for a compaction when it is opened, others after it.
async fn first_of<S: Store>(
    store: &S,
    range: KeyRange,
    from: Revision,
) -> anyhow::Result<Result<Vec<Change>, StoreError>> {
    match store.watch(range, from).await {
        Ok(mut watch) => next(&mut watch).await,
        Err(error) => Ok(Err(error)),
    }
}

/// Sends the same random requests to two stores, one after the other, and compares all answers: revisions
/// since the start, and leases by their order.
///
/// # Errors
/// The first difference, with its seed and step; or one of them has failed.
pub async fn compare<A: Store, B: Store>(
    seed: u64,
    steps: usize,
    prefix: &str,
    (a, b): (&A, &B),
) -> anyhow::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut a, mut b) = (Side::new(a, prefix).await?, Side::new(b, prefix).await?);
    for step in 0..steps {
        let request = Request::random(&mut random, prefix, a.revision, a.leases.len(), a.watches.len());
        let context = || format!("seed {seed}, step {step}: {request:?}");
        let of_a = a.answer(&request).await.with_context(context)?;
        let of_b = b.answer(&request).await.with_context(context)?;
        ensure!(of_a == of_b, "{}\none answers   {of_a:?}\nthe other one {of_b:?}", context());
    }
    Ok(())
}

/// A request to both stores. Revisions count from the start of the comparison, and leases from the first one.
#[derive(Clone, Debug)]
enum Request {
    Txn(Txn),
    Range(KeyRange, usize),
    Grant,
    KeepAlive(usize),
    Revoke(usize),
    Compact(Revision),
    Watch(KeyRange, Revision),
    /// Reads a watch up to a change that is made for that, and ends it.
    Drain(usize),
}

/// Its answer, in the same counts. Texts of errors are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Txn(TxnAnswer),
    Range(RangeAnswer),
    Time(Duration),
    Changes(Vec<Vec<Change>>),
    Done,
    NoLease,
    Refused,
    /// With the oldest revision, where it is told.
    Compacted(Option<Revision>),
}

/// One of the two.
struct Side<'a, S: Store> {
    store: &'a S,
    /// Its revision at the start.
    base: u64,
    /// That of the last change since then.
    revision: u64,
    leases: Vec<LeaseId>,
    watches: Vec<(Bytes, Result<S::Watch, StoreError>)>,
    markers: u64,
}

impl Request {
    fn random(random: &mut StdRng, prefix: &str, revision: u64, leases: usize, watches: usize) -> Self {
        let index = |random: &mut StdRng, count: usize| random.random_range(0..count);
        match random.random_range(0..100) {
            0..5 => Self::Grant,
            5..8 if leases > 0 => Self::KeepAlive(index(random, leases)),
            8..12 if leases > 0 => Self::Revoke(index(random, leases)),
            // Changes that were compacted while a watch was open may be told or not.
            12..16 if watches == 0 => Self::Compact(Revision(random.random_range(0..=revision + 1))),
            16..24 if watches < 3 => {
                Self::Watch(keys(random, prefix), Revision(random.random_range(1..=revision + 1)))
            }
            24..32 if watches > 0 => Self::Drain(index(random, watches)),
            32..45 => Self::Range(keys(random, prefix), random.random_range(0..4)),
            _ => Self::Txn(txn(random, prefix, revision, leases)),
        }
    }
}

fn key(random: &mut StdRng, prefix: &str) -> Bytes {
    format!("{prefix}{}", ["a", "b", "ba", "c", "d"].choose(random).unwrap_or(&"a")).into()
}

fn keys(random: &mut StdRng, prefix: &str) -> KeyRange {
    let (from, to) = (key(random, prefix), key(random, prefix));
    match random.random_range(0..3) {
        0 => KeyRange::one(from),
        // An empty one cannot be watched.
        1 if from < to => KeyRange { from, to: Some(to) },
        _ => KeyRange::prefix(prefix.to_owned()),
    }
}

fn txn(random: &mut StdRng, prefix: &str, revision: u64, leases: usize) -> Txn {
    let compare = |random: &mut StdRng| match random.random_range(0..3) {
        0 => Compare::Created(key(random, prefix), Revision(0)),
        1 => Compare::Created(key(random, prefix), Revision(random.random_range(0..=revision))),
        _ => Compare::Value(key(random, prefix), value(random)),
    };
    let op = |random: &mut StdRng| match random.random_range(0..6) {
        0 => Op::Delete(keys(random, prefix)),
        1 => Op::Get(keys(random, prefix)),
        _ => {
            let lease = (leases > 0 && random.random_ratio(1, 3)).then(|| random.random_range(0..leases));
            let lease = lease.and_then(|lease| i64::try_from(lease).ok()).map(LeaseId);
            Op::Put { key: key(random, prefix), value: value(random), lease }
        }
    };
    let mut some = |most: usize| random.random_range(0..=most);
    let (compares, then, otherwise) = (some(2), some(4), some(3));
    Txn {
        compare: (0..compares).map(|_| compare(random)).collect(),
        then: (0..then).map(|_| op(random)).collect(),
        otherwise: (0..otherwise).map(|_| op(random)).collect(),
    }
}

fn value(random: &mut StdRng) -> Bytes {
    format!("{}", random.random_range(0..3)).into()
}

impl<'a, S: Store> Side<'a, S> {
    async fn new(store: &'a S, prefix: &str) -> anyhow::Result<Self> {
        let now = store.range(KeyRange::prefix(prefix.to_owned()), 0).await?;
        ensure!(now.found.is_empty(), "the prefix is in use");
        let base = now.revision.0;
        Ok(Self { store, base, revision: 0, leases: Vec::new(), watches: Vec::new(), markers: 0 })
    }

    async fn answer(&mut self, request: &Request) -> anyhow::Result<Answer> {
        let store = self.store;
        let answer = match request.clone() {
            Request::Txn(txn) => store.txn(self.absolute(txn)).await.map(|answer| {
                let found = answer.found.into_iter().map(|found| self.relative_all(found)).collect();
                Answer::Txn(TxnAnswer { revision: self.relative(answer.revision), found, ..answer })
            }),
            Request::Range(keys, limit) => store.range(keys, limit).await.map(|answer| {
                let (revision, found) = (self.relative(answer.revision), self.relative_all(answer.found));
                Answer::Range(RangeAnswer { revision, found, more: answer.more })
            }),
            Request::Grant => store.grant(LONG).await.map(|lease| {
                self.leases.push(lease);
                Answer::Done
            }),
            Request::KeepAlive(lease) => store.keep_alive(self.leases[lease]).await.map(Answer::Time),
            Request::Revoke(lease) => store.revoke(self.leases[lease]).await.map(|()| Answer::Done),
            Request::Compact(revision) => {
                // Its error tells a revision that depends on the store.
                match store.compact(Revision(self.base + revision.0)).await {
                    Err(StoreError::Compacted(_)) => return Ok(Answer::Compacted(None)),
                    done => done.map(|()| Answer::Done),
                }
            }
            Request::Watch(keys, from) => {
                let key = keys.from.clone();
                let watch = store.watch(keys, Revision(self.base + from.0)).await;
                self.watches.push((key, watch));
                Ok(Answer::Done)
            }
            Request::Drain(index) => {
                let (key, watch) = self.watches.swap_remove(index);
                match watch {
                    Ok(watch) => self.drain(watch, key).await?.map(Answer::Changes),
                    Err(error) => {
                        // The other store may find it later.
                        self.mark(&key).await?;
                        Err(error)
                    }
                }
            }
        };
        let answer = answer.or_else(|error| self.error(&error))?;
        if let Answer::Txn(TxnAnswer { revision, .. }) | Answer::Range(RangeAnswer { revision, .. }) = &answer
        {
            self.revision = revision.0;
        }
        Ok(answer)
    }

    /// Sets a key to a value that it never had; returns it.
    async fn mark(&mut self, key: &Bytes) -> anyhow::Result<Bytes> {
        self.markers += 1;
        let marker = Bytes::from(format!("marker {}", self.markers));
        let revision = self.store.txn(unconditional(vec![put(key.clone(), marker.clone())])).await?.revision;
        self.revision = self.relative(revision).0;
        Ok(marker)
    }

    /// Reads a watch until it tells a change of this key that is made now.
    async fn drain(
        &mut self,
        mut watch: S::Watch,
        key: Bytes,
    ) -> anyhow::Result<Result<Vec<Vec<Change>>, StoreError>> {
        let marker = self.mark(&key).await?;
        let mut told = Vec::new();
        loop {
            let changes = match next(&mut watch).await? {
                Ok(changes) => changes,
                Err(error) => return Ok(Err(error)),
            };
            let last = changes.iter().any(|change| matches!(change, Change::Put(kv) if kv.value == marker));
            told.push(changes.into_iter().map(|change| self.relative_change(change)).collect());
            if last {
                return Ok(Ok(told));
            }
        }
    }

    fn error(&self, error: &StoreError) -> anyhow::Result<Answer> {
        match error {
            StoreError::NoLease => Ok(Answer::NoLease),
            StoreError::Refused(_) => Ok(Answer::Refused),
            StoreError::Compacted(oldest) => Ok(Answer::Compacted(Some(self.relative(*oldest)))),
            StoreError::NotDone(_) | StoreError::Unknown(_) | StoreError::NoSpace => {
                bail!("it failed: {error}")
            }
        }
    }

    fn relative(&self, revision: Revision) -> Revision {
        Revision(revision.0.wrapping_sub(self.base))
    }

    fn relative_change(&self, change: Change) -> Change {
        match change {
            Change::Put(kv) => Change::Put(self.relative_key(kv)),
            Change::Deleted(key, revision) => Change::Deleted(key, self.relative(revision)),
        }
    }

    fn relative_key(&self, kv: KeyValue) -> KeyValue {
        let number = |lease| self.leases.iter().position(|known| *known == lease);
        let lease = kv.lease.and_then(number).and_then(|number| i64::try_from(number).ok()).map(LeaseId);
        KeyValue { created: self.relative(kv.created), modified: self.relative(kv.modified), lease, ..kv }
    }

    fn relative_all(&self, found: Vec<KeyValue>) -> Vec<KeyValue> {
        found.into_iter().map(|kv| self.relative_key(kv)).collect()
    }

    /// The transaction with the revisions and leases of this store.
    fn absolute(&self, mut txn: Txn) -> Txn {
        for compare in &mut txn.compare {
            if let Compare::Created(_, revision @ Revision(1..)) = compare {
                revision.0 += self.base;
            }
        }
        for op in txn.then.iter_mut().chain(&mut txn.otherwise) {
            if let Op::Put { lease: Some(lease), .. } = op
                && let Some(known) = usize::try_from(lease.0).ok().and_then(|number| self.leases.get(number))
            {
                *lease = *known;
            }
        }
        txn
    }
}

impl<S: Store> fmt::Debug for Side<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side")
            .field("base", &self.base)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
