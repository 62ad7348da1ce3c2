//! The warp scheduler: which warp each phase belongs to (paper, section 2 and assumption (a); SPEC W1 to W4).
//!
//! Time is cut into phases, each of one warp, and phases into rounds: round t is phases (t-1)·W+1 to t·W, and
//! every warp has exactly one of them. That is the paper's fair scheduler. The paper's proof takes a round
//! robin, ascending (the default) or descending; the shuffled order is not round robin but as fair: each
//! round is a fresh permutation.
//!
//! The schedule is a pure function of the parameters, the seed and the phase. Nothing that a client sends is
//! among its arguments, which is how W3 is kept. Whether a phase is executed or passed over (F4) does not
//! matter to it.
//!
//! # The shuffled order
//!
//! The order of round t is the warps 1, 2, ..., W after a Fisher-Yates shuffle: for i from W-1 down to 1, the
//! entries i and j (counted from 0) are exchanged, where j is the next number of a SplitMix64 stream, modulo
//! i+1. The stream starts at `mix(mix(mix(seed) ^ 1) ^ t)`, where `mix(x)` is the first output of SplitMix64
//! started at x. The remainder favours some numbers by less than one part in 2^48.
//!
//! `docs/schedule.md` has the same in Python, and more vectors:
//!
//! | W | seed | round | warps in order |
//! | --- | --- | --- | --- |
//! | 5 | 0 | 1 | 5 3 1 4 2 |
//! | 5 | 0 | 2 | 5 1 3 4 2 |
//! | 8 | 42 | 1 | 1 4 3 2 6 5 7 8 |
//!
//! and `arbiter_hash(seed 42, phase 1, process 1)` is `0xf37ff738cd055b2f`.
//!
//! # Large numbers
//!
//! Phases beyond 2^64 - 1 do not exist: what would lie there is told as phase 2^64 - 1. At a million phases a
//! second that is half a million years away.

mod cached_schedule;
mod given;
mod mix;
mod warp_set;

use self::mix::Purpose;
use crate::params::{Order, Params};
use crate::types::{Phase, Round, Seed, WarpId};

pub use self::cached_schedule::CachedSchedule;
pub use self::mix::arbiter_hash;
pub use self::warp_set::WarpSet;

/// The schedule of one instance (W4). Holds no state: for the shuffled order each question costs O(W), and
/// whoever asks phase after phase takes a [`CachedSchedule`].
///
/// Every warp that it is asked about must be one of the W, as those are that [`Params::warp_of`] returns; it
/// may panic on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    order: Order,
    seed: Seed,
    warps: u32,
}

impl Schedule {
    /// The schedule of an instance with these parameters.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        let spec = params.spec();
        Self { order: spec.order, seed: spec.seed, warps: params.warps() }
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

    /// The warp's first phase, the only one in which it may append under `first_access` (A2).
    #[must_use]
    pub fn first_phase(&self, warp: WarpId) -> Phase {
        self.phase_of(warp, Round::FIRST)
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
    fn slot_of(&self, phase: Phase) -> u32 {
        // Below W, so it fits.
        ((phase.get() - 1) % u64::from(self.warps)) as u32
    }

    /// The phase of this round at this place, from 0.
    fn phase_at(&self, round: Round, slot: u32) -> Phase {
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
enum Arrangement {
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
    fn warp_at(&self, slot: u32) -> WarpId {
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
    let mut stream = mix::stream(seed, Purpose::Order, round.get());
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
