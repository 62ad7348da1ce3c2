//! The plan of a round with a cluster, drawn from its seed: its faults, and the times at which instances
//! begin meanwhile.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;

use super::{ClusterSize, FaultKind, InstancePlan, Load, RoundPlan, millis};
use crate::plan::{Step, When};

impl RoundPlan {
    /// The round of this seed for a cluster.
    #[must_use]
    pub fn cluster(seed: u64, load: Load, size: ClusterSize) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x636c_7573);
        let mut kinds = FaultKind::of_round(seed, size);
        for last in (1..kinds.len()).rev() {
            kinds.swap(last, random.index(last + 1));
        }
        let steps: Vec<Step> = kinds.into_iter().map(|kind| kind.draw(size, random)).collect();
        let (mut due, mut span) = (Vec::new(), Duration::ZERO);
        for step in &steps {
            let (after, take_over) = match step.when {
                // A take-over takes about so long.
                When::Served(after) => (after, size.lease),
                When::After(after) => (after, Duration::ZERO),
                _ => (Duration::ZERO, Duration::ZERO),
            };
            due.push(Due { from: span, wait: take_over + after, after });
            span += take_over + after + step.lasts.unwrap_or_default();
        }
        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let instances = (0..load.instances).map(|number| {
            let begin = millis(random, 0, span);
            let plan = slowed(InstancePlan::draw(number, begin, load, random), random);
            let plan = if plan.has_short_patience() { early(plan, load.waiting.in_vain, span) } else { plan };
            beside(&due, plan)
        });
        let instances = instances.collect();
        let longest_end = Duration::from_secs(90) + 3 * load.waiting.in_vain;
        Self { seed, steps, longest_end, instances }
    }
}

/// The planned time of a fault.
struct Due {
    /// When the fault before it is over.
    from: Duration,
    /// How long after that it hits.
    wait: Duration,
    /// The part of this time that passes once all servers serve.
    after: Duration,
}

/// The instance begins beside the fault in whose planned time it was to begin, however late that fault is: on
/// a busy machine a take-over takes long, and all instances would be over before the last faults.
fn beside(faults: &[Due], plan: InstancePlan) -> InstancePlan {
    let after_steps = faults.partition_point(|fault| fault.from <= plan.begin);
    let Some(fault) = after_steps.checked_sub(1).map(|last| &faults[last]) else { return plan };
    let offset = plan.begin - fault.from;
    let begin = match offset.checked_sub(fault.wait) {
        Some(behind) => fault.after + behind,
        None => offset.mul_f64(fault.after.as_secs_f64() / fault.wait.as_secs_f64()),
    };
    InstancePlan { after_steps, begin, ..plan }
}

/// An instance that waits in vain for a process, as a rule once: it begins so early that the round does not
/// last longer for that.
fn early(plan: InstancePlan, in_vain: Duration, span: u64) -> InstancePlan {
    let span = Duration::from_millis(span);
    let begin = plan.begin.mul_f64(span.saturating_sub(in_vain).as_secs_f64() / span.as_secs_f64().max(1.0));
    InstancePlan { begin, ..plan }
}

/// Most go so slowly that faults hit them.
fn slowed(mut plan: InstancePlan, random: &mut SplitMix64) -> InstancePlan {
    if random.below(4) > 0 {
        let spec = ParamsSpec { pace: millis(random, 20, 600), ..plan.params.spec().clone() };
        plan.params = Arc::new(Params::try_new(spec).expect("a pace is in its range"));
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::Waiting;
    use super::*;

    const LOAD: Load = Load { instances: 60, processes: 6, waiting: Waiting::CLUSTER };

    fn size(members: usize) -> ClusterSize {
        ClusterSize { servers: 3, members, lease: Duration::from_secs(2), faults: 10, has_partitions: false }
    }

    #[test]
    fn ten_faults_have_every_kind_of_a_cluster() {
        let kinds = |members| {
            let plan = RoundPlan::cluster(1, LOAD, size(members));
            plan.steps.iter().filter_map(|step| FaultKind::of(step, members)).collect::<BTreeSet<_>>()
        };
        let always = BTreeSet::from([
            FaultKind::ServerKilled,
            FaultKind::ServerPaused,
            FaultKind::ServerStopped,
            FaultKind::EtcdPaused,
        ]);
        assert_eq!(kinds(3), &always | &[FaultKind::MemberKilled, FaultKind::MemberPaused].into());
        assert_eq!(kinds(1), &always | &[FaultKind::EtcdKilled].into());
    }

    #[test]
    fn ten_faults_with_partitions_have_each_partition() {
        let size = ClusterSize { has_partitions: true, ..size(3) };
        let kinds = |seed| {
            let steps = RoundPlan::cluster(seed, LOAD, size).steps;
            steps.into_iter().filter_map(|step| FaultKind::of(&step, 3))
        };
        let partitions = BTreeSet::from([
            FaultKind::ServerCutFromEtcd,
            FaultKind::ServerDeposed,
            FaultKind::ServerCutOff,
            FaultKind::ServerReceivesNothing,
            FaultKind::MemberCutOff,
            FaultKind::MemberReceivesNothing,
        ]);
        assert!((1..5).all(|seed| partitions.is_subset(&kinds(seed).collect())));
        let all: BTreeSet<_> = (1..5).flat_map(kinds).collect();
        let others = [FaultKind::MemberKilled, FaultKind::MemberPaused, FaultKind::EtcdPaused];
        assert!(others.iter().all(|kind| all.contains(kind)), "{all:?}");
    }

    #[test]
    fn a_server_is_paused_past_its_lease() {
        let lasts: Vec<Duration> = (0..20)
            .flat_map(|seed| RoundPlan::cluster(seed, LOAD, size(3)).steps)
            .filter(|step| FaultKind::of(step, 3) == Some(FaultKind::ServerPaused))
            .filter_map(|step| step.lasts)
            .collect();
        assert!(lasts.len() == 40 && lasts.iter().all(|lasts| *lasts > size(3).lease), "{lasts:?}");
    }

    #[test]
    fn the_faults_of_a_round_follow_its_seed() {
        let drawn = |seed| format!("{:?}", RoundPlan::cluster(seed, LOAD, size(3)));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }
}
