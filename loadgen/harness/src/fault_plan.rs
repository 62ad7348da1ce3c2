//! The fault plan of a run, as a value: which processes are Byzantine, and what each of them does, a
//! strategy, a wire attack, or what a program of others does (SPEC section 8).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stickycas_model::byzantine::Strategy;
use stickycas_model::ground_truth::Role;
use stickycas_model::params::Params;
use stickycas_model::random::SplitMix64;
use stickycas_model::types::ProcessId;

/// Where a number of Byzantine processes sit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Over as many warps as possible: the first process of each warp, then the second, and so on. This
    /// serves an adversary best (V3).
    #[default]
    Spread,
    /// In as few warps as possible: processes 1, 2, 3, ...
    Packed,
    /// Drawn from a seed.
    Random,
}

/// Which process plays which role; all others are correct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan(BTreeMap<ProcessId, Role>);

impl FaultPlan {
    /// The role of a process that is not correct; `None` for a correct one.
    #[must_use]
    pub fn role(&self, process: ProcessId) -> Option<&Role> {
        self.0.get(&process)
    }

    /// Each process that is not correct, by number, with its role.
    pub fn roles(&self) -> impl Iterator<Item = (ProcessId, &Role)> {
        self.0.iter().map(|(process, role)| (*process, role))
    }

    /// The processes that have one, by number.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.0.keys().copied()
    }

    /// Gives this process a role.
    ///
    /// # Errors
    /// If it has one already.
    pub fn name(&mut self, process: ProcessId, role: &Role) -> Result<(), String> {
        match self.0.insert(process, role.clone()) {
            None => Ok(()),
            Some(_) => Err(format!("process {process} is in the fault plan already: name it once")),
        }
    }

    /// Gives a role to `count` of the processes that have none, and returns them; `seed` is for a random
    /// choice.
    ///
    /// # Errors
    /// If none are asked for, or more than there are.
    pub fn place(
        &mut self,
        placement: Placement,
        count: u32,
        role: &Role,
        params: &Params,
        seed: u64,
    ) -> Result<Vec<ProcessId>, String> {
        let mut free: Vec<ProcessId> =
            ProcessId::all(params.processes()).filter(|process| !self.0.contains_key(process)).collect();
        let wanted = count as usize;
        if wanted == 0 || wanted > free.len() {
            let left = free.len();
            return Err(format!(
                "count = {count}: give 1 to {left}, the processes that are not in the fault plan yet"
            ));
        }
        match placement {
            Placement::Packed => {}
            Placement::Spread => {
                let p = params.warp_size() as usize;
                free.sort_by_key(|process| (process.index() % p, process.index() / p));
            }
            Placement::Random => shuffle(&mut free, &mut SplitMix64::new(seed)),
        }
        free.truncate(wanted);
        self.0.extend(free.iter().map(|process| (*process, role.clone())));
        Ok(free)
    }

    /// Makes processes that play a strategy correct at first: the adversary corrupts each of them in a phase
    /// of its own, drawn from `seed` between the first and the last of `phases`. A process that has left by
    /// then is not corrupted, so this is adaptive corruption of up to so many in the course of the run.
    ///
    /// # Errors
    /// If there are no such phases, or the strategy of one of the processes is none to go on with.
    pub fn corrupt(&mut self, processes: &[ProcessId], phases: [u64; 2], seed: u64) -> Result<(), String> {
        let [first, last] = phases;
        if first == 0 || first > last {
            return Err(format!(
                "corrupted_in = [{first}, {last}]: give a first phase, from 1 on, and a last one that is not before it"
            ));
        }
        // Not what the placement was drawn from.
        let mut random = SplitMix64::new(!seed);
        for process in processes {
            let phase = first + random.below((last - first).saturating_add(1));
            let Some(role) = self.0.get_mut(process) else { continue };
            let Role::Byzantine(then) = role else {
                let why = "corrupted_in goes with a strategy of ours, not with external or a wire attack: leave it out";
                return Err(why.to_owned());
            };
            let corrupted: Result<Strategy, _> = format!("adaptive(phase={phase}, then={then})").parse();
            *role = Role::Byzantine(corrupted.map_err(|error| format!("corrupted_in: {error}"))?);
        }
        Ok(())
    }
}

/// Fisher and Yates.
pub(crate) fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.index(last + 1));
    }
}

#[cfg(test)]
mod tests {
    use stickycas_model::byzantine::{Absent, Silent};
    use stickycas_model::params::ParamsSpec;

    use super::*;

    const ABSENT: Role = Role::Byzantine(Strategy::Absent(Absent));
    const SILENT: Role = Role::Byzantine(Strategy::Silent(Silent));

    fn placed(placement: Placement, count: u32, seed: u64) -> Vec<u32> {
        let params = Params::try_new(ParamsSpec::new(8, 3, 1)).unwrap();
        let mut plan = FaultPlan::default();
        plan.name(ProcessId::new(4).unwrap(), &ABSENT).unwrap();
        plan.place(placement, count, &SILENT, &params, seed).unwrap();
        plan.0.iter().filter(|(_, role)| **role == SILENT).map(|(p, _)| p.get()).collect()
    }

    #[test]
    fn spread_takes_a_warp_each_and_passes_over_who_is_taken() {
        // Warps 1 2 3 | 4 5 6 | 7 8; process 4 is taken, so warp 2 gives its second.
        assert_eq!(placed(Placement::Spread, 2, 0), [1, 7]);
        assert_eq!(placed(Placement::Spread, 4, 0), [1, 2, 5, 7]);
    }

    #[test]
    fn packed_fills_the_first_warps() {
        assert_eq!(placed(Placement::Packed, 4, 0), [1, 2, 3, 5]);
    }

    #[test]
    fn random_follows_its_seed() {
        assert_eq!(placed(Placement::Random, 3, 5), placed(Placement::Random, 3, 5));
        let different =
            (0..20).map(|seed| placed(Placement::Random, 3, seed)).collect::<std::collections::BTreeSet<_>>();
        assert!(different.len() > 5, "{different:?}");
    }

    #[test]
    fn nobody_plays_two_roles_and_nobody_is_made_up() {
        let params = Params::try_new(ParamsSpec::new(3, 1, 1)).unwrap();
        let mut plan = FaultPlan::default();
        let one = ProcessId::FIRST;
        plan.name(one, &ABSENT).unwrap();
        assert!(plan.name(one, &SILENT).unwrap_err().starts_with("process 1 is in the fault plan already"));
        let refused = plan.place(Placement::Spread, 3, &SILENT, &params, 0).unwrap_err();
        assert!(refused.starts_with("count = 3: give 1 to 2"), "{refused}");
    }
}
