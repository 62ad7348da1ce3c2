//! The one source of chance of an instance: SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
//! number generators"), started from the seed. A few lines in any language with 64-bit integers. It is fair,
//! not secret: who knows the seed can compute everything (W4).
//!
//! All arithmetic is modulo 2^64.

use crate::types::{Phase, ProcessId, Seed};

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a draw is for; keeps the order of warps and the arbiter apart.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Order = 1,
    Arbiter = 2,
}

/// The first output of SplitMix64 started at `x`. A bijection.
const fn mix(x: u64) -> u64 {
    let mut z = x.wrapping_add(GAMMA);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Folds a number into a hash.
const fn fold(hash: u64, number: u64) -> u64 {
    mix(hash ^ number)
}

const fn begin(seed: Seed, purpose: Purpose) -> u64 {
    fold(mix(seed.get()), purpose as u64)
}

/// The number by which the uniform arbiter ranks an append: of one phase, the lowest wins (A4).
///
/// `mix(mix(mix(mix(seed) ^ 2) ^ phase) ^ process)`. Two processes never draw the same number in one phase,
/// since `mix` is a bijection. It depends on nothing else, so nobody who stays away moves the draw of
/// another.
#[must_use]
pub const fn arbiter_hash(seed: Seed, phase: Phase, process: ProcessId) -> u64 {
    fold(fold(begin(seed, Purpose::Arbiter), phase.get()), process.get() as u64)
}

/// A stream of numbers: SplitMix64, whose state starts as the hash of (seed, purpose, number).
pub(super) struct Stream(u64);

impl Stream {
    pub(super) const fn new(seed: Seed, purpose: Purpose, number: u64) -> Self {
        Self(fold(begin(seed, purpose), number))
    }

    const fn next(&mut self) -> u64 {
        let output = mix(self.0);
        self.0 = self.0.wrapping_add(GAMMA);
        output
    }

    /// A number below `bound`: the remainder. Some numbers are likelier than others by a part in 2^64 /
    /// `bound`, which is 2^48 for the most warps that there can be.
    pub(super) const fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_splitmix64() {
        // The first outputs of the reference implementation (Vigna, splitmix64.c) started at 1234567.
        let mut stream = Stream(1_234_567);
        let outputs: Vec<u64> = (0..3).map(|_| stream.next()).collect();
        assert_eq!(
            outputs,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
