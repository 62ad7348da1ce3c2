//! Which write is sent when, and what its answer means.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::counts::{Cause, Counts};
use super::jobs::{self, Done};
use super::open_shard::{Pending, Shard, State};
use super::txn::{Collected, Prepared, ReadBack, ShardWrite, WriteKind, read_back, transaction};
use super::{Command, CommitterConfig, DEPTH, LogEnd, LogWrite, Outcome, Owner};
use crate::keys::{Epoch, Keys, LogIndex, PlaceMark};
use crate::shard::ShardId;
use crate::store::{Store, TxnAnswer};

#[derive(Debug)]
pub(super) struct Driver<S> {
    store: Arc<S>,
    pub(super) keys: Keys,
    pub(super) config: CommitterConfig,
    pub(super) full: watch::Sender<bool>,
    pub(super) stalled: watch::Sender<bool>,
    pub(super) counts: Counts,
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// Shards that have something to send, each once.
    ready: VecDeque<ShardId>,
    pub(super) jobs: JoinSet<Done>,
    /// Transactions that have no outcome yet.
    in_flight: usize,
    /// Nothing is sent: the store is full, and gets a pause.
    paused: bool,
}

impl<S: Store> Driver<S> {
    pub(super) fn new(
        store: Arc<S>,
        keys: Keys,
        config: CommitterConfig,
        full: watch::Sender<bool>,
        stalled: watch::Sender<bool>,
    ) -> Self {
        let (shards, ready, jobs) = (BTreeMap::new(), VecDeque::new(), JoinSet::new());
        let counts = Counts::default();
        Self { store, keys, config, full, stalled, counts, shards, ready, jobs, in_flight: 0, paused: false }
    }

