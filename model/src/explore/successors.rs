//! All transitions out of a state: each warp that may come next, each kind of its members, each action of
//! each member, and each append that may be accepted first.

use super::search_state::{SearchState, Slot};
use super::setup::{Action, Transition};
use super::setup::{Adversary, ProcessKind, ScheduleClass, Space};
use crate::bounds::strong_validity;
use crate::params::AppendWindow;
use crate::types::{ProcessId, WarpId};

/// A member of the warp in question.
struct Candidate {
    process: ProcessId,
    kind: ProcessKind,
    /// A correct process whose next access appends.
    appends: bool,
    /// A Byzantine process that wins no other append (K1).
    excluded: bool,
    /// A correct process that may have nothing ready.
    may_miss: bool,
    has_ended: bool,
}

/// Every transition out of a state.
pub(super) fn successors(space: &Space, state: &SearchState) -> Vec<Transition> {
    let mut transitions = Vec::new();
    for warp in candidates(space, state) {
        for kinds in assignments(space, state, warp) {
            let members = members(space, state, warp, &kinds);
            let free: Vec<ProcessId> =
                members.iter().filter(|member| member.may_miss).map(|member| member.process).collect();
            for absent in 0..1_u32 << free.len() {
                let is_absent = |process| {
                    free.iter().position(|free| *free == process).is_some_and(|i| absent >> i & 1 == 1)
                };
                let present: Vec<&Candidate> =
                    members.iter().filter(|member| !member.has_ended && !is_absent(member.process)).collect();
                for accesses in accesses(space, &present, may_win(space, state, warp)) {
                    if may_come(space, state, warp, accesses.is_empty()) {
                        let restarts = if space.setup.restarts { accesses.len() + 1 } else { 0 };
                        let moments = std::iter::once(None).chain((0..restarts).map(Some));
                        transitions.extend(moments.map(|restart| Transition {
                            warp,
                            kinds: kinds.clone(),
                            accesses: accesses.clone(),
                            restart,
                        }));
                    }
                }
            }
        }
    }
    transitions
}

/// A phase in which no member has an access ready passes only while a member of another warp waits (F4), and
/// that other warp has the next phase that is executed. So the search does not let a warp pass and have the
/// very next phase.
fn may_come(space: &Space, state: &SearchState, warp: WarpId, passes: bool) -> bool {
    let progress = |warp: WarpId| state.progress[warp.index()];
    if !passes {
        return !progress(warp).passed;
    }
    let waits = |other: &WarpId| {
        !progress(*other).passed && (!progress(*other).began() || state.can_act(space, *other))
    };
    let dead = progress(warp).began() && !state.can_act(space, warp);
    dead || space.warps.iter().any(|other| *other != warp && waits(other))
}

/// Whether the append window lets an append of this warp win now (A2, K1).
fn may_win(space: &Space, state: &SearchState, warp: WarpId) -> bool {
    space.setup.window == AppendWindow::Open
        || state.progress[warp.index()].phases < space.params.append_rounds()
}

/// The warps that may come next; of interchangeable ones only one.
fn candidates(space: &Space, state: &SearchState) -> Vec<WarpId> {
    let waits = |warp: &&WarpId| !state.progress[warp.index()].in_this_round;
    let warps: Vec<WarpId> = match space.setup.schedule {
        ScheduleClass::Ascending => space.warps.iter().find(waits).copied().into_iter().collect(),
        ScheduleClass::Descending => space.warps.iter().rev().find(waits).copied().into_iter().collect(),
        ScheduleClass::FirstRound if state.rounds >= space.params.append_rounds() => {
            space.warps.iter().find(waits).copied().into_iter().collect()
        }
        ScheduleClass::RoundBased | ScheduleClass::FirstRound => {
            space.warps.iter().filter(waits).copied().collect()
        }
        ScheduleClass::Any => {
            let begins = |warp: &&WarpId| !state.progress[warp.index()].began();
            space.warps.iter().filter(|warp| begins(warp) || state.can_act(space, **warp)).copied().collect()
        }
    };
    if !space.setup.symmetry {
        return warps;
    }
    let mut classes = Vec::new();
    warps
        .into_iter()
        .filter(|&warp| {
            let class = (space.params.members(warp).count(), space.warp_key(state, warp));
            let new = !classes.contains(&class);
            classes.push(class);
            new
        })
        .collect()
}

/// The kinds that the members of a warp may have in its first phase. In a later phase there is nothing to
/// choose.
fn assignments(space: &Space, state: &SearchState, warp: WarpId) -> Vec<Vec<(ProcessId, ProcessKind)>> {
    if state.progress[warp.index()].began() {
        return vec![Vec::new()];
    }
    let processes: Vec<ProcessId> = space.params.members(warp).collect();
    if let Some(truth) = &space.setup.kinds {
        return vec![processes.into_iter().map(|process| (process, truth[process.index()])).collect()];
    }
    let correct = (space.setup.foreign..space.setup.values).map(ProcessKind::Correct);
    let all: Vec<ProcessKind> = std::iter::once(ProcessKind::Byzantine).chain(correct).collect();
    let mut assignments: Vec<Vec<(ProcessId, ProcessKind)>> = vec![Vec::new()];
    for process in processes {
        assignments = assignments
            .iter()
            .flat_map(|assignment| {
                // One order of interchangeable members is enough.
                let least = assignment.last().map(|(_, kind)| *kind).filter(|_| space.setup.symmetry);
                let kinds = all.iter().filter(move |kind| least.is_none_or(|least| **kind >= least));
                kinds.map(|kind| assignment.iter().copied().chain([(process, *kind)]).collect())
            })
            .collect();
    }
    assignments
        .retain(|assignment| !space.setup.inside_the_bound || is_inside_the_bound(space, state, assignment));
    assignments
}

