//! The work of a member: one session after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::backoff::Backoff;
use super::hand_over::HandOvers;
use super::requests::{self, Changes, Done, OwnKey, Watched};
use super::view::{OwnerChange, View};
use super::{Command, Event, MembershipConfig};
use crate::committer::Owner;
use crate::keys::{BadRecord, Epoch, Keys};
use crate::shard::{ShardCount, ShardId};
use crate::store::{Compare, LeaseId, Op, Revision, Store, StoreError, Txn};

/// Changes that wait to be taken in, in revisions.
const CHANGES: usize = 64;

/// While nobody owns anything, no shard is claimed before no server has come for this part of a lease:
/// servers that are started together claim their shares, and no shard moves afterwards. After the death of a
/// server the others own some.
const SETTLE_PART: u32 = 10;

/// Where the server learns what it has to do or to know.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) events: mpsc::UnboundedSender<Event>,
    pub(super) view: watch::Sender<Arc<View>>,
    pub(super) valid_until: watch::Sender<Option<Instant>>,
}

#[derive(Debug)]
pub(super) struct Driver<S> {
    pub(super) store: S,
    pub(super) keys: Keys,
    shards: ShardCount,
    pub(super) config: MembershipConfig,
    told: Told,
    view: View,
    /// The shards of this session.
    held: BTreeMap<ShardId, Held>,
    /// The newest epoch of each shard that has ended here: later reports of it are old.
    ended: BTreeMap<ShardId, Epoch>,
    /// Shards with a claim under way, and whether placement wants them elsewhere.
    claiming: BTreeMap<ShardId, bool>,
    backoff: Backoff,
    /// When the last server came.
    joined: Instant,
    hand_overs: HandOvers,
    jobs: JoinSet<Done>,
    /// Whether the store was put back since the session has begun.
    was_put_back: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: Epoch,
    since: Instant,
    /// It was claimed in place of another server, or could not be handed over, and stays until then.
    keep_until: Option<Instant>,
    release_requested: bool,
}

/// Why a session has ended.
#[derive(Debug)]
pub(super) enum End {
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
    pub(super) fn new(
        store: S,
        keys: Keys,
        shards: ShardCount,
        config: MembershipConfig,
        told: Told,
    ) -> Self {
        let backoff = Backoff::new(config.time_to_live);
        Self {
            store,
            keys,
            shards,
            config,
            told,
            view: View::default(),
            held: BTreeMap::new(),
            ended: BTreeMap::new(),
            claiming: BTreeMap::new(),
            backoff,
            joined: Instant::now(),
            hand_overs: HandOvers::default(),
            jobs: JoinSet::new(),
            was_put_back: false,
        }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        loop {
            let end = self.session(&mut commands).await;
            self.jobs = JoinSet::new();
            self.claiming.clear();
            self.hand_overs.clear();
            self.told.valid_until.send_replace(None);
            for (shard, held) in std::mem::take(&mut self.held) {
                self.lost(shard, held.epoch);
            }
            self.tell_view();
            match end {
                End::Over => return,
                End::Again(why) => tracing::warn!(why, "the session with etcd has ended"),
            }
            sleep(self.config.time_to_live / 20).await;
        }
    }

