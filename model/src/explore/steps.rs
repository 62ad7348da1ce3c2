//! All that may happen next in a state: which warp's phase comes, who its members are, what each of them does, and
//! whose append is accepted first.

use super::setup::{Adversary, ProcessKind, ScheduleClass, Space};
use super::world::{SearchState, Slot};
use crate::bounds::strong_validity;
use crate::params::AppendWindow;
use crate::types::{ProcessId, WarpId};

/// What a process does with its access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A correct process: what Algorithm 1 says.
    Follow,
    /// A Byzantine one: appends the value with this index.
    Append(u8),
    /// A Byzantine one: reads.
    Read,
}

/// One phase. Whoever of the warp is not named has no access ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Whose phase it is.
    pub warp: WarpId,
    /// Who its members are, if it is their first.
    pub seated: Vec<(ProcessId, ProcessKind)>,
    /// What they do, in the order of acceptance.
    pub accesses: Vec<(ProcessId, Action)>,
}

/// A member of the warp in question.
struct Member {
    process: ProcessId,
    role: ProcessKind,
    /// A correct process that has still to append.
    is_new: bool,
    /// A correct process that may have nothing ready.
    may_miss: bool,
    has_ended: bool,
}

/// Every step out of a state.
pub(super) fn steps(ground: &Space, world: &SearchState) -> Vec<Transition> {
    let mut steps = Vec::new();
    for warp in candidates(ground, world) {
        for seated in castings(ground, world, warp) {
            let members = members(ground, world, warp, &seated);
            let free: Vec<ProcessId> =
                members.iter().filter(|member| member.may_miss).map(|member| member.process).collect();
            for absent in 0..1_u32 << free.len() {
                let is_absent = |process| {
                    free.iter().position(|free| *free == process).is_some_and(|i| absent >> i & 1 == 1)
                };
                let present: Vec<&Member> =
                    members.iter().filter(|member| !member.has_ended && !is_absent(member.process)).collect();
                for accesses in accesses(ground, &present, may_win(ground, world, warp)) {
                    if may_come(ground, world, warp, accesses.is_empty()) {
                        steps.push(Transition { warp, seated: seated.clone(), accesses });
                    }
                }
            }
        }
    }
    steps
}

/// A phase in which nobody has an access ready passes only while somebody of another warp waits (F4), and who waits
/// has the next phase that is executed. So the search does not let a warp pass, and have the very next phase.
fn may_come(ground: &Space, world: &SearchState, warp: WarpId, passes: bool) -> bool {
    let had = |warp: WarpId| world.had[warp.index()];
    if !passes {
        return !had(warp).passed;
    }
    let waits = |other: &WarpId| !had(*other).passed && (!had(*other).first || world.can_act(ground, *other));
    let dead = had(warp).first && !world.can_act(ground, warp);
    dead || ground.warps.iter().any(|other| *other != warp && waits(other))
}

/// Whether an append of this warp may be taken now, as far as the append window goes (A2).
fn may_win(ground: &Space, world: &SearchState, warp: WarpId) -> bool {
    ground.setup.window == AppendWindow::Open || !world.had[warp.index()].first
}

/// The warps that may come next, of those that are alike only one.
fn candidates(ground: &Space, world: &SearchState) -> Vec<WarpId> {
    let waits = |warp: &&WarpId| !world.had[warp.index()].in_this_round;
    let warps: Vec<WarpId> = match ground.setup.schedule {
        ScheduleClass::Ascending => ground.warps.iter().find(waits).copied().into_iter().collect(),
        ScheduleClass::FirstRound if world.rounds > 0 => {
            ground.warps.iter().find(waits).copied().into_iter().collect()
        }
        ScheduleClass::RoundBased | ScheduleClass::FirstRound => {
            ground.warps.iter().filter(waits).copied().collect()
        }
        ScheduleClass::Any => {
            let begins = |warp: &&WarpId| !world.had[warp.index()].first;
            ground
                .warps
                .iter()
                .filter(|warp| begins(warp) || world.can_act(ground, **warp))
                .copied()
                .collect()
        }
    };
    if !ground.setup.symmetry {
        return warps;
    }
    let mut seen = Vec::new();
    warps
        .into_iter()
        .filter(|&warp| {
            let likeness = (ground.params.members(warp).count(), ground.warp_key(world, warp));
            let new = !seen.contains(&likeness);
            seen.push(likeness);
            new
        })
        .collect()
}

/// Who the members of a warp may be whose first phase this is. If it is not, there is nothing to choose.
fn castings(ground: &Space, world: &SearchState, warp: WarpId) -> Vec<Vec<(ProcessId, ProcessKind)>> {
    if world.had[warp.index()].first {
        return vec![Vec::new()];
    }
    let processes: Vec<ProcessId> = ground.params.members(warp).collect();
    if let Some(cast) = &ground.setup.cast {
        return vec![processes.into_iter().map(|process| (process, cast[process.index()])).collect()];
    }
    let correct = (ground.setup.foreign..ground.setup.values).map(ProcessKind::Correct);
    let roles: Vec<ProcessKind> = std::iter::once(ProcessKind::Byzantine).chain(correct).collect();
    let mut castings: Vec<Vec<(ProcessId, ProcessKind)>> = vec![Vec::new()];
    for process in processes {
        castings = castings
            .iter()
            .flat_map(|casting| {
                // Of members that change places one order is enough.
                let least = casting.last().map(|(_, role)| *role).filter(|_| ground.setup.symmetry);
                let roles = roles.iter().filter(move |role| least.is_none_or(|least| **role >= least));
                roles.map(|role| casting.iter().copied().chain([(process, *role)]).collect())
            })
            .collect();
    }
    castings.retain(|casting| !ground.setup.inside_the_bound || is_inside_the_bound(ground, world, casting));
    castings
}

