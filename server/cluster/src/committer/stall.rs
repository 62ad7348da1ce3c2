//! Shards that stand still: something waits, and nothing is committed.

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::Outcome;
use super::driver::Driver;
use super::open_shard::Shard;
use crate::shard::ShardId;
use crate::store::Store;

/// How often it is looked within the time of a standstill.
const LOOKS: u32 = 4;

impl<S: Store> Driver<S> {
    /// When it is looked whether shards stand still.
    pub(super) fn looks(&self) -> Interval {
        let mut looks = interval(self.config.standstill / LOOKS);
        // A process that was stopped looks once when it goes on, and then waits: commands and answers that
        // have come meanwhile are to be taken first.
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks
    }

    /// Closes shards of which nothing was committed for long, unless the store is full.
    pub(super) fn look_for_stalls(&mut self) {
        let (now, limit) = (Instant::now(), self.config.standstill);
        let stands = |(&shard, open): (&ShardId, &mut Shard)| {
            open.standstill(now).is_some_and(|time| time >= limit).then_some(shard)
        };
        let stalled: Vec<_> = self.shards.iter_mut().filter_map(stands).collect();
        if stalled.is_empty() {
            return;
        }
        self.stalled.send_if_modified(|stalled| !std::mem::replace(stalled, true));
        if *self.full.borrow() {
            return;
        }
        for shard in stalled {
            tracing::error!(
                %shard,
                "nothing of a shard was committed for {limit:?}, although something waits: it is given up; see what is wrong with \
                 etcd, or with the permissions of the server's user there"
            );
            self.end(shard, &Outcome::Closed);
        }
    }
}
