//! Byzantine strategies: one small file each, behind the interface of [`crate::process::Behaviour`], so that
//! the same code runs in the simulator and over the network (SPEC section 8).
//!
//! A [`Strategy`] is the name of a role with its arguments, as scenarios and command lines write it:
//! `silent`, `collude(value=aaa)`, `adaptive(phase=5, then=late-append(access=2, value=b))`. What a strategy
//! must know beforehand, such as what others propose, is an argument of it; all else it learns from its reads.
//!
//! A [`WireAttack`] is what only the network can show: here stands what it is called and what it must be blamed
//! for, and the client carries it out.

mod absent;
mod adaptive;
mod collude;
mod crash;
mod detection;
mod distinct;
mod empty;
mod late_append;
mod liar;
mod mimic;
mod mixed;
mod parse;
mod reader;
mod repeat_append;
mod silent;
mod stall;
mod wire_attack;

use serde::{Deserialize, Serialize};

pub use self::absent::Absent;
pub use self::adaptive::Adaptive;
pub use self::collude::Collude;
pub use self::crash::Crash;
pub use self::detection::{Detection, Observations, detect};
pub use self::distinct::Distinct;
pub use self::empty::Empty;
pub use self::late_append::LateAppend;
pub use self::liar::Liar;
pub use self::mimic::Mimic;
pub use self::parse::StrategyError;
pub use self::reader::Reader;
pub use self::repeat_append::RepeatAppend;
pub use self::silent::Silent;
pub use self::stall::Stall;
pub use self::wire_attack::{WireAttack, WireAttackError, WireAttackKind};
use crate::history::OffenceKind;
use crate::params::{AppendWindow, Params};
use crate::process::{Act, Behaviour, Correct, View, read_and_decide};
use crate::types::{AccessNumber, Phase, ProcessId, Value};

/// A strategy with its arguments. Its text, which is also its form in JSON, is `name` or
/// `name(key=value, key=value)`; see [`Strategy::ALL_NAMES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Strategy {
    /// Never joins.
    Absent,
    /// Joins, then says nothing.
    Silent,
    /// Follows Algorithm 1, then stops without a word.
    Crash {
        /// The number of the access before which it stops.
        access: AccessNumber,
    },
    /// Proof case (a): appends bytes that are no value.
    Empty,
    /// Proof case (b): appends a value of its own, different from every other process's.
    Distinct {
        /// Its own value; without one, `byzantine-<process>`.
        value: Option<Value>,
    },
    /// Proof case (c): appends this value in its first access, as all who collude do.
    Collude {
        /// The common value.
        value: Value,
    },
    /// Proof case (d): appends a value of Vc in its first access.
    Mimic {
        /// The value that it backs.
        value: Value,
    },
    /// Proof case (e): draws which of the cases (a) to (d) it plays.
    Mixed {
        /// The common value of those that collude.
        collude: Value,
        /// The value that those back that mimic.
        mimic: Value,
    },
    /// Reads in its first accesses, so as to be punctual and yet withhold, and appends in this one.
    LateAppend {
        /// The number of the access that appends; 2 or more.
        access: AccessNumber,
        /// What it appends.
        value: Value,
    },
    /// Appends in every access.
    RepeatAppend {
        /// What it appends every time; without one, its proposal and then values that nobody else has.
        value: Option<Value>,
    },
    /// Reads first to see the others' values, then appends the runner-up.
    Reader,
    /// Sends each access at the last moment.
    Stall {
        /// What it does, apart from when; without one, what a correct process does.
        conduct: Option<Box<Self>>,
    },
    /// Correct until a phase, then another strategy.
    Adaptive {
        /// The first phase in which it is not correct any more.
        phase: Phase,
        /// What it does from then on.
        then: Box<Self>,
    },
    /// Follows Algorithm 1, and reports a false decision.
    Liar {
        /// What it reports; without one, `byzantine-<process>`. Should it be the truth, something else.
        value: Option<Value>,
    },
}

impl Strategy {
    /// The names of all strategies.
    pub const ALL_NAMES: [&'static str; 14] = [
        "absent",
        "silent",
        "crash",
        "empty",
        "distinct",
        "collude",
        "mimic",
        "mixed",
        "late-append",
        "repeat-append",
        "reader",
        "stall",
        "adaptive",
        "liar",
    ];

