//! What each strategy defines about itself, and what several of them share.

use std::fmt::Display;

use super::observations::ObservedProcess;
use super::parse::{Arguments, Nested, StrategyError};
use crate::history::OffenceKind;
use crate::params::Params;
use crate::process::{Act, Behaviour, View, read_and_decide};
use crate::types::{ProcessId, Value};

/// Everything about one strategy. The implementing type holds the strategy's arguments.
pub(super) trait Definition: Sized {
    /// The name, as texts have it.
    const NAME: &'static str;
    /// How the strategy is written and what it does, in one line: `name(key=K) or name: what it does`.
    const USAGE: &'static str;

    /// The argument that may be written as `name@K`; no argument may by default.
    const SHORT_KEY: Option<&'static str> = None;

    /// Takes the strategy's arguments.
    ///
    /// # Errors
    /// An argument is missing or cannot be used.
    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError>;

    /// The arguments with their names, in canonical order; empty for defaults.
    fn arguments(&self) -> Vec<(&'static str, String)>;

    /// The offences of the closed list (B2) that a process commits whenever it is observed to carry out the
    /// strategy. A wrong value and silence are offences that nobody could prove.
    fn offences(&self, _seed: u64, _params: &Params) -> &'static [OffenceKind] {
        &[]
    }

    /// Whether a process with this strategy joins at all.
    fn joins(&self) -> bool {
        true
    }

    /// Whether the strategy comes to an end by itself, as a correct process does.
    fn ends(&self) -> bool {
        true
    }

    /// The behaviour of process `me`. Where the strategy follows Algorithm 1, it proposes `proposal`; what it draws, it
    /// draws from `seed`.
    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour>;

    /// Whether the history shows that the process carried out the strategy (B3). It must not look at offences:
    /// the judge asks whether the offences of the processes that were observed are on record (B2).
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool;
}

/// Any registered strategy, as a strategy sees it that plays another one. It is a type parameter there, because the
/// registry imports the files of all strategies.
pub(super) trait AnyStrategy: Nested + Display {
    /// See [`Definition::offences`].
    fn offences(&self, seed: u64, params: &Params) -> &'static [OffenceKind];

    /// See [`Definition::ends`].
    fn ends(&self) -> bool;

    /// See [`Definition::behaviour`].
    fn behaviour(&self, me: ProcessId, proposal: &Value, seed: u64) -> Box<dyn Behaviour>;

    /// See [`Definition::is_shown_by`].
    fn is_shown_by(&self, process: &ObservedProcess<'_>) -> bool;
}

/// A value that no other process has: `byzantine-7` for process 7. Also the proposal of a Byzantine process that is
/// given none.
#[must_use]
pub fn own_value(me: ProcessId) -> Value {
    Value::new(format!("byzantine-{me}").as_bytes()).expect("the text is not empty")
}

/// Reads on and leaves by the true mode, so that nobody waits for the process and it commits no further offence. Where
/// there is no mode, it leaves by `otherwise`.
pub(super) fn read_and_leave(view: &View, otherwise: &Value) -> Act {
    match read_and_decide(view) {
        Act::Silent => Act::Decide(otherwise.clone()),
        act => act,
    }
}
