//! Shards: which one an instance belongs to, and how a server draws the id of an instance within a shard of
//! its own.

use std::fmt;

/// Bits at the end of an instance's id that say its shard.
const SHARD_BITS: u32 = 48;

/// How many shards a cluster has. It is part of the cluster's identity and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardCount(u32);

/// The number of a shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(u32);

/// A number of shards that no cluster can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} shards: give 1 to {max}", max = ShardCount::MAX)]
pub struct BadShardCount(pub u32);

impl ShardCount {
    /// The most shards.
    pub const MAX: u32 = 1 << 20;

    /// So many shards.
    ///
    /// # Errors
    /// If it is 0 or more than [`ShardCount::MAX`].
    pub const fn new(count: u32) -> Result<Self, BadShardCount> {
        if count == 0 || count > Self::MAX { Err(BadShardCount(count)) } else { Ok(Self(count)) }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The shard with this number, if there is one.
    pub const fn shard(self, number: u32) -> Option<ShardId> {
        if number < self.0 { Some(ShardId(number)) } else { None }
    }

    /// All shards, in order.
    pub fn shards(self) -> impl ExactSizeIterator<Item = ShardId> {
        (0..self.0).map(ShardId)
    }
}

impl Default for ShardCount {
    /// 64.
    fn default() -> Self {
        Self(64)
    }
}

impl ShardId {
    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number, as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The shard that an instance belongs to: the last 48 bits of its id, modulo the number of shards.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is below a u32")]
pub const fn shard_of(instance: u128, shards: ShardCount) -> ShardId {
    ShardId((low_bits(instance) % shards.0 as u64) as u32)
}

/// The id of an instance of this shard, made of random bits: those before the last 48 stay as they are.
pub const fn id_in_shard(random: u128, shard: ShardId, shards: ShardCount) -> u128 {
    let count = shards.0 as u64;
    let low = low_bits(random);
    let mut moved = low - low % count + shard.0 as u64;
    if moved >> SHARD_BITS != 0 {
        moved -= count;
    }
    (random >> SHARD_BITS << SHARD_BITS) | moved as u128
}

#[expect(clippy::cast_possible_truncation, reason = "only the low bits are wanted")]
const fn low_bits(id: u128) -> u64 {
    id as u64 & ((1 << SHARD_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_is_drawn_within_its_shard(random: u128, count in 1..=ShardCount::MAX, number: u32) {
            let shards = ShardCount::new(count).unwrap();
            let shard = shards.shard(number % count).unwrap();
            let id = id_in_shard(random, shard, shards);
            prop_assert_eq!(shard_of(id, shards), shard);
            prop_assert_eq!(id >> SHARD_BITS, random >> SHARD_BITS);
        }
    }

    #[test]
    fn an_id_at_the_end_of_the_bits_stays_in_them() {
        let shards = ShardCount::new(100).unwrap();
        let shard = shards.shard(99).unwrap();
        assert_eq!(shard_of(id_in_shard(u128::MAX, shard, shards), shards), shard);
        assert_eq!(id_in_shard(u128::MAX, shard, shards) >> SHARD_BITS, u128::MAX >> SHARD_BITS);
    }

    #[test]
    fn no_cluster_has_no_shard() {
        assert_eq!(ShardCount::new(0), Err(BadShardCount(0)));
        assert_eq!(ShardCount::new(ShardCount::MAX + 1), Err(BadShardCount(ShardCount::MAX + 1)));
    }
}
