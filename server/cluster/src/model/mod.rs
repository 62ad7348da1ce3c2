//! A model of etcd in memory: transactions, leases and watches on the time of tokio, with faults that follow
//! from a seed.
//!
//! A [`Model`] is the cluster of etcd; each [`ModelStore`] is one client's connection to it. A request is
//! delayed before and after it takes effect, so requests that are in flight together take effect in any
//! order. It may be lost, its answer may be lost, and it may take effect long after its client was told that
//! nobody knows. A client can be cut off, both ways or from the answers alone. Requests run in the runtime of
//! their client, or in one that goes on when that stands still.
//!
//! On a current-thread runtime whose time is paused, everything follows from the seed. Left out: elections
//! (requests that fail meanwhile are lost ones), reads at an old revision, users.

mod state;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::state::State;
use crate::store::{
    Change, KeyRange, LeaseId, MemberSpace, Members, RangeAnswer, Revision, Store, StoreError, Txn,
    TxnAnswer, Watch,
};

/// The faults that requests may meet.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The longest delay of a request, and of an answer.
    pub delay: Duration,
    /// Of 1,000 requests, how many are lost in one of the ways of the module.
    pub lost: u32,
    /// When a client gives up.
    pub time_limit: Duration,
    /// How much later than its time a lease ends, at most.
    pub lease_slack: Duration,
}

/// A cluster of etcd. Clones are the same.
#[derive(Clone, Debug)]
pub struct Model {
    shared: Arc<Shared>,
}

/// The content of a [`Model`] at a moment.
#[derive(Clone, Debug)]
pub struct Saved(State);

/// One client's connection to a [`Model`]. Clones are the same connection.
#[derive(Clone, Debug)]
pub struct ModelStore {
    shared: Arc<Shared>,
    link: Arc<Link>,
}

/// Changes of a [`Model`].
#[derive(Debug)]
pub struct ModelWatch {
    store: ModelStore,
    range: KeyRange,
    next: Revision,
}

/// Not a channel of tokio: `watch` wakes its receivers in an order that no seed gives.
#[derive(Debug, Default)]
struct Link {
    cut_off: AtomicBool,
    /// Whether no answers come.
    drops_answers: AtomicBool,
    /// See [`Store::newest`].
    newest: AtomicU64,
    connected: Notify,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    changed: Notify,
    faults: Faults,
    /// Where requests run; `None`: where they are made.
    runtime: Option<Handle>,
}

#[derive(Debug)]
struct Inner {
    state: State,
    random: u64,
    /// Of 1,000 requests.
    lost: u32,
    /// The revision that watches were woken for.
    told: Revision,
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// Refused before it was sent.
    NotDone,
    /// It never arrives, and the client does not know.
    Lost,
    /// It takes effect, and the client does not know.
    AnswerLost,
    /// It takes effect after the client was told that nobody knows.
    Late,
}

impl Default for Faults {
    /// None, and no delay.
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            lost: 0,
            time_limit: Duration::from_secs(2),
            lease_slack: Duration::from_millis(500),
        }
    }
}

impl Model {
    /// An empty store whose faults follow from this seed.
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, None)
    }

    /// The same, whose requests run in this runtime once they are made: one that is on its way arrives
    /// although its client stands still, or is gone.
    pub fn on(runtime: Handle, seed: u64, faults: Faults) -> Self {
        Self::with(seed, faults, Some(runtime))
    }

    fn with(seed: u64, faults: Faults, runtime: Option<Handle>) -> Self {
        let inner =
            Mutex::new(Inner { state: State::new(), random: seed, lost: faults.lost, told: Revision(1) });
        Self { shared: Arc::new(Shared { inner, changed: Notify::new(), faults, runtime }) }
    }

    /// Another client's connection.
    pub fn connect(&self) -> ModelStore {
        ModelStore { shared: Arc::clone(&self.shared), link: Arc::default() }
    }

    /// The revision now.
    pub fn revision(&self) -> Revision {
        self.shared.advanced().state.revision()
    }

    /// All changes since the beginning, compacted or not, each with its revision.
    pub fn history(&self) -> Vec<(Revision, Vec<Change>)> {
        self.shared.advanced().state.history().to_vec()
    }

    /// Limits the space, in bytes of keys and values that were not compacted away at the last defragmentation
    /// or have come since, and lifts the alarm.
    pub fn set_quota(&self, quota: Option<u64>) {
        self.shared.lock().state.set_quota(quota);
    }

    /// How many writes were refused and not applied, since there was no space.
    pub fn refused_for_space(&self) -> u64 {
        self.shared.lock().state.refused()
    }

    /// The present state, leases too.
    pub fn saved(&self) -> Saved {
        Saved(self.shared.advanced().state.clone())
    }

    /// Puts the store back to what was saved, as etcd is from a snapshot: revisions are given again, a lease
    /// has its full time from now on, and a watch of a revision that the store has not come to is silent.
    pub fn put_back(&self, saved: Saved) {
        let mut inner = self.shared.lock();
        inner.state = saved.0;
        inner.state.renew_leases(Instant::now());
        inner.told = inner.state.revision();
        drop(inner);
        self.shared.changed.notify_waiters();
    }

    /// Loses no requests from now on, but those of clients that are cut off.
    pub fn lose_nothing(&self) {
        self.shared.lock().lost = 0;
    }

    /// Bytes of keys and values that are not compacted away.
    pub fn used(&self) -> u64 {
        self.shared.lock().state.used()
    }
}

