//! What must hold in every state, besides the rules of [`crate::invariants`], to which every event has been shown
//! on the way.

use std::collections::BTreeSet;

use serde::Serialize;

use super::setup::{ScheduleClass, Space};
use super::world::{Actor, RuleViolation, SearchState};
use crate::bounds::{phase_bound, strong_validity};
use crate::params::AppendWindow;
use crate::process::{Act, mode};
use crate::types::Value;

/// What can come of a run, as far as validity is concerned (V2, V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ValidityOutcome {
    /// Byzantine processes.
    pub byzantine: u32,
    /// Correct processes that missed their first phase.
    pub late: u32,
    /// |Vc|.
    pub values: u32,
    /// Whether the decision was proposed by a correct process.
    pub strong: bool,
}

/// Checks one state.
pub(super) fn check(ground: &Space, world: &SearchState) -> Result<(), RuleViolation> {
    world.actors().try_for_each(|actor| {
        prefix(world, actor)?;
        decision(ground, world, actor)?;
        in_time(ground, world, actor)
    })?;
    let decisions: BTreeSet<&Value> = world.actors().filter_map(Actor::decision).collect();
    if ground.setup.agreement && decisions.len() > 1 {
        let decided: Vec<String> = world
            .actors()
            .filter_map(|actor| Some(format!("process {} decided {}", actor.view.me, actor.decision()?)))
            .collect();
        return Err(RuleViolation::new("V1", format!("no agreement: {}", decided.join(", "))));
    }
    validity(ground, world)
}

/// What a process holds stands in the list (R2), and goes on standing there (A3).
fn prefix(world: &SearchState, actor: &Actor) -> Result<(), RuleViolation> {
    let differs = actor.view.held().find(|(position, value)| {
        world.machine.list().get(*position).is_none_or(|entry| entry.value != **value)
    });
    match differs {
        None => Ok(()),
        Some((position, value)) => Err(RuleViolation::new(
            "R2",
            format!(
                "process {} holds {value} from position {position}; it does not stand there",
                actor.view.me
            ),
        )),
    }
}

/// Under `first_access` a decision is the mode of the sealed list, and nothing is decided only if that is empty (D1).
fn decision(ground: &Space, world: &SearchState, actor: &Actor) -> Result<(), RuleViolation> {
    if ground.setup.window == AppendWindow::Open || !actor.has_ended() {
        return Ok(());
    }
    let me = actor.view.me;
    let list = world.machine.list();
    let of_list = mode(list.iter().map(|entry| &entry.value));
    if !world.machine.sealed() {
        return Err(RuleViolation::new(
            "D1",
            format!("process {me} came to its end before the list was sealed"),
        ));
    }
    match (&actor.next, of_list) {
        (Act::Decide(value), Some(mode)) if value == mode => Ok(()),
        (Act::Silent, None) => Ok(()),
        (next, mode) => Err(RuleViolation::new(
            "D1",
            format!("process {me} ends with {next:?}; the mode of the list is {mode:?}"),
        )),
    }
}

/// Whoever has not decided has phases left to do so (D2).
fn in_time(ground: &Space, world: &SearchState, actor: &Actor) -> Result<(), RuleViolation> {
    let bound = phase_bound(&ground.params, actor.missed.into()).get();
    let me = actor.view.me;
    let ended_in = actor.view.phase.filter(|_| actor.has_ended());
    let in_time = match ended_in {
        Some(phase) => phase.get() <= bound,
        None => world.phases < bound,
    };
    if ground.setup.schedule == ScheduleClass::Any || in_time {
        return Ok(());
    }
    Err(RuleViolation::new("D2", format!("process {me} has not decided by phase {bound}")))
}

/// Within the bound the decision was proposed by a correct process (V3).
fn validity(ground: &Space, world: &SearchState) -> Result<(), RuleViolation> {
    let Some(fact) = fact(world, ground) else { return Ok(()) };
    let f = u64::from(fact.byzantine) + u64::from(fact.late);
    let promised = ground.setup.window == AppendWindow::FirstAccess
        && strong_validity(&ground.params, f, fact.values.into()).is_ok();
    if promised && !fact.strong {
        let what = format!("the decision is of no correct process, with f = {f} and |Vc| = {}", fact.values);
        return Err(RuleViolation::new("V3", what));
    }
    Ok(())
}

/// What came of a run that is over; `None` if it is not, or if nobody decided.
pub(super) fn fact(world: &SearchState, ground: &Space) -> Option<ValidityOutcome> {
    if !world.is_over() {
        return None;
    }
    let values = world.correct_values();
    let decisions = world.actors().filter_map(Actor::decision);
    let strong = decisions.map(|value| values >> ground.index_of(value) & 1 == 1);
    Some(ValidityOutcome {
        byzantine: world.byzantine(),
        late: world.late(),
        values: values.count_ones(),
        strong: strong.min()?,
    })
}
