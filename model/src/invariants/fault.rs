//! The result of checking a rule.

/// A rule that a history breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule} broken by event {index}: {what}")]
pub struct BrokenRule {
    /// Its id in SPEC.
    pub rule: &'static str,
    /// What happened, and what should have happened.
    pub what: String,
    /// The index of the event that shows it, from 0; the number of events if the end of the history shows it.
    pub index: usize,
}

/// A broken rule, before the event is known that shows it.
#[derive(Debug)]
pub(super) struct RuleFault {
    pub(super) rule: &'static str,
    pub(super) what: String,
}

pub(super) type CheckResult = Result<(), RuleFault>;

/// The fault of this rule, unless the condition holds.
pub(super) fn ensure(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(RuleFault { rule, what: what() }) }
}
