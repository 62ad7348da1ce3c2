//! How many shards are handed over at a time.
//!
//! If a server that others have joined asked for the release of all shards that should be elsewhere at once,
//! each would pause until the next owner has read all of them back. So a few are under way, and the others
//! are served until their turn. The next one follows when another server owns one of those. A server that
//! drains asks for all at once: they go to several others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::view::View;
use crate::keys::{Epoch, Name};
use crate::shard::ShardId;

/// Shards that are handed over at once, at least.
const AT_LEAST: usize = 2;
/// The part of a server's shards that are handed over at once, where that is more: so one that owns very many
/// is rid of them in a time that grows with the logarithm of their number.
const PART: usize = 16;
/// How long a shard that was released may hold up others at most, until another server owns it.
const TAKEN_WITHIN: Duration = Duration::from_millis(500);

/// The shards that were released and have no owner yet, with the epochs that have ended, and until when they
/// hold up others.
#[derive(Debug, Default)]
pub(super) struct HandOvers(BTreeMap<ShardId, (Epoch, Instant)>);

impl HandOvers {
    /// The server has released a shard.
    pub(super) fn released(&mut self, shard: ShardId, epoch: Epoch, now: Instant) {
        self.0.insert(shard, (epoch, now + TAKEN_WITHIN));
    }

    /// How many releases may be requested now. `held`: the shards of this server, and whether their release
    /// was requested.
    pub(super) fn room(
        &mut self,
        name: &Name,
        view: &View,
        held: impl ExactSizeIterator<Item = (ShardId, bool)>,
        now: Instant,
    ) -> usize {
        let may_take = view.servers.iter().any(|(other, info)| other != name.as_str() && !info.draining);
        self.0.retain(|shard, (epoch, until)| {
            let is_taken = view.owners.get(shard).is_some_and(|owner| owner.epoch > *epoch);
            may_take && !is_taken && now < *until
        });
        let at_once = AT_LEAST.max(held.len() / PART);
        let requested = held.filter(|(shard, requested)| *requested && !self.0.contains_key(shard)).count();
        at_once.saturating_sub(requested + self.0.len())
    }

    /// When there may be room although nothing else has changed.
    pub(super) fn room_at(&self) -> Option<Instant> {
        self.0.values().map(|(_, until)| *until).min()
    }

    /// The session has ended.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::committer::Owner;
    use crate::keys::{RulesVersion, ServerInfo};
    use crate::shard::ShardCount;
    use crate::store::Revision;

    /// A server `a` that owns so many shards, and the others with these names.
    struct Holder {
        hand_overs: HandOvers,
        view: View,
        held: BTreeMap<ShardId, bool>,
    }

    impl Holder {
        fn new(shards: u32, others: &[&str]) -> Self {
            let info = ServerInfo {
                address: "a:1".to_owned(),
                incarnation: 1,
                replays: RulesVersion(1),
                draining: false,
            };
            let servers = others.iter().chain(&["a"]).map(|name| ((*name).to_owned(), info.clone()));
            let view = View { servers: servers.collect(), ..View::default() };
            let held = ShardCount::new(shards).unwrap().shards().map(|shard| (shard, false)).collect();
            Self { hand_overs: HandOvers::default(), view, held }
        }

        fn room(&mut self, now: Instant) -> usize {
            let held = self.held.iter().map(|(shard, requested)| (*shard, *requested));
            self.hand_overs.room(&Name::new("a").unwrap(), &self.view, held, now)
        }

        /// Requests the release of the first shards.
        fn request(&mut self, count: usize) {
            self.held.values_mut().take(count).for_each(|requested| *requested = true);
        }

        /// Releases the first shard.
        fn release(&mut self, now: Instant) -> ShardId {
            let (shard, _) = self.held.pop_first().unwrap();
            self.hand_overs.released(shard, Epoch(Revision(5)), now);
            shard
        }
    }

    #[test]
    fn the_next_shard_waits_until_another_server_has_one() {
        let now = Instant::now();
        let mut holder = Holder::new(8, &["b"]);
        assert_eq!(holder.room(now), 2);
        holder.request(2);
        assert_eq!(holder.room(now), 0);
        let released = holder.release(now);
        assert_eq!(holder.room(now), 0, "it has no owner yet");
        let owner = |epoch| Owner { server: "b".to_owned(), epoch: Epoch(Revision(epoch)) };
        holder.view.owners.insert(released, owner(5));
        assert_eq!(holder.room(now), 0, "that is the epoch that has ended");
        holder.view.owners.insert(released, owner(6));
        assert_eq!(holder.room(now), 1);
        assert_eq!(holder.hand_overs.room_at(), None);
    }

    #[test]
    fn a_shard_that_nobody_takes_holds_up_others_for_a_while() {
        let now = Instant::now();
        let mut holder = Holder::new(8, &["b"]);
        holder.release(now);
        holder.release(now);
        assert_eq!(holder.room(now), 0);
        assert_eq!(holder.hand_overs.room_at(), Some(now + TAKEN_WITHIN));
        assert_eq!(holder.room(now + TAKEN_WITHIN), 2);
        let mut alone = Holder::new(8, &[]);
        alone.release(now);
        assert_eq!(alone.room(now), 2, "there is nobody to wait for");
    }

    #[test]
    fn a_server_with_many_shards_hands_over_more_at_once() {
        let room = |shards| Holder::new(shards, &["b"]).room(Instant::now());
        assert_eq!([1, 32, 64, 1_000].map(room), [2, 2, 4, 62]);
    }
}