impl ModelStore {
    /// Cuts this client off from the cluster, or connects it again. Requests that are sent meanwhile fail, or
    /// arrive later.
    pub fn cut_off(&self, cut_off: bool) {
        self.link.cut_off.store(cut_off, Ordering::Relaxed);
        self.link.connected.notify_waiters();
    }

    /// Keeps the answers from this client, and what it watches, or lets them pass again. Its requests arrive.
    pub fn drop_answers(&self, drop_answers: bool) {
        self.link.drops_answers.store(drop_answers, Ordering::Relaxed);
        self.link.connected.notify_waiters();
    }

    async fn request<T: Send + 'static>(
        &self,
        apply: impl FnOnce(&mut State, Instant) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let limit = self.shared.faults.time_limit;
        let (before, after, late, fate) = self.shared.draw(self.is_cut_off());
        let (answer, answered) = oneshot::channel();
        let store = self.clone();
        self.shared.spawn(async move {
            sleep(before).await;
            match fate {
                Fate::NotDone => {
                    let _ = answer.send(Err(StoreError::NotDone("connection refused".into())));
                    return;
                }
                Fate::Lost => return sleep(limit).await,
                Fate::Late => sleep(limit + late).await,
                Fate::Answered | Fate::AnswerLost => {}
            }
            store.connected().await;
            let result = store.shared.apply(apply);
            sleep(after).await;
            if fate == Fate::AnswerLost || !store.hears() {
                sleep(limit).await;
            }
            let _ = answer.send(result);
        });
        match timeout(limit, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(StoreError::Unknown("no answer within the time limit".into())),
        }
    }

    /// Waits as long as the client is cut off.
    async fn connected(&self) {
        self.until(|store| !store.is_cut_off()).await;
    }

    /// Waits until this holds of the connection.
    async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut connected = pin!(self.link.connected.notified());
            connected.as_mut().enable();
            if holds(self) {
                return;
            }
            connected.await;
        }
    }

    /// Whether answers come.
    fn hears(&self) -> bool {
        !self.is_cut_off() && !self.link.drops_answers.load(Ordering::Relaxed)
    }

    fn is_cut_off(&self) -> bool {
        self.link.cut_off.load(Ordering::Relaxed)
    }
}

impl Store for ModelStore {
    type Watch = ModelWatch;

    async fn txn(&self, txn: Txn) -> Result<TxnAnswer, StoreError> {
        let answer = self.request(move |state, _| state.txn(&txn)).await?;
        self.link.newest.fetch_max(answer.revision.0, Ordering::Relaxed);
        Ok(answer)
    }

    async fn range(&self, range: KeyRange, limit: usize) -> Result<RangeAnswer, StoreError> {
        let read = self.request(move |state, _| Ok(state.range(&range, limit))).await;
        let answer = read.map_err(read_error)?;
        self.link.newest.fetch_max(answer.revision.0, Ordering::Relaxed);
        Ok(answer)
    }

    fn newest(&self) -> Revision {
        Revision(self.link.newest.load(Ordering::Relaxed))
    }

    fn forget_newest(&self) {
        self.link.newest.store(0, Ordering::Relaxed);
    }

