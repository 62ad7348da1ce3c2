//! A server as a member of the cluster: its lease, the shards that it claims and gives up.
//!
//! The server's key and its owner's keys live under one lease. What the server may assume of the lease it reckons by its own
//! clock from before a keep-alive was sent; when that time is over, it drops all shards and begins a new session. This is
//! for moving ownership only: a server that is wrong about its lease is stopped by the fences of
//! [`committer`](crate::committer) and [`confirm`](crate::confirm).
//!
//! A shard is claimed when it is free and [`placement`](crate::placement) wants it here. A shard that should be elsewhere is
//! handed over: [`Event::ReleaseRequested`], the owner takes no more for it, commits what is in flight, and calls
//! [`Membership::release`]; then it is free. An owner that cannot serve a shard gives it up ([`Membership::give_up`]), so that
//! another server may try. A lock of etcd would not do: while a holder is paused its lease ends, and on
//! waking it would write beside the next holder.

mod backoff;
mod requests;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use self::backoff::Backoff;
use self::requests::Done;
use self::view::OwnerChange;
pub use self::view::View;
use crate::committer::Owner;
use crate::keys::{BadRecord, Epoch, Identity, Keys, Name, ServerInfo};
use crate::shard::{ShardCount, ShardId};
use crate::store::{Change, Compare, KeyRange, LeaseId, Op, Revision, Store, StoreError, Txn};

/// Changes that wait to be taken in, in revisions.
const CHANGES: usize = 64;

/// How a server takes part.
#[derive(Clone, Debug)]
pub struct MembershipConfig {
    /// Its name. A process that starts with the name of another one ends the other's session.
    pub name: Name,
    /// What it tells the others.
    pub info: ServerInfo,
    /// The time of its lease: 5 seconds unless there is a reason. etcd makes short ones longer.
    pub time_to_live: Duration,
}

/// What a server has to do or to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It owns this shard: read its log and serve it.
    Claimed {
        /// The shard.
        shard: ShardId,
        /// The epoch.
        epoch: Epoch,
    },
    /// The shard should be elsewhere: take no more for it, commit what is in flight, [`Membership::release`] it.
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
    /// Another process has this server's name. This one takes no part any more.
    NameInUse,
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
    Release { shard: ShardId, epoch: Epoch, failed: bool, done: oneshot::Sender<()> },
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
    /// A member, its events, and the future that does its work. When that is dropped, the lease ends by its time.
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
        let (backoff, name) = (Backoff::new(config.time_to_live), config.name.clone());
        let driver = Driver {
            store,
            keys,
            shards,
            config,
            events,
            view_sender,
            valid_sender,
            view: View::default(),
            held: BTreeMap::new(),
            ended: BTreeMap::new(),
            claiming: BTreeMap::new(),
            backoff,
            jobs: JoinSet::new(),
            registered: false,
        };
        (Self { commands, view, valid_until, name }, told, driver.run(received))
    }

    /// Gives a shard up; returns when its key is gone, or the epoch has ended otherwise.
    pub async fn release(&self, shard: ShardId, epoch: Epoch) {
        self.end(shard, epoch, false).await;
    }

    /// As [`Membership::release`], of a shard that cannot be served here: its log cannot be read, or its appends are
    /// [`Closed`](crate::committer::Outcome::Closed) or [`Deposed`](crate::committer::Outcome::Deposed). This server does not
    /// claim it again for a while, which grows from 2 to 64 times of a lease with every failure; another one may.
    pub async fn give_up(&self, shard: ShardId, epoch: Epoch) {
        self.end(shard, epoch, true).await;
    }

    async fn end(&self, shard: ShardId, epoch: Epoch, failed: bool) {
        let (done, released) = oneshot::channel();
        let _ = self.commands.send(Command::Release { shard, epoch, failed, done });
        let _ = released.await;
    }

    /// Asks for the release of all shards, and claims no others.
    pub fn drain(&self) {
        let _ = self.commands.send(Command::Drain);
    }

    /// Ends the session and with it every ownership; returns when the lease is revoked or the store has not answered.
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

