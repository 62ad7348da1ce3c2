//! Byzantine strategies: one small file each, behind the interface of [`crate::process::Behaviour`], so that
//! the same code runs in the simulator and over the network (SPEC section 8).
//!
//! A [`Strategy`] is the name of a role with its arguments, as scenarios and command lines write it:
//! `silent`, `collude(value=aaa)`, `late-append(access=2, value=b)`. What a strategy must know beforehand,
//! such as what others propose, is an argument of it; all else it learns from its reads.

mod absent;
mod collude;
mod distinct;
mod fired;
mod late_append;
mod silent;
mod text;

use serde::{Deserialize, Serialize};

pub use self::absent::Absent;
pub use self::collude::Collude;
pub use self::distinct::Distinct;
pub use self::fired::fired;
pub use self::late_append::LateAppend;
pub use self::silent::Silent;
pub use self::text::StrategyError;
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::Behaviour;
use crate::types::{AccessNumber, ProcessId, Value};

/// A strategy with its arguments. Its text, which is also its form in JSON, is `name` or
/// `name(key=value, key=value)`; see [`Strategy::ALL_NAMES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Strategy {
    /// Never joins.
    Absent,
    /// Joins, then says nothing.
    Silent,
    /// Proof case (c): appends this value in its first access, as all who collude do.
    Collude {
        /// The common value.
        value: Value,
    },
    /// Proof case (b): appends a value of its own, different from every other process's.
    Distinct {
        /// Its own value; without one, `byzantine-<process>`.
        value: Option<Value>,
    },
    /// Reads in its first accesses, so as to be punctual and yet withhold, and appends in this one.
    LateAppend {
        /// The number of the access that appends; 2 or more.
        access: AccessNumber,
        /// What it appends.
        value: Value,
    },
}

impl Strategy {
    /// The names of all strategies.
    pub const ALL_NAMES: [&'static str; 5] = ["absent", "silent", "collude", "distinct", "late-append"];

    /// The name, without arguments.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Silent => "silent",
            Self::Collude { .. } => "collude",
            Self::Distinct { .. } => "distinct",
            Self::LateAppend { .. } => "late-append",
        }
    }

    /// How the strategy of this name is written and what it does, in one line. `None` if there is no such.
    #[must_use]
    pub fn describe(name: &str) -> Option<&'static str> {
        Some(match name {
            "absent" => "absent: never joins",
            "silent" => "silent: joins, then says nothing",
            "collude" => "collude(value=V): appends V in its first access, as all who collude do",
            "distinct" => "distinct or distinct(value=V): appends a value that nobody else has",
            "late-append" => "late-append(access=K, value=V): reads, and appends V only in its K-th access",
            _ => return None,
        })
    }

    /// Which offences of the closed list (B2) process `me` commits whenever the strategy is seen at work. It is
    /// given what [`Strategy::behaviour`] is given, since a strategy may draw what it does, and the parameters,
    /// since what is an offence may hang on them.
    #[must_use]
    pub fn offences(&self, me: ProcessId, seed: u64, params: &Params) -> &'static [OffenceKind] {
        // Of the strategies so far none draws anything.
        let _ = (me, seed, params);
        match self {
            // A wrong value and a missing word are offences that nobody could prove.
            Self::Absent | Self::Silent | Self::Collude { .. } | Self::Distinct { .. } => &[],
            Self::LateAppend { .. } => &[OffenceKind::LateAppend],
        }
    }

    /// What process `me` does. Whatever it draws, it draws from `seed`.
    #[must_use]
    pub fn behaviour(&self, me: ProcessId, seed: u64) -> Box<dyn Behaviour> {
        // None of the strategies so far draws anything.
        let _ = seed;
        match self.clone() {
            Self::Absent => Box::new(Absent),
            Self::Silent => Box::new(Silent),
            Self::Collude { value } => Box::new(Collude::new(value)),
            Self::Distinct { value } => Box::new(Distinct::new(me, value)),
            Self::LateAppend { access, value } => Box::new(LateAppend::new(access, value)),
        }
    }
}
