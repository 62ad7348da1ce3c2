//! The warp scheduler: which warp each phase belongs to (paper, section 2 and assumption (a); SPEC W1 to W4).
//!
//! Time is cut into phases, each of one warp, and phases into rounds: round t is phases (t-1)·W+1 to t·W, and
//! every warp has exactly one of them. That is the paper's fair scheduler. The paper's proof takes a round
//! robin, ascending (the default) or descending; the shuffled order is not round robin but as fair: each
//! round is a fresh permutation.
//!
//! The schedule is a pure function of the parameters, the seed and the phase. Nothing that a client sends is
//! among its arguments; that keeps W3. Whether a phase is executed or passed over (F4) does not matter to it.
//!
//! # The shuffled order
//!
//! The order of round t is the warps 1, 2, ..., W after a Fisher-Yates shuffle: for i from W-1 down to 1, the
//! entries i and j (counted from 0) are exchanged, where j is the next number of a SplitMix64 stream, modulo
//! i+1. The stream starts at `mix(mix(mix(seed) ^ 1) ^ t)`, where `mix(x)` is the first output of SplitMix64
//! started at x. The remainder favours some numbers by less than one part in 2^48.
//!
//! `docs/theory/schedule.md` has the same in Python, and more vectors:
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
//! Phases beyond 2^64 - 1 do not exist: phase 2^64 - 1 stands for them all. At a million phases a second that
//! is half a million years away.

mod cached_schedule;
mod schedule;
mod scripted_schedule;
mod warp_set;

pub use self::cached_schedule::{CachedSchedule, PhaseOrder};
pub use self::schedule::{RoundOrder, Schedule, arbiter_hash};
pub(crate) use self::scripted_schedule::ScriptedSchedule;
pub use self::warp_set::WarpSet;
