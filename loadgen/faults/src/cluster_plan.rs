//! The plan of a round with a cluster, drawn from its seed: its faults, and the times at which instances
//! begin meanwhile.

use std::sync::Arc;
use std::time::Duration;

use stickycas_model::ground_truth::Role;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;

use crate::fault::{ClusterSize, Fault, FaultKind, millis};
use crate::plan::{InstancePlan, Load, RoundPlan};

impl RoundPlan {
    /// The round of this seed for a cluster.
    #[must_use]
    pub fn cluster(seed: u64, load: Load, size: ClusterSize) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x636c_7573);
        let mut kinds = FaultKind::of_round(seed, size);
        for last in (1..kinds.len()).rev() {
            kinds.swap(last, random.index(last + 1));
        }
        let faults: Vec<Fault> = kinds.into_iter().map(|kind| Fault::draw(kind, size, random)).collect();
        // A take-over in between takes about so long.
        let take_over = |fault: &Fault| if fault.is_alone { size.lease } else { Duration::ZERO };
        let span: Duration = faults.iter().map(|fault| fault.after + fault.lasts + take_over(fault)).sum();
        let span = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let instances = (0..load.instances).map(|number| {
            let begin = millis(random, 0, span);
            let plan = slowed(InstancePlan::draw(number, begin, load, random), random);
            if plan.has_short_patience() { early(plan, load.waiting.in_vain, span) } else { plan }
        });
        let instances = instances.collect();
        let longest_end = Duration::from_secs(90) + 3 * load.waiting.in_vain;
        Self { seed, kills: Vec::new(), faults, killed_at_end: false, longest_end, instances }
    }
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
    // The library appends no empty value, and a raw call would have to find the owner by itself.
    for (process, assignment) in plan.truth.assignments() {
        if let Role::Byzantine(strategy) = &assignment.role
            && strategy.name() == "empty"
        {
            plan.unary.remove(&process);
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fault::FaultMix;
    use crate::plan::Waiting;

    const LOAD: Load = Load { instances: 60, processes: 6, waiting: Waiting::CLUSTER };

    fn size(members: usize) -> ClusterSize {
        ClusterSize { servers: 3, members, lease: Duration::from_secs(2), faults: 10, has_partitions: false }
    }

    #[test]
    fn ten_faults_have_every_kind_of_a_cluster() {
        let kinds = |members| {
            let plan = RoundPlan::cluster(1, LOAD, size(members));
            plan.faults.iter().map(|fault| fault.kind).collect::<BTreeSet<_>>()
        };
        let all = |(each, others): FaultMix| each.into_iter().chain(others).collect::<BTreeSet<_>>();
        assert_eq!(kinds(3), all(FaultKind::WITH_MAJORITY));
        assert_eq!(kinds(1), all(FaultKind::WITH_ONE_MEMBER));
    }

    #[test]
    fn ten_faults_with_partitions_have_each_partition() {
        let size = ClusterSize { has_partitions: true, ..size(3) };
        let kinds = |seed| RoundPlan::cluster(seed, LOAD, size).faults.into_iter().map(|fault| fault.kind);
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
            .flat_map(|seed| RoundPlan::cluster(seed, LOAD, size(3)).faults)
            .filter_map(|fault| (fault.kind == FaultKind::ServerPaused).then_some(fault.lasts))
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