    pub(super) async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let mut looks = self.looks();
        loop {
            tokio::select! {
                biased;
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.done(done),
                    // A job neither panics nor is aborted.
                    Err(error) => tracing::error!(%error, "a job of the committer has failed"),
                },
                command = commands.recv() => match command {
                    Some(command) => self.command(command),
                    None => return,
                },
                _ = looks.tick() => self.look_for_stalls(),
            }
            // Commands that have come meanwhile share the next transaction.
            while let Ok(command) = commands.try_recv() {
                self.command(command);
            }
            self.send();
            self.forget_full();
        }
    }

    /// Nothing is left that could find out that there is room again, however its writes have ended.
    fn forget_full(&self) {
        let is_idle = || self.shards.values().all(|open| open.pending.is_empty());
        if !self.paused && *self.full.borrow() && is_idle() {
            self.full.send_replace(false);
            self.stalled.send_replace(false);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Open { shard, epoch, end } => self.open(shard, epoch, end),
            Command::LogWrite { shard, epoch, write, done } => self.write(shard, epoch, write, done),
            Command::Close { shard, epoch } => {
                if self.shards.get(&shard).is_some_and(|open| open.epoch == epoch) {
                    self.end(shard, &Outcome::Closed);
                }
            }
        }
    }

    fn open(&mut self, shard: ShardId, epoch: Epoch, end: LogEnd) {
        if self.shards.get(&shard).is_some_and(|open| open.epoch >= epoch) {
            return;
        }
        self.end(shard, &Outcome::Closed);
        let open = Shard {
            epoch,
            mark: end.mark,
            opened_at: end.mark,
            fence: 0,
            pending: BTreeMap::new(),
            in_flight: 0,
            window: DEPTH,
            alone: false,
            with_pieces: end.with_pieces.into_iter().collect(),
            generation: 0,
            waits: None,
        };
        self.shards.insert(shard, open);
    }

    fn write(&mut self, shard: ShardId, epoch: Epoch, write: LogWrite, done: oneshot::Sender<Outcome>) {
        let Some(open) = self.shards.get_mut(&shard).filter(|open| open.epoch == epoch) else {
            let _ = done.send(Outcome::Closed);
            return;
        };
        let log_index = write.log_index;
        if log_index <= open.log_index() || open.pending.contains_key(&log_index) {
            let _ = done.send(Outcome::Refused(format!("place {} of the log is not free", log_index.0)));
            return;
        }
        let (with_pieces, generation) = (&mut open.with_pieces, &mut open.generation);
        match Prepared::new(&self.keys, shard, epoch, write, with_pieces, generation) {
            Err(why) => drop(done.send(Outcome::Refused(why))),
            Ok(prepared) => {
                let state = if prepared.pieces.is_empty() { State::Ready } else { State::Staging };
                if state == State::Staging {
                    let (store, owner) = (Arc::clone(&self.store), self.keys.owner(shard));
                    let pieces = prepared.pieces.clone();
                    self.jobs.spawn(jobs::stage(store, owner, (shard, epoch, log_index), pieces));
                }
                let prepared = Arc::new(prepared);
                open.pending
                    .insert(log_index, Pending { prepared, done, state, doubtful: false, give_back: None });
                self.is_ready(shard);
            }
        }
    }

    fn is_ready(&mut self, shard: ShardId) {
        if !self.ready.contains(&shard) {
            self.ready.push_back(shard);
        }
    }

    /// Sends as long as transactions may be in flight.
    fn send(&mut self) {
        while !self.paused && self.in_flight < DEPTH {
            let mut collected = Collected::default();
            for _ in 0..self.ready.len() {
                let Some(shard) = self.ready.pop_front() else { break };
                let Some(open) = self.shards.get_mut(&shard) else { continue };
                let Some(part) = open.next_part(shard) else { continue };
                let fits = match &part.kind {
                    WriteKind::LogWrite(prepared) if !open.alone => collected.takes(prepared),
                    _ => collected.parts.is_empty(),
                };
                if !fits {
                    self.ready.push_back(shard);
                    continue;
                }
                let alone = open.alone;
                open.is_sent(part.log_index());
                collected.add(part);
                self.ready.push_back(shard);
                if alone {
                    break;
                }
            }
            if collected.parts.is_empty() {
                return;
            }
            self.in_flight += 1;
            let (store, keys) = (Arc::clone(&self.store), self.keys.clone());
            let txn = transaction(&self.keys, &collected.parts);
            self.jobs.spawn(jobs::commit(store, keys, txn, collected.parts));
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Answered(parts, answer) => {
                self.in_flight -= 1;
                if self.full.send_if_modified(std::mem::take) {
                    // Nothing could be committed so far.
                    self.shards.values_mut().for_each(|open| open.waits = None);
                }
                self.answered(&parts, answer);
            }
            Done::Resolved { parts, answer, full } => {
                self.in_flight -= 1;
                self.counts.add(|counts| counts.unknown += 1);
                // A full store has answered: no request is under way any more.
                for part in parts.iter().filter(|_| !full) {
                    if let Some(pending) = self.pending(part) {
                        pending.doubtful = true;
                    }
                }
                self.resolve(&parts, answer, false);
                if full {
                    self.pause();
                }
            }
            Done::NotTaken(parts) => {
                self.in_flight -= 1;
                self.counts.add(|counts| counts.not_taken += 1);
                self.jobs.spawn(jobs::again(parts));
            }
            Done::Rejected(parts, why) => {
                self.in_flight -= 1;
                self.counts.add(|counts| counts.rejected += 1);
                self.never(parts, why);
            }
            Done::Again(parts) => {
                for part in parts {
                    self.send_again(&part);
                }
            }
            Done::Paused => self.paused = false,
            Done::Staged(shard, epoch, log_index, result) => {
                let open = self.shards.get_mut(&shard).filter(|open| open.epoch == epoch);
                let Some(pending) = open.and_then(|open| open.pending.get_mut(&log_index)) else { return };
                if pending.state == State::Staging {
                    pending.state = State::Ready;
                    match result {
                        Ok(()) => self.is_ready(shard),
                        Err(why) => self.give_back(shard, log_index, Outcome::Refused(why)),
                    }
                }
            }
        }
    }

    /// The store is full: that is told, what is not to wait is given back, and it gets a pause.
    fn pause(&mut self) {
        self.full.send_if_modified(|full| !std::mem::replace(full, true));
        let ready = |(&shard, open): (&ShardId, &Shard)| {
            let (&log_index, first) = open.pending.first_key_value()?;
            let gives_back = first.state == State::Ready && first.prepared.write.is_given_back_when_full;
            (gives_back && first.give_back.is_none()).then_some((shard, log_index))
        };
        let ready: Vec<_> = self.shards.iter().filter_map(ready).collect();
        for (shard, log_index) in ready {
            self.give_back(shard, log_index, Outcome::NoSpace);
        }
        if !std::mem::replace(&mut self.paused, true) {
            self.jobs.spawn(jobs::pause());
        }
    }

    fn answered(&mut self, parts: &[ShardWrite], answer: TxnAnswer) {
        if answer.succeeded {
            self.stalled.send_if_modified(std::mem::take);
            self.counts.add(|counts| counts.committed(parts));
            for part in parts {
                self.succeeded(part);
            }
        } else {
            let cause = self.resolve(parts, answer, true);
            self.counts.refused(cause);
        }
    }

    pub(super) fn succeeded(&mut self, part: &ShardWrite) {
        let Some(open) = self.returned(part) else { return };
        open.window = (open.window * 2).min(DEPTH);
        open.alone = false;
        open.advance(part.after);
        if matches!(part.kind, WriteKind::Fence) {
            open.fenced(part);
        }
        self.is_ready(part.shard);
    }

    /// The transaction was not done, or nobody knows; this was found instead. Returns why it was not done, if
    /// it was not.
    fn resolve(&mut self, parts: &[ShardWrite], answer: TxnAnswer, names: bool) -> Cause {
        let mut reads = answer.found.into_iter();
        let mut cause = Cause::LogIndex;
        for part in parts {
            let found = read_back(part, names, &mut reads);
            if found.as_ref().is_ok_and(|found| !found.is_owned_by(part)) {
                cause = Cause::Owner;
            }
            let Some(open) = self.returned(part) else { continue };
            match found {
                Ok(found) if !found.is_owned_by(part) => {
                    self.depose(part.shard, found.owner);
                }
                Ok(found) if found.mark.map(order) < part.known.map(order) => {
                    tracing::error!(
                        shard = %part.shard, mark = ?found.mark, known = ?part.known,
                        "the log of a shard has gone back: etcd was put back from a snapshot. The shard is given up, and its log is \
                         read again"
                    );
                    self.end(part.shard, &Outcome::Closed);
                }
                Ok(found) if open.is_own(found.mark) => {
                    if self.still_owner(part, &found) {
                        cause = cause.min(Cause::Name);
                    }
                }
                Ok(found) => {
                    tracing::error!(shard = %part.shard, mark = ?found.mark, "somebody else has written the log of a shard");
                    self.end(part.shard, &Outcome::Closed);
                }
                Err(error) => {
                    tracing::error!(shard = %part.shard, %error, "the log of a shard cannot be read");
                    self.end(part.shard, &Outcome::Closed);
                }
            }
        }
        cause
    }

    /// Goes on behind a refusal or an unknown outcome. Returns whether a name of the part is held by somebody
    /// else.
    fn still_owner(&mut self, part: &ShardWrite, found: &ReadBack) -> bool {
        let Some(open) = self.shards.get_mut(&part.shard) else { return false };
        if let Some(mark) = found.mark {
            open.advance(mark);
        }
        open.window = 1;
        open.alone = true;
        if let WriteKind::Fence = part.kind {
            if found.mark == Some(part.after) {
                open.fenced(part);
            }
        } else if found.mark == part.before
            && let WriteKind::LogWrite(prepared) = &part.kind
        {
            // The end of the log was as it should be, so a name was not.
            let wrong = prepared
                .write
                .names
                .iter()
                .zip(&found.holders)
                .find(|(change, holder)| change.before != **holder);
            if let Some((change, holder)) = wrong {
                let taken = Outcome::NameTaken { name: change.name.clone(), holder: holder.clone() };
                self.give_back(part.shard, part.log_index(), taken);
                return true;
            }
        }
        self.ready_again(part);
        false
    }

    fn send_again(&mut self, part: &ShardWrite) {
        let Some(open) = self.returned(part) else { return };
        open.window = 1;
        open.alone = true;
        self.ready_again(part);
    }

    fn ready_again(&mut self, part: &ShardWrite) {
        if let Some(pending) = self.pending(part) {
            pending.state = State::Ready;
        }
        self.is_ready(part.shard);
    }

    /// The store will never take the transaction.
    fn never(&mut self, parts: Vec<ShardWrite>, why: String) {
        if let [ShardWrite { kind: WriteKind::LogWrite(_), .. }] = parts[..] {
            let part = &parts[0];
            if self.returned(part).is_some() {
                self.give_back(part.shard, part.log_index(), Outcome::Refused(why));
            }
        } else {
            self.jobs.spawn(jobs::again(parts));
        }
    }

    /// The place is free again, once no request for it can be under way.
    pub(super) fn give_back(&mut self, shard: ShardId, log_index: LogIndex, outcome: Outcome) {
        let Some(open) = self.shards.get_mut(&shard) else { return };
        let Some(pending) = open.pending.get_mut(&log_index) else { return };
        if pending.doubtful {
            pending.give_back = Some(outcome);
            pending.state = State::Ready;
            open.alone = true;
        } else if let Some(pending) = open.pending.remove(&log_index) {
            let _ = pending.done.send(outcome);
        }
        self.is_ready(shard);
    }

    fn depose(&mut self, shard: ShardId, owner: Option<Owner>) {
        self.end(shard, &Outcome::Deposed(owner));
    }

    pub(super) fn end(&mut self, shard: ShardId, outcome: &Outcome) {
        let Some(open) = self.shards.remove(&shard) else { return };
        for pending in open.pending.into_values() {
            let _ = pending.done.send(outcome.clone());
        }
    }

    /// The shard of a request that has returned, if its epoch goes on.
    pub(super) fn returned(&mut self, part: &ShardWrite) -> Option<&mut Shard> {
        let open = self.shards.get_mut(&part.shard).filter(|open| open.epoch == part.epoch)?;
        open.in_flight -= 1;
        Some(open)
    }

    fn pending(&mut self, part: &ShardWrite) -> Option<&mut Pending> {
        let open = self.shards.get_mut(&part.shard).filter(|open| open.epoch == part.epoch)?;
        open.pending.get_mut(&part.log_index())
    }
}

/// The order in which ends of a log follow each other.
fn order(mark: PlaceMark) -> (Epoch, LogIndex, u64) {
    (mark.epoch, mark.log_index, mark.fence)
}
