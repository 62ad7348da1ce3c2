//! `[[faults]]`: the Byzantine processes and their behaviour, the same table in every file.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_model::byzantine::{Strategy, WireAttack};
use stickycas_model::ground_truth::Role;
use stickycas_model::params::Params;
use stickycas_model::types::ProcessId;

use super::Fault;
use super::Spanned;
use super::values::seed_or;
use crate::fault_plan::{FaultPlan, Placement};

/// `[[faults]]`: processes that play a strategy or carry out a wire attack. Give one of processes, count and
/// share, and one of strategy and attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Their strategy, such as "collude(value=0)", or "external": see docs/use/scenarios.md.
    pub strategy: Option<Spanned<String>>,
    /// Their wire attack, such as "flood": see docs/use/scenarios.md.
    pub attack: Option<Spanned<String>>,
    /// These processes, by number.
    pub processes: Option<Spanned<Vec<Spanned<u32>>>>,
    /// The number of processes.
    pub count: Option<Spanned<u32>>,
    /// The share of the n processes, from 0 to less than 1, rounded down.
    pub share: Option<Spanned<f64>>,
    /// With count or share: spread over the warps, packed into few, or drawn [default: spread].
    pub placement: Option<Spanned<Placement>>,
    /// Each is correct at first, and corrupted in a phase of its own, drawn from this range, such as [1, 16].
    pub corrupted_in: Option<Spanned<[u64; 2]>>,
    /// The seed of placement and phases [default: the file's seed].
    pub seed: Option<Spanned<u64>>,
}

impl Faults {
    /// Whether it is the same under every seed of the file.
    pub(crate) fn is_settled(&self) -> bool {
        let placement = self.placement.as_ref().map_or_else(Placement::default, |given| *given.get_ref());
        let is_placed = self.processes.is_some() || placement != Placement::Random;
        self.seed.is_some() || (is_placed && self.corrupted_in.is_none())
    }
}

/// The plan that these groups make, in their order.
///
/// # Errors
/// The first thing that is wrong.
pub fn fault_plan(groups: &[Spanned<Faults>], params: &Params, seed: u64) -> Result<FaultPlan, Fault> {
    let mut plan = FaultPlan::default();
    for group in groups {
        let (span, group) = (group.span(), group.get_ref());
        let role = role(group, &span)?;
        let seed = seed_or(group.seed.as_ref(), || seed)?;
        let placed = match (&group.processes, number(group, params.processes())?) {
            (Some(processes), None) => {
                if let Some(misplaced) = misplaced(group) {
                    return Err(Fault::new(misplaced, "goes with count, not with processes: leave it out"));
                }
                name_each(&mut plan, processes, &role, params)?
            }
            // A small share of a few processes.
            (None, Some((0, _))) if group.share.is_some() => Vec::new(),
            (None, Some((count, span))) => {
                let placement = group.placement.as_ref().map_or(Placement::Spread, |given| *given.get_ref());
                plan.place(placement, count, &role, params, seed).map_err(|error| Fault::new(span, error))?
            }
            (Some(_), Some((_, span))) => {
                return Err(Fault::new(span, "processes, count, share: give one of them"));
            }
            (None, None) => {
                return Err(Fault::new(span, "give processes = [...], count = f or share = 0.1"));
            }
        };
        if let (Role::Byzantine(strategy), Some(text)) = (&role, &group.strategy) {
            let check = |process: &ProcessId| strategy.check_values(*process, params);
            placed.iter().try_for_each(check).map_err(|error| Fault::new(text.span(), error))?;
        }
        if let Some(phases) = &group.corrupted_in {
            plan.corrupt(&placed, *phases.get_ref(), seed)
                .map_err(|error| Fault::new(phases.span(), error))?;
        }
    }
    Ok(plan)
}