#[derive(Debug)]
struct Driver<S> {
    store: S,
    keys: Keys,
    shards: ShardCount,
    config: MembershipConfig,
    events: mpsc::UnboundedSender<Event>,
    view_sender: watch::Sender<Arc<View>>,
    valid_sender: watch::Sender<Option<Instant>>,
    view: View,
    /// The shards of this session.
    held: BTreeMap<ShardId, Held>,
    /// The newest epoch of each shard that has ended here: what is told of it later is old.
    ended: BTreeMap<ShardId, Epoch>,
    /// Shards with a claim under way, and whether placement wants them elsewhere.
    claiming: BTreeMap<ShardId, bool>,
    backoff: Backoff,
    jobs: JoinSet<Done>,
    /// Whether this process has had the name.
    registered: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: Epoch,
    since: Instant,
    /// It was claimed in place of another server, and stays until then.
    keep_until: Option<Instant>,
    release_requested: bool,
}

/// Why a session has ended.
#[derive(Debug)]
enum End {
    Again(String),
    Over,
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Again(error.to_string())
    }
}

impl From<BadRecord> for End {
    fn from(error: BadRecord) -> Self {
        Self::Again(error.to_string())
    }
}

impl<S: Store + Clone> Driver<S> {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let end = self.session(&mut commands).await;
            self.jobs = JoinSet::new();
            self.claiming.clear();
            self.valid_sender.send_replace(None);
            for (shard, held) in std::mem::take(&mut self.held) {
                self.lost(shard, held.epoch);
            }
            match end {
                End::Over => return,
                End::Again(why) => tracing::warn!(why, "the session with etcd has ended"),
            }
            sleep(self.config.time_to_live / 20).await;
        }
    }

    async fn session(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> End {
        let sent = Instant::now();
        let lease = match self.store.grant(self.config.time_to_live).await {
            Ok(lease) => lease,
            Err(error) => return error.into(),
        };
        let mut session =
            Session { lease, valid_until: sent + self.config.time_to_live, revision: Revision(0) };
        let end = match self.register(&mut session).await {
            Ok(()) => self.serve(&mut session, commands).await,
            Err(end) => end,
        };
        // The keys of this session go at once, if the store can be reached.
        let store = self.store.clone();
        tokio::spawn(async move { store.revoke(lease).await });
        end
    }

    /// Sets the server's key, and ends the session of an earlier process or of this one under the same name.
    async fn register(&mut self, session: &mut Session) -> Result<(), End> {
        let key = self.keys.server(&self.config.name);
        let (_, found) = requests::snapshot(&self.store, &self.keys).await?;
        self.load(&found)?;
        if self.registered && self.view.is_other(&self.config.name, self.config.info.incarnation) {
            let _ = self.events.send(Event::NameInUse);
            return Err(End::Over);
        }
        if let Some(old) = found.iter().find(|kv| kv.key == key).and_then(|kv| kv.lease) {
            self.store.revoke(old).await?;
        }
        let txn = Txn {
            compare: vec![Compare::Created(key, Revision(0))],
            then: vec![self.own_key(session.lease)],
            otherwise: Vec::new(),
        };
        if !self.store.txn(txn).await?.succeeded {
            return Err(End::Again("the server's key is not free".into()));
        }
        self.registered = true;
        let (revision, found) = requests::snapshot(&self.store, &self.keys).await?;
        self.load(&found)?;
        session.revision = revision;
        self.backoff.new_session();
        Ok(())
    }

    async fn serve(&mut self, session: &mut Session, commands: &mut mpsc::UnboundedReceiver<Command>) -> End {
        let (changes, mut changed) = mpsc::channel(CHANGES);
        for range in [self.keys.servers(), self.keys.owners(), self.keys.all_rules()] {
            let from = Revision(session.revision.0 + 1);
            self.jobs.spawn(requests::watch(self.store.clone(), range, from, changes.clone()));
        }
        let interval = self.config.time_to_live / 3;
        let mut next_keep_alive = Instant::now();
        loop {
            if Instant::now() >= session.valid_until {
                return End::Again("the lease was not kept alive in time".into());
            }
            self.valid_sender.send_replace(Some(session.valid_until));
            self.place(session.lease);
            let result = tokio::select! {
                biased;
                () = sleep_until(session.valid_until) => continue,
                () = sleep_until(next_keep_alive) => {
                    self.jobs.spawn(requests::keep_alive(self.store.clone(), session.lease));
                    next_keep_alive = Instant::now() + interval;
                    Ok(())
                }
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.done(done, session, &mut next_keep_alive),
                    Err(error) => Err(End::Again(error.to_string())),
                },
                Some(changes) = changed.recv() => self.changes(changes, session.lease),
                command = commands.recv() => self.command(command, session.lease).await,
            };
            if let Err(end) = result {
                return end;
            }
        }
    }

    fn done(&mut self, done: Done, session: &mut Session, next_keep_alive: &mut Instant) -> Result<(), End> {
        match done {
            Done::KeptAlive { sent, result: Ok(time_to_live) } => {
                session.valid_until = session.valid_until.max(sent + time_to_live);
            }
            Done::KeptAlive { result: Err(StoreError::NoLease), .. } => {
                return Err(StoreError::NoLease.into());
            }
            Done::KeptAlive { .. } => {
                *next_keep_alive = (*next_keep_alive).min(Instant::now() + self.config.time_to_live / 10);
            }
            Done::Claim(shard, epoch) => {
                if let Some(epoch) = epoch {
                    self.claimed(shard, epoch);
                }
                self.claiming.remove(&shard);
            }
            Done::Released { shard, epoch, was_owner, done } => {
                if !was_owner {
                    self.backoff.was_deposed(shard);
                }
                if self.held.get(&shard).is_some_and(|held| held.epoch == epoch) {
                    self.held.remove(&shard);
                    self.forget(shard, epoch);
                }
                let _ = done.send(());
            }
            Done::Over => {}
        }
        Ok(())
    }

    fn changes(&mut self, changes: Result<Vec<Change>, StoreError>, lease: LeaseId) -> Result<(), End> {
        // Whatever ends a watch, a new session reads everything again.
        for change in changes? {
            match self.view.change(&self.keys, self.shards, &change)? {
                Some(OwnerChange::Owned(shard, epoch, by)) if by == Some(lease) => self.claimed(shard, epoch),
                Some(OwnerChange::Owned(shard, epoch, _)) => self.ended_before(shard, epoch.0),
                Some(OwnerChange::Free(shard, revision)) => self.ended_before(shard, revision),
                None => {}
            }
        }
        Ok(())
    }

    async fn command(&mut self, command: Option<Command>, lease: LeaseId) -> Result<(), End> {
        match command {
            Some(Command::Release { shard, epoch, failed, done }) => {
                if let Some(held) = self.held.get_mut(&shard).filter(|held| held.epoch == epoch) {
                    held.release_requested = true;
                    // Now, since the watch may tell the end of the epoch before the release is answered.
                    if failed {
                        self.backoff.failed(shard, held.since.elapsed(), Instant::now());
                    }
                    let (store, keys) = (self.store.clone(), self.keys.clone());
                    self.jobs.spawn(requests::release(store, keys, shard, epoch, done));
                }
                Ok(())
            }
            Some(Command::Drain) => {
                self.config.info.draining = true;
                self.view.servers.insert(self.config.name.as_str().to_owned(), self.config.info.clone());
                self.jobs.spawn(requests::announce(self.store.clone(), self.own_key(lease)));
                Ok(())
            }
            Some(Command::Leave(done)) => {
                let _ = self.store.revoke(lease).await;
                let _ = done.send(());
                Err(End::Over)
            }
            None => Err(End::Over),
        }
    }

    /// Claims what is free and should be here, and asks for the release of what should be elsewhere.
    fn place(&mut self, lease: LeaseId) {
        let (name, now) = (self.config.name.as_str(), Instant::now());
        let desired = self.view.desired(self.shards);
        let mut requested = Vec::new();
        for (shard, desired) in self.shards.shards().zip(desired) {
            if let Some(held) = self.held.get_mut(&shard) {
                self.backoff.owned(shard);
                let stays = held.keep_until.is_some_and(|until| now < until);
                let elsewhere = desired.is_some_and(|desired| desired != name) && !stays;
                if (elsewhere || self.config.info.draining) && !held.release_requested {
                    held.release_requested = true;
                    requested.push(Event::ReleaseRequested { shard, epoch: held.epoch });
                }
            } else if self.view.owners.contains_key(&shard) {
                self.backoff.owned(shard);
            } else if let Some(desired) = desired {
                let turn = self.backoff.turn(shard, now);
                let claims = !self.claiming.contains_key(&shard) && !self.backoff.is_paused(shard, now);
                if claims && self.view.behind(shard, desired, turn) == Some(name) {
                    self.claiming.insert(shard, desired != name);
                    let known = self.view.rules.get(&shard).copied();
                    let rules = (known, known.unwrap_or_default().max(self.config.info.replays));
                    let by = (shard, self.config.name.clone(), lease);
                    self.jobs.spawn(requests::claim(self.store.clone(), self.keys.clone(), by, rules));
                }
            }
        }
        for event in requested {
            let _ = self.events.send(event);
        }
        self.view_sender.send_if_modified(|told| {
            let changed = **told != self.view;
            if changed {
                *told = Arc::new(self.view.clone());
            }
            changed
        });
    }

    /// By the answer or by the watch, whichever comes first.
    fn claimed(&mut self, shard: ShardId, epoch: Epoch) {
        let known = self.held.get(&shard).is_some_and(|held| held.epoch >= epoch);
        if known || self.ended.get(&shard).is_some_and(|ended| *ended >= epoch) {
            return;
        }
        self.ended_before(shard, epoch.0);
        self.view.owned(shard, Owner { server: self.config.name.as_str().to_owned(), epoch });
        let now = Instant::now();
        let elsewhere = self.claiming.get(&shard).is_some_and(|elsewhere| *elsewhere);
        let keep_until = elsewhere.then(|| self.backoff.keep_until(now));
        self.held.insert(shard, Held { epoch, since: now, keep_until, release_requested: false });
        let _ = self.events.send(Event::Claimed { shard, epoch });
    }

    /// What was held in an epoch before this revision has ended.
    fn ended_before(&mut self, shard: ShardId, revision: Revision) {
        if let Some(held) = self.held.get(&shard).copied().filter(|held| held.epoch.0 < revision) {
            self.held.remove(&shard);
            self.lost(shard, held.epoch);
        }
    }

    fn lost(&mut self, shard: ShardId, epoch: Epoch) {
        self.forget(shard, epoch);
        let _ = self.events.send(Event::Lost { shard, epoch });
    }

    fn forget(&mut self, shard: ShardId, epoch: Epoch) {
        self.ended.insert(shard, epoch);
        if self.view.owners.get(&shard).is_some_and(|owner| owner.epoch == epoch) {
            self.view.owners.remove(&shard);
        }
    }

    fn load(&mut self, found: &[crate::store::KeyValue]) -> Result<(), BadRecord> {
        self.view = View::default();
        for kv in found {
            self.view.put(&self.keys, self.shards, kv)?;
        }
        Ok(())
    }

    fn own_key(&self, lease: LeaseId) -> Op {
        Op::Put {
            key: self.keys.server(&self.config.name),
            value: self.config.info.encode(),
            lease: Some(lease),
        }
    }
}

#[derive(Debug)]
struct Session {
    lease: LeaseId,
    valid_until: Instant,
    /// The revision of the view that it began with.
    revision: Revision,
}

#[cfg(test)]
mod tests;
