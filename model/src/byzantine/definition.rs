//! The definition of a strategy, and the acts that several of them share.

use super::observations::Conduct;
use super::parse::{Arguments, StrategyError};
use crate::process::{Act, View, read_and_decide};
use crate::types::{ProcessId, Value};

/// Everything about one strategy: its text here, what it does in [`Conduct`]. The implementing type holds the
/// strategy's arguments.
pub(super) trait Definition: Conduct + Sized {
    /// The name, as texts have it.
    const NAME: &'static str;
    /// The syntax of the strategy and its actions, in one line: `name(key=K) or name: what it does`.
    const USAGE: &'static str;

    /// The argument that may be written as `name@K`; no argument may by default.
    const SHORT_KEY: Option<&'static str> = None;

    /// Takes the strategy's arguments.
    ///
    /// # Errors
    /// An argument is missing or cannot be used.
    fn parse(given: &mut Arguments<'_>) -> Result<Self, StrategyError>;

    /// The arguments with their names, in canonical order; empty for defaults, and where there are none.
    fn arguments(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// A value that no other process has: `byzantine-7` for process 7. Also the proposal of a Byzantine process
/// that is given none.
#[must_use]
pub fn own_value(me: ProcessId) -> Value {
    Value::new(format!("byzantine-{me}").as_bytes()).expect("the text is not empty")
}

/// Reads on and leaves by the true mode, so that nobody waits for the process and it commits no further
/// offence. Where there is no mode, it leaves by `otherwise`.
pub(super) fn read_and_leave(view: &View, otherwise: &Value) -> Act {
    match read_and_decide(view) {
        Act::Silent => Act::Decide(otherwise.clone()),
        act => act,
    }
}
