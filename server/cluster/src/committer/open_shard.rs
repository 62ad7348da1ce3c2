//! A shard that is open, and its writes without an outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Outcome;
use super::txn::{Prepared, ShardWrite, WriteKind};
use crate::keys::{Epoch, LogIndex, PlaceMark};
use crate::shard::ShardId;

/// A shard that is open.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) epoch: Epoch,
    /// Where its log ends, as far as is known.
    pub(super) mark: Option<PlaceMark>,
    /// Where it ended when this epoch began: a late answer may still tell that.
    pub(super) opened_at: Option<PlaceMark>,
    pub(super) fence: u64,
    /// Appends without an outcome, by place.
    pub(super) pending: BTreeMap<LogIndex, Pending>,
    /// Requests without an outcome.
    pub(super) in_flight: usize,
    /// How many may be in flight; 1 after a failure.
    pub(super) window: usize,
    /// After a failure: its writes share no transaction with others.
    pub(super) alone: bool,
    pub(super) with_pieces: BTreeSet<u64>,
    pub(super) generation: u64,
    /// The first write that waits and the end of the log, and since when both are the same.
    pub(super) waits: Option<(Waits, Instant)>,
}

/// The first write that waits, and where the log ends.
type Waits = (LogIndex, Option<PlaceMark>);

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) prepared: Arc<Prepared>,
    pub(super) done: oneshot::Sender<Outcome>,
    pub(super) state: State,
    /// A request for it may be under way without anybody waiting for it.
    pub(super) doubtful: bool,
    /// The place is to be given back with this outcome.
    pub(super) give_back: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its pieces are being written.
    Staging,
    Ready,
    InFlight,
}

impl Shard {
    pub(super) fn log_index(&self) -> LogIndex {
        self.mark.map_or(LogIndex(0), |mark| mark.log_index)
    }

    /// The next part to send, if one may be sent.
    pub(super) fn next_part(&self, shard: ShardId) -> Option<ShardWrite> {
        if self.in_flight >= self.window {
            return None;
        }
        let (epoch, fence, known) = (self.epoch, self.fence, self.mark);
        let mut before = self.mark;
        for number in self.log_index().0 + 1.. {
            let log_index = LogIndex(number);
            let pending = self.pending.get(&log_index)?;
            match pending.state {
                State::Staging => return None,
                State::InFlight => before = Some(PlaceMark { log_index, epoch, fence }),
                // Only when nothing is in flight: then the end of the log is known.
                State::Ready if pending.give_back.is_some() && self.in_flight > 0 => return None,
                State::Ready => {
                    let (after, kind) = if pending.give_back.is_some() {
                        let after = PlaceMark { log_index: self.log_index(), epoch, fence: fence + 1 };
                        (after, WriteKind::Fence)
                    } else {
                        let kind = WriteKind::LogWrite(Arc::clone(&pending.prepared));
                        (PlaceMark { log_index, epoch, fence }, kind)
                    };
                    return Some(ShardWrite { shard, epoch, known, before, after, kind });
                }
            }
        }
        None
    }

    pub(super) fn is_sent(&mut self, log_index: LogIndex) {
        self.in_flight += 1;
        if let Some(pending) = self.pending.get_mut(&log_index) {
            pending.state = State::InFlight;
        }
    }

    /// Whether this server, or the owner before, has left the log so.
    pub(super) fn is_own(&self, mark: Option<PlaceMark>) -> bool {
        mark == self.opened_at || mark.is_some_and(|mark| mark.epoch == self.epoch)
    }

    /// How long the first write that waits and the end of the log have been the same. The time begins when
    /// this is first asked after they have changed.
    pub(super) fn standstill(&mut self, now: Instant) -> Option<Duration> {
        let waits = self.pending.first_key_value().map(|(first, _)| (*first, self.mark));
        match &self.waits {
            Some((before, since)) if Some(*before) == waits => Some(now - *since),
            _ => {
                self.waits = waits.map(|waits| (waits, now));
                None
            }
        }
    }

    /// The log goes at least to here: the writes up to here are committed.
    pub(super) fn advance(&mut self, mark: PlaceMark) {
        let newer = |last: PlaceMark| {
            (mark.log_index, mark.fence) > (last.log_index, last.fence) || mark.epoch > last.epoch
        };
        if self.mark.is_none_or(newer) {
            self.mark = Some(mark);
            self.fence = self.fence.max(if mark.epoch == self.epoch { mark.fence } else { 0 });
        }
        let log_index = self.log_index();
        while let Some(first) = self.pending.first_entry().filter(|first| *first.key() <= log_index) {
            let _ = first.remove().done.send(Outcome::Committed);
        }
    }

    /// No earlier request for the place after the mark can take effect any more.
    pub(super) fn fenced(&mut self, part: &ShardWrite) {
        if let Some(pending) = self.pending.remove(&part.log_index())
            && let Some(outcome) = pending.give_back
        {
            let _ = pending.done.send(outcome);
        }
    }
}
