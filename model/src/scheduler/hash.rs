//! The numbers that an instance draws, for the shuffled order and the uniform arbiter: SplitMix64 (Steele, Lea,
//! Flood: "Fast splittable pseudorandom number generators"), started from the seed. A few lines in any language with
//! 64-bit integers. The draws are fair and not secret: with the seed everything can be computed (W4).
//!
//! All arithmetic is modulo 2^64.

use crate::random::SplitMix64;
use crate::types::{Phase, ProcessId, Seed};

/// What a draw is for; keeps the order of warps and the arbiter apart.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Order = 1,
    Arbiter = 2,
}

/// The first output of SplitMix64 started at `x`. A bijection.
const fn mix(x: u64) -> u64 {
    SplitMix64::new(x).next_u64()
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
/// since `mix` is a bijection. The number depends on nothing else, so a process that stays away changes no other
/// process's draw.
#[must_use]
pub const fn arbiter_hash(seed: Seed, phase: Phase, process: ProcessId) -> u64 {
    fold(fold(begin(seed, Purpose::Arbiter), phase.get()), process.get() as u64)
}

/// A stream of numbers: SplitMix64, whose state starts as the hash of (seed, purpose, number).
pub(super) const fn stream(seed: Seed, purpose: Purpose, number: u64) -> SplitMix64 {
    SplitMix64::new(fold(begin(seed, purpose), number))
}