    async fn session(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> End {
        if let Err(end) = self.await_name(commands).await {
            return end;
        }
        let sent = Instant::now();
        let lease = match self.store.grant(self.config.time_to_live).await {
            Ok(lease) => lease,
            Err(error) => return error.into(),
        };
        let mut session =
            Session { lease, valid_until: sent + self.config.time_to_live, watched: Vec::new() };
        let end = match self.register(&mut session).await {
            Ok(()) => self.serve(&mut session, commands).await,
            Err(end) => end,
        };
        // The keys of this session go at once, if the store can be reached.
        let store = self.store.clone();
        tokio::spawn(async move { store.revoke(lease).await });
        end
    }

    /// Sets the server's key, if nobody has it, and reads the cluster.
    async fn register(&mut self, session: &mut Session) -> Result<(), End> {
        let txn = Txn {
            compare: vec![Compare::Created(self.keys.server(&self.config.name), Revision(0))],
            then: vec![self.own_key(session.lease)],
            otherwise: Vec::new(),
        };
        if !self.store.txn(txn).await?.succeeded {
            return Err(End::Again("the server's key is not free".into()));
        }
        let known = self.store.newest();
        let (revision, watched, found) = requests::snapshot(&self.store, &self.keys).await?;
        if revision < known {
            self.went_back(known, revision);
        }
        if std::mem::take(&mut self.was_put_back) {
            // The epochs that have ended before say nothing of those that come.
            self.ended.clear();
            self.backoff = Backoff::new(self.config.time_to_live);
        }
        self.load(&found)?;
        session.watched = watched;
        self.joined = Instant::now();
        self.backoff.new_session();
        Ok(())
    }

    async fn serve(&mut self, session: &mut Session, commands: &mut mpsc::UnboundedReceiver<Command>) -> End {
        let (changes, mut changed) = mpsc::channel(CHANGES);
        for watched in session.watched.drain(..) {
            self.jobs.spawn(requests::watch(self.store.clone(), watched, changes.clone()));
        }
        let interval = self.config.time_to_live / 3;
        let mut next_keep_alive = Instant::now();
        loop {
            if Instant::now() >= session.valid_until {
                return End::Again("the lease was not kept alive in time".into());
            }
            self.told.valid_until.send_replace(Some(session.valid_until));
            let settles_at = self.settles_at();
            self.place(session.lease, settles_at.is_none());
            let result = tokio::select! {
                biased;
                () = sleep_until(session.valid_until) => continue,
                () = sleep_until(settles_at.unwrap_or(session.valid_until)), if settles_at.is_some() => Ok(()),
                () = sleep_until(next_keep_alive) => {
                    self.jobs.spawn(requests::keep_alive(self.store.clone(), session.lease));
                    next_keep_alive = Instant::now() + interval;
                    Ok(())
                }
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.done(done, session, &mut next_keep_alive),
                    Err(error) => Err(End::Again(error.to_string())),
                },
                Some(changes) = changed.recv() => self.all_changes(changes, &mut changed, session.lease),
                command = commands.recv() => self.command(command, session.lease).await,
                () = sleep_until(self.hand_overs.room_at().unwrap_or(session.valid_until)) => Ok(()),
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
                let key = self.keys.server(&self.config.name);
                self.jobs.spawn(requests::own_key(self.store.clone(), session.lease, key));
            }
            Done::OwnKey(own_key) => self.check_own_key(&own_key)?,
            Done::KeptAlive { result: Err(StoreError::NoLease), .. } => {
                return Err(StoreError::NoLease.into());
            }
            Done::KeptAlive { result: Err(error), .. } => {
                tracing::warn!(%error, "the lease was not kept alive: it is tried again");
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
                let _ = done.send(was_owner);
            }
            Done::Over => {}
        }
        Ok(())
    }

    /// Ends the session if the store is not what it was.
    fn check_own_key(&mut self, own_key: &OwnKey) -> Result<(), End> {
        if own_key.read_at < own_key.known {
            self.went_back(own_key.known, own_key.read_at);
            return Err(End::Again("etcd was put back".into()));
        }
        if own_key.is_there { Ok(()) } else { Err(End::Again("the server's key is gone".into())) }
    }

    /// The store was put back.
    fn went_back(&mut self, from: Revision, to: Revision) {
        tracing::error!(
            from = from.0,
            to = to.0,
            "etcd has gone back to an earlier revision: it was put back from a snapshot. What was committed since is lost; \
             the server reads all logs again"
        );
        self.store.forget_newest();
        self.was_put_back = true;
    }

    /// These changes and those that wait behind them, so that a placement is computed once for all.
    fn all_changes(
        &mut self,
        first: Changes,
        waiting: &mut mpsc::Receiver<Changes>,
        lease: LeaseId,
    ) -> Result<(), End> {
        self.changes(first, lease)?;
        while let Ok(next) = waiting.try_recv() {
            self.changes(next, lease)?;
        }
        Ok(())
    }

