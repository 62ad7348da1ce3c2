//! The scalars of the model, one newtype each, so that a warp is never taken for a process nor a phase for a
//! round.
//!
//! Processes, warps, phases, rounds and access numbers count from 1, as in the paper; positions in the list
//! count from 0. A type that counts from 1 is built on a non-zero integer: the missing value of the wire (0)
//! cannot be constructed.

mod value;

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::value::{RawValue, Value};

macro_rules! one_based {
    ($(#[$meta:meta])* $name:ident, $non_zero:ty, $raw:ty) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($non_zero);

        impl $name {
            /// The first one.
            pub const FIRST: Self = Self(<$non_zero>::MIN);

            /// The one with this number; `None` for 0.
            #[must_use]
            pub const fn new(number: $raw) -> Option<Self> {
                match <$non_zero>::new(number) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// The number, from 1.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0.get()
            }

            /// The one after this. Saturates at the largest number.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

one_based! {
    /// A process, numbered from 1 to n (paper: P_1 ... P_n).
    ProcessId, NonZeroU32, u32
}
one_based! {
    /// A warp, numbered from 1 to W = ceil(n/p). Process i is in warp ceil(i/p) (P1).
    WarpId, NonZeroU32, u32
}
one_based! {
    /// A phase, numbered from 1. Each belongs to one warp (W1).
    Phase, NonZeroU64, u64
}
one_based! {
    /// A round, numbered from 1: one pass of the scheduler, in which every warp has exactly one phase.
    Round, NonZeroU64, u64
}
one_based! {
    /// A process's own number of an access, from 1 (F8).
    AccessNumber, NonZeroU64, u64
}
one_based! {
    /// A session of one process at one instance, opened by the hello of its stream (F8e). Numbered from 1 per
    /// process.
    SessionId, NonZeroU32, u32
}

impl ProcessId {
    /// Index into a table of all processes, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.get() as usize - 1
    }

    /// The process with this index (from 0). `None` past the largest number.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok().and_then(|index| index.checked_add(1)).and_then(Self::new)
    }

    /// Processes 1 to `n`, in order.
    pub fn all(n: u32) -> impl DoubleEndedIterator<Item = Self> + Clone {
        (1..=n).filter_map(Self::new)
    }
}

impl WarpId {
    /// Index into a table of all warps, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.get() as usize - 1
    }

    /// The warp with this index (from 0). `None` past the largest number.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok().and_then(|index| index.checked_add(1)).and_then(Self::new)
    }
}

/// A position in the list, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Position(u32);

impl Position {
    /// The position with this number, from 0.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number, from 0.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Index into the list.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The seed from which the shuffled order (W2) and the uniform arbiter (A4) are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seed(#[serde(with = "crate::seed_text")] u64);

impl Seed {
    /// The seed with this number; every number is one.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A moment: nanoseconds since the instance was created. The model never reads a clock: the caller passes the
/// time, which never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// The moment of creation.
    pub const ZERO: Self = Self(0);

    /// The moment this many nanoseconds after creation.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since creation.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The moment `duration` later. Saturates after five centuries.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }

    /// The moment this many nanoseconds later. Saturates after five centuries.
    #[must_use]
    pub const fn after_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// Nanoseconds from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_process() {
        assert_eq!(ProcessId::new(0), None);
        assert_eq!(ProcessId::from_index(0), Some(ProcessId::FIRST));
    }
}