    async fn grant(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let slack = self.shared.lock().draw_below(self.shared.faults.lease_slack);
        self.request(move |state, now| state.grant(now, time_to_live, slack)).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Duration, StoreError> {
        self.request(move |state, now| state.keep_alive(now, lease)).await
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.request(move |state, _| state.revoke(lease)).await
    }

    async fn watch(&self, range: KeyRange, from: Revision) -> Result<ModelWatch, StoreError> {
        let store = self.clone();
        let watch = move |state: &mut State, _| {
            let next = if from == Revision(0) { state.revision().next() } else { from };
            state.changes(&range, next)?;
            Ok(ModelWatch { store, range, next })
        };
        self.request(watch).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.request(move |state, _| state.compact(revision)).await
    }
}

impl Members for ModelStore {
    fn endpoints(&self) -> Vec<String> {
        vec!["model".to_owned()]
    }

    async fn space(&self, _endpoint: &str) -> Result<MemberSpace, StoreError> {
        let space = |state: &mut State, _| {
            Ok(MemberSpace { size: state.size(), size_in_use: state.used(), is_leader: true })
        };
        self.request(space).await.map_err(read_error)
    }

    async fn defragment(&self, _endpoint: &str) -> Result<(), StoreError> {
        let defragment = |state: &mut State, _| {
            state.defragment();
            Ok(())
        };
        self.request(defragment).await
    }

    async fn alarm(&self) -> Result<bool, StoreError> {
        self.request(|state, _| Ok(state.alarm())).await.map_err(read_error)
    }
}

/// A read changes nothing, so whether it was done does not matter.
fn read_error(error: StoreError) -> StoreError {
    match error {
        StoreError::Unknown(why) => StoreError::NotDone(why),
        error => error,
    }
}

impl Watch for ModelWatch {
    async fn next(&mut self) -> Result<Vec<Change>, StoreError> {
        loop {
            if !self.store.hears() {
                self.store.until(ModelStore::hears).await;
                if self.store.shared.lock().draw().is_multiple_of(2) {
                    return Err(StoreError::NotDone("the connection has ended".into()));
                }
            }
            let mut changed = pin!(self.store.shared.changed.notified());
            changed.as_mut().enable();
            let (found, revision, end) = {
                let inner = self.store.shared.advanced();
                (inner.state.changes(&self.range, self.next)?, inner.state.revision(), inner.state.next_end())
            };
            if let Some((at, changes)) = found {
                self.store.shared.delay().await;
                // After the delay: a future that was dropped meanwhile has lost nothing.
                self.next = at.next();
                return Ok(changes);
            }
            // A compaction of what does not concern this watch does not end it.
            self.next = self.next.max(revision.next());
            let lease_ends = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = lease_ends => {}
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of this moment.
    fn advanced(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        inner.state.advance(Instant::now());
        let revision = inner.state.revision();
        if std::mem::replace(&mut inner.told, revision) != revision {
            self.changed.notify_waiters();
        }
        inner
    }

    fn spawn(&self, request: impl Future<Output = ()> + Send + 'static) {
        match &self.runtime {
            Some(runtime) => runtime.spawn(request),
            None => tokio::spawn(request),
        };
    }

    fn apply<T>(&self, apply: impl FnOnce(&mut State, Instant) -> T) -> T {
        let result = apply(&mut self.advanced().state, Instant::now());
        drop(self.advanced());
        result
    }

    async fn delay(&self) {
        let delay = self.lock().draw_below(self.faults.delay);
        sleep(delay).await;
    }

    /// The delays of a request, how late it is if it is, and what happens to it.
    fn draw(&self, cut_off: bool) -> (Duration, Duration, Duration, Fate) {
        let mut inner = self.lock();
        let before = inner.draw_below(self.faults.delay);
        let after = inner.draw_below(self.faults.delay);
        let late = inner.draw_below(self.faults.time_limit * 3);
        let lost = cut_off || inner.draw() % 1000 < u64::from(inner.lost);
        let fate = match (lost, inner.draw() % 4) {
            (false, _) => Fate::Answered,
            (true, 0) => Fate::NotDone,
            (true, 1) => Fate::Lost,
            (true, 2) => Fate::AnswerLost,
            (true, _) => Fate::Late,
        };
        (before, after, late, fate)
    }
}

impl Inner {
    /// splitmix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time from 0 to this, in whole microseconds.
    #[expect(clippy::cast_possible_truncation, reason = "delays are seconds")]
    fn draw_below(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.draw() % (most.as_micros() as u64 + 1))
    }
}

#[cfg(test)]
mod tests;