/// Whether the bound of strong validity can still hold. It never comes back once it does not.
fn is_inside_the_bound(ground: &Space, world: &SearchState, casting: &[(ProcessId, ProcessKind)]) -> bool {
    let (mut byzantine, mut values) = (world.byzantine(), world.correct_values());
    for (_, role) in casting {
        match role {
            ProcessKind::Byzantine => byzantine += 1,
            ProcessKind::Correct(value) => values |= 1 << value,
        }
    }
    strong_validity(&ground.params, byzantine.into(), values.count_ones().into()).is_ok()
}

fn members(
    ground: &Space,
    world: &SearchState,
    warp: WarpId,
    seated: &[(ProcessId, ProcessKind)],
) -> Vec<Member> {
    let late = ground.setup.late;
    let newcomer = |&(process, role): &(ProcessId, ProcessKind)| {
        let is_new = matches!(role, ProcessKind::Correct(_));
        Member { process, role, is_new, may_miss: is_new && late > 0, has_ended: false }
    };
    let known = |process| {
        let role = world.role(process)?;
        let (is_new, missed, has_ended) = match &world.seats[process.index()] {
            Slot::Correct(actor) => (actor.is_new(), actor.missed, actor.has_ended()),
            Slot::Empty | Slot::Byzantine { .. } => (false, 0, false),
        };
        Some(Member { process, role, is_new, may_miss: is_new && missed < late, has_ended })
    };
    if seated.is_empty() {
        ground.params.members(warp).filter_map(known).collect()
    } else {
        seated.iter().map(newcomer).collect()
    }
}

/// What the members that are present may do, in all orders of acceptance that make a difference.
fn accesses(ground: &Space, present: &[&Member], may_win: bool) -> Vec<Vec<(ProcessId, Action)>> {
    let (byzantine, correct): (Vec<&Member>, Vec<&Member>) =
        present.iter().partition(|member| member.role == ProcessKind::Byzantine);
    let lean = ground.setup.adversary == Adversary::Lean;
    // What cannot be taken is refused whatever it is.
    let values = if lean && !may_win { 1 } else { ground.setup.values };
    let appends = || (0..values).map(Action::Append);
    let follows = correct.iter().map(|member| (member.process, Action::Follow));
    let mut plans: Vec<Vec<(ProcessId, Action)>> = vec![follows.collect()];
    match ground.setup.adversary {
        Adversary::Full => {
            for member in byzantine {
                let doings: Vec<Option<Action>> =
                    [None, Some(Action::Read)].into_iter().chain(appends().map(Some)).collect();
                let with = |plan: &Vec<(ProcessId, Action)>, doing: Option<Action>| {
                    plan.iter().copied().chain(doing.map(|doing| (member.process, doing))).collect()
                };
                plans = plans
                    .iter()
                    .flat_map(|plan| doings.iter().map(move |doing| with(plan, *doing)))
                    .collect();
            }
        }
        Adversary::Lean => {
            let reads = byzantine.iter().map(|member| (member.process, Action::Read));
            plans[0].extend(reads);
            if let Some(first) = byzantine.first() {
                let place = correct.len();
                let with = |doing| {
                    let mut plan = plans[0].clone();
                    plan[place] = (first.process, doing);
                    plan
                };
                plans.extend(appends().map(with).collect::<Vec<_>>());
            }
        }
    }
    plans.iter().flat_map(|plan| arrivals(plan, &correct, lean)).collect()
}

/// The same accesses, with each append in turn accepted first. A lean adversary appends only where it wins, and of
/// correct processes that append the same one is enough.
fn arrivals(plan: &[(ProcessId, Action)], correct: &[&Member], lean: bool) -> Vec<Vec<(ProcessId, Action)>> {
    let appended = |(process, doing): &(ProcessId, Action)| match doing {
        Action::Append(_) => Some(ProcessKind::Byzantine),
        Action::Follow => correct
            .iter()
            .find(|member| member.process == *process && member.is_new)
            .map(|member| member.role),
        Action::Read => None,
    };
    let mut appends: Vec<(usize, ProcessKind)> =
        plan.iter().enumerate().filter_map(|(index, access)| Some((index, appended(access)?))).collect();
    if lean {
        if let Some(adversary) = appends.iter().find(|(_, role)| *role == ProcessKind::Byzantine).copied() {
            appends = vec![adversary];
        }
        appends.sort_unstable_by_key(|(_, role)| *role);
        appends.dedup_by_key(|(_, role)| *role);
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