    /// The name, without arguments.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Silent => "silent",
            Self::Crash { .. } => "crash",
            Self::Empty => "empty",
            Self::Distinct { .. } => "distinct",
            Self::Collude { .. } => "collude",
            Self::Mimic { .. } => "mimic",
            Self::Mixed { .. } => "mixed",
            Self::LateAppend { .. } => "late-append",
            Self::RepeatAppend { .. } => "repeat-append",
            Self::Reader => "reader",
            Self::Stall { .. } => "stall",
            Self::Adaptive { .. } => "adaptive",
            Self::Liar { .. } => "liar",
        }
    }

    /// How the strategy of this name is written and what it does, in one line. `None` if there is no such.
    #[must_use]
    pub fn describe(name: &str) -> Option<&'static str> {
        Some(match name {
            "absent" => "absent: never joins",
            "silent" => "silent: joins, then says nothing",
            "crash" => "crash(access=K) or crash@K: follows the algorithm, and stops before its K-th access",
            "empty" => "empty: appends bytes that are no value (case a)",
            "distinct" => "distinct or distinct(value=V): appends a value that nobody else has (case b)",
            "collude" => "collude(value=V): appends V in its first access, as all who collude do (case c)",
            "mimic" => "mimic(value=V): appends V, the value that the fewest correct ones propose (case d)",
            "mixed" => {
                "mixed(collude=V, mimic=U): plays one of the cases a to d, drawn from its seed (case e)"
            }
            "late-append" => "late-append(access=K, value=V): reads, and appends V only in its K-th access",
            "repeat-append" => {
                "repeat-append or repeat-append(value=V): appends in every access, V or ever new values"
            }
            "reader" => "reader: reads first, then appends the runner-up of what it has seen",
            "stall" => "stall or stall(conduct=S): does what S does, or a correct one, at the last moment",
            "adaptive" => "adaptive(phase=K, then=S): correct until phase K, from then on S",
            "liar" => "liar or liar(value=V): follows the algorithm, and reports a false decision",
            _ => return None,
        })
    }

    /// Which offences of the closed list (B2) a process commits whenever the strategy is seen at work. It takes
    /// the seed of [`Strategy::behaviour`], since a strategy may draw what it does, and the parameters, since
    /// what is an offence may hang on them.
    #[must_use]
    pub fn offences(&self, seed: u64, params: &Params) -> &'static [OffenceKind] {
        match self {
            // A wrong value and a missing word are offences that nobody could prove.
            Self::Absent
            | Self::Silent
            | Self::Crash { .. }
            | Self::Distinct { .. }
            | Self::Collude { .. }
            | Self::Mimic { .. }
            | Self::Stall { conduct: None } => &[],
            Self::Empty => &[OffenceKind::Malformed],
            Self::Mixed { collude, mimic } => mixed::drawn(collude, mimic, seed).offences(seed, params),
            Self::LateAppend { .. } | Self::RepeatAppend { .. } | Self::Reader => &[OffenceKind::LateAppend],
            Self::Stall { conduct: Some(inner) } | Self::Adaptive { then: inner, .. } => {
                inner.offences(seed, params)
            }
            Self::Liar { .. } => match params.spec().append_window {
                AppendWindow::FirstAccess => &[OffenceKind::FalseDecision],
                // Different decisions can be honest (SPEC section 9).
                AppendWindow::Open => &[],
            },
        }
    }

    /// Whether it comes to an end by itself, as a correct process does: it reports a decision, or stops. A run
    /// waits for those that do, so that the evidence of what they did is whole.
    #[must_use]
    pub fn ends(&self) -> bool {
        match self {
            Self::Absent | Self::Silent => false,
            Self::Stall { conduct: Some(inner) } | Self::Adaptive { then: inner, .. } => inner.ends(),
            _ => true,
        }
    }

    /// What process `me` does. Where the strategy follows Algorithm 1 for a while, it proposes `proposal`;
    /// whatever it draws, it draws from `seed`.
    #[must_use]
    pub fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour> {
        let proposed = || proposal.clone();
        match self.clone() {
            Self::Absent => Box::new(Absent),
            Self::Silent => Box::new(Silent),
            Self::Crash { access } => Box::new(Crash::new(access, proposed())),
            Self::Empty => Box::new(Empty),
            Self::Distinct { value } => Box::new(Distinct::new(me, value)),
            Self::Collude { value } => Box::new(Collude::new(value)),
            Self::Mimic { value } => Box::new(Mimic::new(value)),
            Self::Mixed { collude, mimic } => {
                mixed::drawn(&collude, &mimic, seed).behaviour(me, proposal, seed)
            }
            Self::LateAppend { access, value } => Box::new(LateAppend::new(access, value)),
            Self::RepeatAppend { value } => Box::new(RepeatAppend::new(me, value, proposed())),
            Self::Reader => Box::new(Reader::new(proposed())),
            Self::Stall { conduct: None } => Box::new(Stall::new(Box::new(Correct::new(proposed())))),
            Self::Stall { conduct: Some(inner) } => Box::new(Stall::new(inner.behaviour(me, proposal, seed))),
            Self::Adaptive { phase, then } => {
                Box::new(Adaptive::new(phase, proposed(), then.behaviour(me, proposal, seed)))
            }
            Self::Liar { value } => Box::new(Liar::new(proposed(), value.unwrap_or_else(|| own_value(me)))),
        }
    }
}

/// A value that no other process has: `byzantine-7` for process 7. Also what a Byzantine process proposes
/// that is not told what to propose.
#[must_use]
pub fn own_value(me: ProcessId) -> Value {
    Value::new(format!("byzantine-{me}").as_bytes()).expect("the text is not empty")
}

/// What those do who have done their worst: they read on and leave by the true mode, so that nobody waits for
/// them and they commit no other offence than theirs. Where there is no mode, leaving by any value beats being
/// waited for.
fn read_and_leave(view: &View, otherwise: &Value) -> Act {
    match read_and_decide(view) {
        Act::Silent => Act::Decide(otherwise.clone()),
        act => act,
    }
}