/// Whether the bound of strong validity can still hold. It never comes back once it does not.
fn is_inside_the_bound(space: &Space, state: &SearchState, assignment: &[(ProcessId, ProcessKind)]) -> bool {
    let (mut byzantine, mut values) = (state.byzantine(), state.correct_values());
    for (_, kind) in assignment {
        match kind {
            ProcessKind::Byzantine => byzantine += 1,
            ProcessKind::Correct(value) => values |= 1 << value,
        }
    }
    strong_validity(&space.params, byzantine.into(), values.count_ones().into()).is_ok()
}

fn members(
    space: &Space,
    state: &SearchState,
    warp: WarpId,
    kinds: &[(ProcessId, ProcessKind)],
) -> Vec<Candidate> {
    let late = space.setup.late;
    let newcomer = |&(process, kind): &(ProcessId, ProcessKind)| {
        let appends = matches!(kind, ProcessKind::Correct(_));
        Candidate { process, kind, appends, excluded: false, may_miss: appends && late > 0, has_ended: false }
    };
    let known = |process| {
        let kind = state.kind(process)?;
        Some(match &state.slots[process.index()] {
            Slot::Correct(correct) => Candidate {
                process,
                kind,
                appends: correct.appends(),
                excluded: false,
                may_miss: correct.appends() && correct.missed < late,
                has_ended: correct.has_ended(),
            },
            Slot::Byzantine { won, .. } => {
                let (appends, may_miss, has_ended) = (false, false, false);
                let excluded = *won && space.setup.window == AppendWindow::FirstAccess;
                Candidate { process, kind, appends, excluded, may_miss, has_ended }
            }
            Slot::Empty => return None,
        })
    };
    if kinds.is_empty() {
        space.params.members(warp).filter_map(known).collect()
    } else {
        kinds.iter().map(newcomer).collect()
    }
}

/// The actions that the present members may take, in all orders of acceptance that make a difference.
fn accesses(space: &Space, present: &[&Candidate], may_win: bool) -> Vec<Vec<(ProcessId, Action)>> {
    let (byzantine, correct): (Vec<&Candidate>, Vec<&Candidate>) =
        present.iter().partition(|member| member.kind == ProcessKind::Byzantine);
    let lean = space.setup.adversary == Adversary::Lean;
    // An append outside the window is refused whatever its value.
    let values = if lean && !may_win { 1 } else { space.setup.values };
    let appends = || (0..values).map(Action::Append);
    let follows = correct.iter().map(|member| (member.process, Action::Follow));
    let mut plans: Vec<Vec<(ProcessId, Action)>> = vec![follows.collect()];
    match space.setup.adversary {
        Adversary::Full => {
            for member in byzantine {
                let actions: Vec<Option<Action>> =
                    [None, Some(Action::Read)].into_iter().chain(appends().map(Some)).collect();
                let with = |plan: &Vec<(ProcessId, Action)>, action: Option<Action>| {
                    plan.iter().copied().chain(action.map(|action| (member.process, action))).collect()
                };
                plans = plans
                    .iter()
                    .flat_map(|plan| actions.iter().map(move |action| with(plan, *action)))
                    .collect();
            }
        }
        Adversary::Lean => {
            let reads = byzantine.iter().map(|member| (member.process, Action::Read));
            plans[0].extend(reads);
            let first = byzantine.iter().position(|member| !(may_win && member.excluded));
            if let Some(first) = first {
                let with = |action| {
                    let mut plan = plans[0].clone();
                    plan[correct.len() + first] = (byzantine[first].process, action);
                    plan
                };
                plans.extend(appends().map(with).collect::<Vec<_>>());
            }
        }
    }
    plans.iter().flat_map(|plan| arrivals(plan, &correct, lean)).collect()
}

/// The same accesses, with each append in turn accepted first. A lean adversary appends only where it wins,
/// and of correct processes that append the same one is enough.
fn arrivals(
    plan: &[(ProcessId, Action)],
    correct: &[&Candidate],
    lean: bool,
) -> Vec<Vec<(ProcessId, Action)>> {
    let appended = |(process, action): &(ProcessId, Action)| match action {
        Action::Append(_) => Some(ProcessKind::Byzantine),
        Action::Follow => correct
            .iter()
            .find(|member| member.process == *process && member.appends)
            .map(|member| member.kind),
        Action::Read => None,
    };
    let mut appends: Vec<(usize, ProcessKind)> =
        plan.iter().enumerate().filter_map(|(index, access)| Some((index, appended(access)?))).collect();
    if lean {
        if let Some(adversary) = appends.iter().find(|(_, kind)| *kind == ProcessKind::Byzantine).copied() {
            appends = vec![adversary];
        }
        appends.sort_unstable_by_key(|(_, kind)| *kind);
        appends.dedup_by_key(|(_, kind)| *kind);
    }
    if appends.is_empty() {
        return vec![plan.to_vec()];
    }
    let with_first = |(first, _): (usize, ProcessKind)| {
        let mut plan = plan.to_vec();
        plan[..=first].rotate_right(1);
        plan
    };
    appends.into_iter().map(with_first).collect()
}