    fn changes(&mut self, changes: Changes, lease: LeaseId) -> Result<(), End> {
        // If nothing more is told, a new session reads everything again.
        let servers = self.view.servers.len();
        for change in changes? {
            match self.view.change(&self.keys, self.shards, &change)? {
                Some(OwnerChange::Owned(shard, epoch, by)) if by == Some(lease) => self.claimed(shard, epoch),
                Some(OwnerChange::Owned(shard, epoch, _)) => self.ended_before(shard, epoch.0),
                Some(OwnerChange::Free(shard, revision)) => self.ended_before(shard, revision),
                None => {}
            }
        }
        if self.view.servers.len() > servers {
            self.joined = Instant::now();
        }
        Ok(())
    }

    /// Until when no shard is claimed.
    fn settles_at(&self) -> Option<Instant> {
        let at = self.joined + self.config.time_to_live / SETTLE_PART;
        (self.view.owners.is_empty() && Instant::now() < at).then_some(at)
    }

    async fn command(&mut self, command: Option<Command>, lease: LeaseId) -> Result<(), End> {
        match command {
            Some(Command::Release { shard, epoch, failed, done }) => {
                if let Some(held) = self.held.get_mut(&shard).filter(|held| held.epoch == epoch) {
                    held.release_requested = true;
                    self.hand_overs.released(shard, epoch, Instant::now());
                    // Now, since the watch may tell the end of the epoch before the release is answered.
                    if failed {
                        self.backoff.failed(shard, held.since.elapsed(), Instant::now());
                    }
                    let (store, keys) = (self.store.clone(), self.keys.clone());
                    self.jobs.spawn(requests::release(store, keys, shard, epoch, done));
                } else {
                    let _ = done.send(false);
                }
                Ok(())
            }
            Some(Command::Keep { shard, epoch }) => {
                if let Some(held) = self.held.get_mut(&shard).filter(|held| held.epoch == epoch) {
                    held.release_requested = false;
                    held.keep_until = Some(Instant::now() + self.config.time_to_live);
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

    /// Claims what is free and should be here, if anything may be claimed, and asks for the release of what
    /// should be elsewhere: a few at a time, or all if it drains.
    fn place(&mut self, lease: LeaseId, may_claim: bool) {
        let (name, now) = (self.config.name.as_str(), Instant::now());
        let desired = self.view.desired(self.shards);
        let held = self.held.iter().map(|(shard, held)| (*shard, held.release_requested));
        let mut room = self.hand_overs.room(&self.config.name, &self.view, held, now);
        let mut requested = Vec::new();
        for (shard, desired) in self.shards.shards().zip(desired) {
            if let Some(held) = self.held.get_mut(&shard) {
                self.backoff.owned(shard);
                let stays = held.keep_until.is_some_and(|until| now < until);
                let elsewhere = desired.is_some_and(|desired| desired != name) && !stays;
                let draining = self.config.info.draining;
                // A server that drains has several successors, and is to be gone soon.
                if (draining || elsewhere && room > 0) && !held.release_requested {
                    room = room.saturating_sub(1);
                    held.release_requested = true;
                    requested.push(Event::ReleaseRequested { shard, epoch: held.epoch });
                }
            } else if self.view.owners.contains_key(&shard) {
                self.backoff.owned(shard);
            } else if let Some(desired) = desired.filter(|_| may_claim) {
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
            let _ = self.told.events.send(event);
        }
        self.tell_view();
    }

    fn tell_view(&self) {
        self.told.view.send_if_modified(|told| {
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
        let _ = self.told.events.send(Event::Claimed { shard, epoch });
    }

    /// An epoch of the shard that began before this revision has ended.
    fn ended_before(&mut self, shard: ShardId, revision: Revision) {
        if let Some(held) = self.held.get(&shard).copied().filter(|held| held.epoch.0 < revision) {
            self.held.remove(&shard);
            self.lost(shard, held.epoch);
        }
    }

    fn lost(&mut self, shard: ShardId, epoch: Epoch) {
        self.forget(shard, epoch);
        let _ = self.told.events.send(Event::Lost { shard, epoch });
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
    /// The ranges whose changes it is told, behind the view that it began with.
    watched: Vec<Watched>,
}
