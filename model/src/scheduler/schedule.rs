//! The schedule of one instance, and the order of the warps in one round; and the numbers that an instance
//! draws for the shuffled order and the uniform arbiter.
//!
//! The numbers come from SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"),
//! started from the seed. A few lines in any language with 64-bit integers. The draws are fair and not
//! secret: with the seed everything can be computed (W4).
//!
//! All arithmetic is modulo 2^64.

use crate::params::{Order, Params};
use crate::random::SplitMix64;
use crate::types::{Phase, ProcessId, Round, Seed, WarpId};

/// The schedule of one instance (W4). It holds no state: for the shuffled order each call costs O(W). To go
/// through the phases one after another take a [`CachedSchedule`](super::CachedSchedule).
///
/// Every warp that is given to it must be one of the W, such as those that [`Params::warp_of`] returns; it
/// may panic on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    pub(super) order: Order,
    seed: Seed,
    warps: u32,
    append_rounds: u32,
}

impl Schedule {
    /// The schedule of an instance with these parameters.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let spec = params.spec();
        let append_rounds = params.append_rounds();
        Self { order: spec.order, seed: spec.seed, warps: params.warps(), append_rounds }
    }

    /// W, the number of warps and so of phases in a round.
    #[must_use]
    pub const fn warps(&self) -> u32 {
        self.warps
    }

    /// The warp that this phase belongs to (W1).
    #[must_use]
    pub fn warp_of(&self, phase: Phase) -> WarpId {
        self.order_of(self.round_of(phase)).warp_at(self.slot_of(phase))
    }

    /// The round that this phase belongs to.
    #[must_use]
    pub fn round_of(&self, phase: Phase) -> Round {
        Round::new((phase.get() - 1) / u64::from(self.warps) + 1).expect("one more than a number is not zero")
    }

    /// The phase that this warp has in this round.
    #[must_use]
    pub fn phase_of(&self, warp: WarpId, round: Round) -> Phase {
        self.phase_at(round, self.order_of(round).slot_of(warp))
    }

    /// The warp's first phase.
    #[must_use]
    pub fn first_phase(&self, warp: WarpId) -> Phase {
        self.phase_of(warp, Round::FIRST)
    }

    /// The warp's q-th phase, the last one in which it may append under `first_access` (A2, K1).
    #[must_use]
    pub fn last_append_phase(&self, warp: WarpId) -> Phase {
        self.phase_of(warp, Round::new(self.append_rounds.into()).unwrap_or(Round::FIRST))
    }

    /// The last phase of round q: until then each warp has had exactly q phases (K1).
    #[inline]
    pub(super) fn end_of_append_rounds(&self) -> u64 {
        u64::from(self.warps) * u64::from(self.append_rounds)
    }

    /// The first phase of this warp that is `from` or later.
    #[must_use]
    pub fn next_phase_of(&self, warp: WarpId, from: Phase) -> Phase {
        let round = self.round_of(from);
        let phase = self.phase_of(warp, round);
        // Every warp has a phase in the next round, and all of them are behind this one.
        if phase >= from { phase } else { self.phase_of(warp, round.next()) }
    }

    /// The order of the warps in this round.
    #[must_use]
    pub fn order_of(&self, round: Round) -> RoundOrder {
        let arrangement = match self.order {
            Order::Ascending => Arrangement::Ascending,
            Order::Descending => Arrangement::Descending { warps: self.warps },
            Order::Shuffled => shuffled(self.seed, round, self.warps),
        };
        RoundOrder { round, arrangement }
    }

    /// Where in its round the phase is, from 0.
    pub(super) fn slot_of(&self, phase: Phase) -> u32 {
        // Below W, so it fits.
        ((phase.get() - 1) % u64::from(self.warps)) as u32
    }

    /// The phase of this round at this place, from 0.
    pub(super) fn phase_at(&self, round: Round, slot: u32) -> Phase {
        let before = (round.get() - 1).saturating_mul(u64::from(self.warps)).saturating_add(u64::from(slot));
        Phase::new(before.saturating_add(1)).expect("one more than a number is not zero")
    }
}

/// The order of the warps in one round: a permutation of the W.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundOrder {
    round: Round,
    arrangement: Arrangement,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    Ascending,
    Descending {
        warps: u32,
    },
    /// Indices of warps by place, and places by index of the warp.
    Shuffled {
        warps: Box<[u32]>,
        slots: Box<[u32]>,
    },
}

impl RoundOrder {
    /// The round.
    #[must_use]
    pub const fn round(&self) -> Round {
        self.round
    }

    /// The warp at this place of the round, from 0. Places from W on do not exist.
    #[must_use]
    pub fn warp_at(&self, slot: u32) -> WarpId {
        self.arrangement.warp_at(slot)
    }

    /// The place of this warp in the round, from 0.
    #[must_use]
    pub fn slot_of(&self, warp: WarpId) -> u32 {
        match &self.arrangement {
            Arrangement::Ascending => warp.get() - 1,
            Arrangement::Descending { warps } => warps - warp.get(),
            Arrangement::Shuffled { slots, .. } => slots[warp.index()],
        }
    }
}

impl Arrangement {
    pub(super) fn warp_at(&self, slot: u32) -> WarpId {
        let index = match self {
            Self::Ascending => slot,
            Self::Descending { warps } => warps - 1 - slot,
            Self::Shuffled { warps, .. } => warps[slot as usize],
        };
        WarpId::from_index(index as usize).expect("a warp's index is below the number of warps")
    }
}

fn shuffled(seed: Seed, round: Round, count: u32) -> Arrangement {
    let mut warps: Box<[u32]> = (0..count).collect();
    let mut stream = stream(seed, Purpose::Order, round.get());
    for last in (1..count).rev() {
        // The remainder, and not the better `below`: it is one operator in every language.
        let other = stream.next_u64() % u64::from(last + 1);
        warps.swap(last as usize, other as usize);
    }
    let mut slots = vec![0; warps.len()].into_boxed_slice();
    for (slot, &warp) in (0..).zip(&warps) {
        slots[warp as usize] = slot;
    }
    Arrangement::Shuffled { warps, slots }
}

/// The purpose of a draw; keeps the order of warps and the arbiter apart.
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
/// since `mix` is a bijection. The number depends on nothing else, so a process that stays away changes no
/// other process's draw.
#[must_use]
pub const fn arbiter_hash(seed: Seed, phase: Phase, process: ProcessId) -> u64 {
    fold(fold(begin(seed, Purpose::Arbiter), phase.get()), process.get() as u64)
}

/// A stream of numbers: SplitMix64, whose state starts as the hash of (seed, purpose, number).
pub(super) const fn stream(seed: Seed, purpose: Purpose, number: u64) -> SplitMix64 {
    SplitMix64::new(fold(begin(seed, purpose), number))
}