/// A process by its number.
pub(crate) fn process(number: &Spanned<u32>, params: &Params) -> Result<ProcessId, Fault> {
    let process = ProcessId::new(*number.get_ref()).filter(|process| params.contains(*process));
    let n = params.processes();
    process.ok_or_else(|| {
        Fault::new(number.span(), format!("there is no process {}: give 1 to n = {n}", number.get_ref()))
    })
}

/// The role of a group: a strategy, a wire attack, or a program of others.
fn role(group: &Faults, span: &Range<usize>) -> Result<Role, Fault> {
    match (&group.strategy, &group.attack) {
        (Some(text), None) if text.get_ref() == Role::EXTERNAL => Ok(Role::External),
        (Some(text), None) => {
            let strategy: Result<Strategy, _> = text.get_ref().parse();
            strategy.map(Role::Byzantine).map_err(|error| Fault::new(text.span(), error))
        }
        (None, Some(text)) => {
            let attack: Result<WireAttack, _> = text.get_ref().parse();
            attack.map(Role::Attacker).map_err(|error| Fault::new(text.span(), error))
        }
        (Some(_), Some(attack)) => Err(Fault::new(
            attack.span(),
            "strategy and attack: give one of them, and the other in a group of its own",
        )),
        (None, None) => Err(Fault::new(span.clone(), "give strategy = \"...\" or attack = \"...\"")),
    }
}

/// How many of the n processes a group asks for, by count or by share, and where that stands.
fn number(group: &Faults, n: u32) -> Result<Option<(u32, Range<usize>)>, Fault> {
    match (&group.count, &group.share) {
        (None, None) => Ok(None),
        (Some(count), None) => Ok(Some((*count.get_ref(), count.span()))),
        (Some(_), Some(share)) => Err(Fault::new(share.span(), "processes, count, share: give one of them")),
        (None, Some(share)) => {
            let given = *share.get_ref();
            if !(0.0..1.0).contains(&given) {
                let reason = format!("share = {given}: give 0 or more, and less than 1");
                return Err(Fault::new(share.span(), reason));
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is below n")]
            let count = (given * f64::from(n)) as u32;
            Ok(Some((count, share.span())))
        }
    }
}

/// A key that has no meaning beside an explicit list.
fn misplaced(group: &Faults) -> Option<Range<usize>> {
    let placement = group.placement.as_ref().map(Spanned::span);
    let seed = group.seed.as_ref().filter(|_| group.corrupted_in.is_none()).map(Spanned::span);
    placement.or(seed)
}

fn name_each(
    plan: &mut FaultPlan,
    processes: &Spanned<Vec<Spanned<u32>>>,
    role: &Role,
    params: &Params,
) -> Result<Vec<ProcessId>, Fault> {
    if processes.get_ref().is_empty() {
        return Err(Fault::new(processes.span(), "names no process: name one, or leave the group out"));
    }
    let name = |number| {
        let process = process(number, params)?;
        plan.name(process, role).map_err(|error| Fault::new(number.span(), error))?;
        Ok(process)
    };
    processes.get_ref().iter().map(name).collect()
}

/// One group for each strategy and attack, in the order of its first process.
pub fn written_faults<'a>(roles: impl Iterator<Item = (ProcessId, &'a Role)>) -> Vec<Spanned<Faults>> {
    let mut groups: Vec<(&Role, Vec<Spanned<u32>>)> = Vec::new();
    for (process, role) in roles.filter(|(_, role)| **role != Role::Correct) {
        match groups.iter_mut().find(|(other, _)| *other == role) {
            Some((_, processes)) => processes.push(process.get().into()),
            None => groups.push((role, vec![process.get().into()])),
        }
    }
    let written = |(role, processes): (&Role, Vec<Spanned<u32>>)| {
        let mut group = Faults { processes: Some(processes.into()), ..Faults::default() };
        let conduct = if let Role::Attacker(_) = role { &mut group.attack } else { &mut group.strategy };
        *conduct = Some(role.to_string().into());
        group.into()
    };
    groups.into_iter().map(written).collect()
}
