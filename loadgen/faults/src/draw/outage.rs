//! The plan of a long outage: a server that is killed while all instances are under way, and started again
//! days later.
//!
//! Time of an instance is served time (SPEC F3), so an outage of any length changes nothing: no instance
//! expires (F10), no join timeout ends (F5), nobody's patience is spent. Every duration of these instances is
//! far shorter than the outage, and each kind of instance has another one of them running when the server is
//! killed.

use std::collections::BTreeSet;
use std::time::Duration;

use stickycas_model::byzantine::Strategy;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::random::SplitMix64;
use stickycas_model::types::{ProcessId, Seed, Value};

use super::{InstancePlan, Load, RoundPlan, killed};
use crate::plan::{Step, When};

/// The processes of an instance.
const PROCESSES: u32 = 4;
/// The patience of processes.
const PATIENCE: Duration = Duration::from_secs(5);
/// For how long instances gather.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);
/// From one phase to the next: four of them last longer than it takes until the server is killed.
const PACE: Duration = Duration::from_secs(3);

/// How long all may take to come to their end after the outage: far longer than they do.
const LONGEST_END: Duration = Duration::from_secs(60);

/// Where an instance stands when the server is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It gathers: accesses wait, and one correct process comes after the outage only.
    Gathering,
    /// A phase is open, and drains the patience of a process that says nothing.
    PhaseOpen,
    /// Accesses wait for a phase whose time has not come.
    Paced,
    /// It has finished, and is kept.
    Finished,
}

impl RoundPlan {
    /// A round in which the server is killed once when this many instances are under way, and started again
    /// with its clocks so far ahead. A quarter as many instances have finished by then.
    #[must_use]
    pub fn outage(seed: u64, load: Load, ahead: Duration) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x6f75_7461);
        let stages = [Stage::Gathering, Stage::PhaseOpen, Stage::Paced];
        let under_way = (0..load.instances).map(|number| stages[number % stages.len()]);
        let finished = (0..load.instances.div_ceil(4)).map(|_| Stage::Finished);
        // Those first that wait for nothing, so that the clocks of the others have not run for long.
        let instances = finished.chain(under_way).enumerate();
        let instances = instances.map(|(number, stage)| instance(number, stage, random)).collect();
        let steps = vec![Step { ahead: Some(ahead), ..killed(When::UnderWay) }, killed(When::Ended)];
        Self { seed, steps, longest_end: LONGEST_END, instances }
    }

    /// Whether the server is killed when all instances are under way.
    pub(crate) fn is_outage(&self) -> bool {
        self.steps.iter().any(|step| step.when == When::UnderWay)
    }
}

fn instance(number: usize, stage: Stage, random: &mut SplitMix64) -> InstancePlan {
    let silent: Strategy = "silent".parse().expect("it has no arguments");
    let assignments = ProcessId::all(PROCESSES).map(|process| {
        let role = if stage == Stage::PhaseOpen && process == ProcessId::FIRST {
            Role::Byzantine(silent.clone())
        } else {
            Role::Correct
        };
        Assignment { role, proposal: Value::new(b"v").expect("it is not empty") }
    });
    let spec = ParamsSpec {
        seed: Seed::new(random.next_u64() >> 1),
        patience: Patience::Finite(PATIENCE),
        join_timeout: JOIN_TIMEOUT,
        pace: if stage == Stage::Paced { PACE } else { Duration::ZERO },
        // With warps of one, one Byzantine process is inside the bound (V3).
        ..ParamsSpec::new(PROCESSES, if stage == Stage::PhaseOpen { 1 } else { 2 }, 2)
    };
    let last = ProcessId::all(PROCESSES).last();
    let params = Params::try_new(spec).expect("these are in their ranges");
    let truth = GroundTruth::new(assignments.collect());
    InstancePlan {
        // Calls that wait are a client's other way.
        unary: if number.is_multiple_of(2) { BTreeSet::from_iter(last) } else { BTreeSet::new() },
        absent_before: if stage == Stage::Gathering { last } else { None },
        ends_before: stage == Stage::Finished,
        watched: number.is_multiple_of(8),
        ..InstancePlan::new(number, params, truth, random.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Waiting;
    use super::*;

    const LOAD: Load = Load { instances: 12, processes: PROCESSES, waiting: Waiting::REAL_TIME };
    const AHEAD: Duration = Duration::from_secs(2 * 24 * 3600);

    #[test]
    fn an_outage_is_longer_than_all_that_an_instance_waits_for() {
        let plan = RoundPlan::outage(1, LOAD, AHEAD);
        assert_eq!((plan.steps[0].when, plan.steps[0].ahead), (When::UnderWay, Some(AHEAD)));
        for instance in &plan.instances {
            let spec = instance.params.spec();
            assert!(matches!(spec.patience, Patience::Finite(patience) if patience < AHEAD / 1_000));
            assert!(spec.join_timeout.max(spec.pace) < AHEAD / 1_000);
        }
    }

    #[test]
    fn an_outage_meets_instances_of_every_stage() {
        let plan = RoundPlan::outage(1, LOAD, AHEAD);
        let count = |is: fn(&InstancePlan) -> bool| plan.instances.iter().filter(|plan| is(plan)).count();
        assert_eq!(plan.instances.len(), 15);
        assert_eq!(count(|instance| instance.ends_before), 3);
        assert_eq!(count(|instance| instance.absent_before.is_some()), 4);
        assert_eq!(count(|instance| instance.truth.byzantine().next().is_some()), 4);
        assert_eq!(count(|instance| !instance.params.spec().pace.is_zero()), 4);
        // A process that must come early must not wait for a process that comes late.
        assert!(plan.instances.iter().all(|plan| !(plan.ends_before && plan.absent_before.is_some())));
    }
}
