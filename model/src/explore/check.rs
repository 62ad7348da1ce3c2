//! The properties that are checked in every state, besides the rules of [`crate::invariants`], which see
//! every event.

use std::collections::BTreeSet;

use serde::Serialize;

use super::search_state::{CorrectProcess, RuleViolation, SearchState};
use super::setup::{ScheduleClass, Space};
use crate::bounds::{phase_bound, strong_validity};
use crate::params::AppendWindow;
use crate::process::{Act, mode};
use crate::types::Value;

/// The outcome of a run, as far as validity is concerned (V2, V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ValidityOutcome {
    /// Byzantine processes.
    pub byzantine: u32,
    /// Correct processes that are late (F6, K3).
    pub late: u32,
    /// |Vc|.
    pub values: u32,
    /// Whether the decision was proposed by a correct process.
    pub strong: bool,
}

/// Checks one state.
pub(super) fn check(space: &Space, state: &SearchState) -> Result<(), RuleViolation> {
    state.correct_processes().try_for_each(|correct| {
        prefix(state, correct)?;
        decision(space, state, correct)?;
        in_time(space, state, correct)
    })?;
    let decisions: BTreeSet<&Value> =
        state.correct_processes().filter_map(CorrectProcess::decision).collect();
    if space.setup.agreement && decisions.len() > 1 {
        let decided: Vec<String> = state
            .correct_processes()
            .filter_map(|correct| {
                Some(format!("process {} decided {}", correct.view.me, correct.decision()?))
            })
            .collect();
        return Err(RuleViolation::new("V1", format!("no agreement: {}", decided.join(", "))));
    }
    validity(space, state)
}

/// The entries that a process holds stand in the list (R2), for good (A3).
fn prefix(state: &SearchState, correct: &CorrectProcess) -> Result<(), RuleViolation> {
    let differs = correct.view.held().find(|(position, value)| {
        state.machine.list().get(*position).is_none_or(|entry| entry.value != **value)
    });
    match differs {
        None => Ok(()),
        Some((position, value)) => Err(RuleViolation::new(
            "R2",
            format!(
                "process {} holds {value} from position {position}; it does not stand there",
                correct.view.me
            ),
        )),
    }
}

/// Under `first_access` a decision is the mode of the sealed list, and nothing is decided only if that is
/// empty (D1).
fn decision(space: &Space, state: &SearchState, correct: &CorrectProcess) -> Result<(), RuleViolation> {
    if space.setup.window == AppendWindow::Open || !correct.has_ended() {
        return Ok(());
    }
    let me = correct.view.me;
    let list = state.machine.list();
    let of_list = mode(list.iter().map(|entry| &entry.value));
    if !state.machine.sealed() {
        return Err(RuleViolation::new(
            "D1",
            format!("process {me} came to its end before the list was sealed"),
        ));
    }
    match (&correct.next, of_list) {
        (Act::Decide(value), Some(mode)) if value == mode => Ok(()),
        (Act::Silent, None) => Ok(()),
        (next, mode) => Err(RuleViolation::new(
            "D1",
            format!("process {me} ends with {next:?}; the mode of the list is {mode:?}"),
        )),
    }
}

/// A process that has not decided has phases left to do so (D2).
fn in_time(space: &Space, state: &SearchState, correct: &CorrectProcess) -> Result<(), RuleViolation> {
    let bound = phase_bound(&space.params, correct.missed.into()).get();
    let me = correct.view.me;
    let ended_in = correct.view.phase.filter(|_| correct.has_ended());
    let in_time = match ended_in {
        Some(phase) => phase.get() <= bound,
        None => state.phases < bound,
    };
    if space.setup.schedule == ScheduleClass::Any || in_time {
        return Ok(());
    }
    Err(RuleViolation::new("D2", format!("process {me} has not decided by phase {bound}")))
}

/// Within the bound the decision was proposed by a correct process (V3).
fn validity(space: &Space, state: &SearchState) -> Result<(), RuleViolation> {
    let Some(outcome) = outcome(state, space) else { return Ok(()) };
    let f = u64::from(outcome.byzantine) + u64::from(outcome.late);
    let promised = space.setup.window == AppendWindow::FirstAccess
        && strong_validity(&space.params, f, outcome.values.into()).is_ok();
    if promised && !outcome.strong {
        let what =
            format!("the decision is of no correct process, with f = {f} and |Vc| = {}", outcome.values);
        return Err(RuleViolation::new("V3", what));
    }
    Ok(())
}

/// The outcome of a run; `None` if the run is not over, or if no correct process decided.
pub(super) fn outcome(state: &SearchState, space: &Space) -> Option<ValidityOutcome> {
    if !state.is_over() {
        return None;
    }
    let values = state.correct_values();
    let decisions = state.correct_processes().filter_map(CorrectProcess::decision);
    let strong = decisions.map(|value| values >> space.index_of(value) & 1 == 1);
    Some(ValidityOutcome {
        byzantine: state.byzantine(),
        late: state.late(),
        values: values.count_ones(),
        strong: strong.min()?,
    })
}
