//! The faults of a cluster, drawn from the seed of a round, and the instances that meet them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_model::cast::Role;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;

use crate::plan::{InstancePlan, Load, RoundPlan, millis};

/// The servers of a cluster and what they stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterSize {
    /// Servers, at least 1.
    pub servers: usize,
    /// Members of etcd, at least 1.
    pub members: usize,
    /// The lease of a server.
    pub lease: Duration,
    /// Faults in each round.
    pub faults: usize,
}

/// What befalls a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A server is killed with SIGKILL, and started again.
    ServerKilled,
    /// A server is stopped with SIGSTOP until its lease has ended, and goes on.
    ServerPaused,
    /// A server is asked to stop with SIGTERM, and started again.
    ServerStopped,
    /// A member of etcd is killed with SIGKILL, and started again; the others are a majority.
    MemberKilled,
    /// A member of etcd is stopped with SIGSTOP, and goes on; the others are a majority.
    MemberPaused,
    /// The only member of etcd is killed with SIGKILL, and started again.
    EtcdKilled,
    /// All members of etcd are stopped with SIGSTOP, and go on.
    EtcdPaused,
}

impl FaultKind {
    /// Those of servers are half of all.
    const WITH_MAJORITY: [Self; 10] = [
        Self::ServerKilled,
        Self::ServerPaused,
        Self::MemberKilled,
        Self::ServerStopped,
        Self::ServerKilled,
        Self::EtcdPaused,
        Self::ServerKilled,
        Self::MemberPaused,
        Self::ServerPaused,
        Self::ServerStopped,
    ];
    const WITH_ONE_MEMBER: [Self; 10] = [
        Self::ServerKilled,
        Self::ServerPaused,
        Self::EtcdKilled,
        Self::ServerStopped,
        Self::ServerKilled,
        Self::EtcdPaused,
        Self::ServerKilled,
        Self::ServerPaused,
        Self::ServerKilled,
        Self::ServerStopped,
    ];
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ServerKilled => "SIGKILL of a server",
            Self::ServerPaused => "SIGSTOP of a server, past its lease",
            Self::ServerStopped => "SIGTERM of a server",
            Self::MemberKilled => "SIGKILL of a member of etcd",
            Self::MemberPaused => "SIGSTOP of a member of etcd",
            Self::EtcdKilled => "SIGKILL of the only member of etcd",
            Self::EtcdPaused => "SIGSTOP of all of etcd",
        })
    }
}

/// A fault, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What it is.
    pub kind: FaultKind,
    /// The number of the server or member.
    pub target: usize,
    /// Whether all shards are served again before it, or the fault before it is not overcome yet.
    pub is_alone: bool,
    /// How long after that.
    pub after: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Fault {
    fn draw(kind: FaultKind, size: ClusterSize, random: &mut SplitMix64) -> Self {
        let lease = u64::try_from(size.lease.as_millis()).unwrap_or(u64::MAX);
        let (least, most) = match kind {
            FaultKind::ServerKilled => (0, 2 * lease),
            FaultKind::ServerPaused => (lease + lease / 2, 3 * lease),
            FaultKind::ServerStopped => (0, lease / 2),
            FaultKind::MemberKilled | FaultKind::MemberPaused => (200, 4_000),
            FaultKind::EtcdKilled | FaultKind::EtcdPaused => (300, 2 * lease),
        };
        let is_of_servers =
            matches!(kind, FaultKind::ServerKilled | FaultKind::ServerPaused | FaultKind::ServerStopped);
        Self {
            kind,
            target: random.index(if is_of_servers { size.servers } else { size.members }),
            is_alone: random.below(3) > 0,
            after: millis(random, 100, 1_500),
            lasts: millis(random, least, most),
        }
    }
}

impl RoundPlan {
    /// The round of this seed for a cluster.
    #[must_use]
    pub fn cluster(seed: u64, load: Load, size: ClusterSize) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x636c_7573);
        let deck = if size.members > 2 { FaultKind::WITH_MAJORITY } else { FaultKind::WITH_ONE_MEMBER };
        let mut kinds: Vec<FaultKind> = deck.into_iter().cycle().take(size.faults).collect();
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
            slowed(InstancePlan::draw(number, begin, load, random), random)
        });
        let instances = instances.collect();
        let longest_end = Duration::from_secs(90) + 3 * load.waiting.in_vain;
        Self { seed, kills: Vec::new(), faults, killed_at_end: false, longest_end, instances }
    }
}

/// Most go so slowly that faults hit them.
fn slowed(mut plan: InstancePlan, random: &mut SplitMix64) -> InstancePlan {
    if random.below(4) > 0 {
        let spec = ParamsSpec { pace: millis(random, 20, 600), ..plan.params.spec().clone() };
        plan.params = Arc::new(Params::try_new(spec).expect("a pace is in its range"));
    }
    // The library appends no empty value, and a raw call would have to find the owner by itself.
    for (process, part) in plan.cast.parts() {
        if let Role::Byzantine(strategy) = &part.role
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
    use crate::plan::Waiting;

    const LOAD: Load = Load { instances: 60, processes: 6, waiting: Waiting::CLUSTER };

    fn size(members: usize) -> ClusterSize {
        ClusterSize { servers: 3, members, lease: Duration::from_secs(2), faults: 10 }
    }

    #[test]
    fn ten_faults_have_every_kind_of_a_cluster() {
        let kinds = |members| {
            let plan = RoundPlan::cluster(1, LOAD, size(members));
            plan.faults.iter().map(|fault| fault.kind).collect::<BTreeSet<_>>()
        };
        assert_eq!(kinds(3), FaultKind::WITH_MAJORITY.into_iter().collect());
        assert_eq!(kinds(1), FaultKind::WITH_ONE_MEMBER.into_iter().collect());
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
