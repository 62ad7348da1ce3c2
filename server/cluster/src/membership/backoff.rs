//! When a free shard is claimed, and by which server.
//!
//! Placement names one server for a free shard. That server may be unable to serve it: it has given the shard
//! up, or it is stopped. So a shard that stays free for the time of a lease is the next server's to claim,
//! and so on, one server at a time in the order of their names. A server that has given a shard up pauses
//! before it claims that shard again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::shard::ShardId;

/// The first pause, in times of a lease: the next server has its turn meanwhile.
const FIRST_PAUSE: u32 = 2;
/// How often the pause doubles: up to 64 times of a lease.
const DOUBLINGS: u32 = 5;
/// How long a server keeps a shard that it has claimed in place of another one, in times of a lease.
const KEEP: u32 = 16;

#[derive(Debug)]
pub(super) struct Backoff {
    time_to_live: Duration,
    /// Since when a shard has no owner, as far as this session knows.
    free_since: BTreeMap<ShardId, Instant>,
    failures: BTreeMap<ShardId, Failures>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    paused_until: Instant,
}

impl Backoff {
    pub(super) fn new(time_to_live: Duration) -> Self {
        Self { time_to_live, free_since: BTreeMap::new(), failures: BTreeMap::new() }
    }

    /// A new session knows nothing of how long shards have been free; its failures it knows.
    pub(super) fn new_session(&mut self) {
        self.free_since.clear();
    }

    pub(super) fn owned(&mut self, shard: ShardId) {
        self.free_since.remove(&shard);
    }

    /// The server gives up a shard that it has held for so long.
    pub(super) fn failed(&mut self, shard: ShardId, held: Duration, now: Instant) {
        let longest = self.pause(DOUBLINGS);
        // A shard that was served well for longer than that has failed for a new reason.
        let before =
            self.failures.get(&shard).filter(|_| held < longest).map_or(0, |failures| failures.count);
        let paused_until = now + self.pause(before);
        self.failures.insert(shard, Failures { count: (before + 1).min(DOUBLINGS), paused_until });
    }

    /// The server had not failed: another one owned the shard already.
    pub(super) fn was_deposed(&mut self, shard: ShardId) {
        self.failures.remove(&shard);
    }

    pub(super) fn is_paused(&self, shard: ShardId, now: Instant) -> bool {
        self.failures.get(&shard).is_some_and(|failures| now < failures.paused_until)
    }

    /// Whose turn it is to claim a free shard: 0, that of the server that placement names; 1, of the one
    /// behind it; and so on.
    pub(super) fn turn(&mut self, shard: ShardId, now: Instant) -> usize {
        let since = *self.free_since.entry(shard).or_insert(now);
        let turns = (now - since).as_micros() / self.time_to_live.as_micros().max(1);
        usize::try_from(turns).unwrap_or(usize::MAX)
    }

    /// Until when a shard stays here that placement wants elsewhere.
    pub(super) fn keep_until(&self, now: Instant) -> Instant {
        now + self.time_to_live * KEEP
    }

    fn pause(&self, failures: u32) -> Duration {
        self.time_to_live * (FIRST_PAUSE << failures.min(DOUBLINGS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::ShardCount;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_bound_and_begin_anew_after_a_good_time() {
        let shard = ShardCount::default().shard(7).unwrap();
        let mut backoff = Backoff::new(SECOND);
        let now = Instant::now();
        let mut pause = |held| {
            backoff.failed(shard, held, now);
            (0..).find(|&seconds| !backoff.is_paused(shard, now + SECOND * seconds))
        };
        let pauses: Vec<_> = (0..8).filter_map(|_| pause(SECOND)).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(pause(SECOND * 100), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_turn_goes_on_while_a_shard_is_free() {
        let shard = ShardCount::default().shard(7).unwrap();
        let mut backoff = Backoff::new(SECOND);
        let now = Instant::now();
        let turns = [0, 900, 1000, 3500].map(|millis| backoff.turn(shard, now + SECOND * millis / 1000));
        assert_eq!(turns, [0, 0, 1, 3]);
        backoff.owned(shard);
        assert_eq!(backoff.turn(shard, now + SECOND * 10), 0);
    }
}
