//! The faults of a cluster, drawn from the seed of a round, and the instances that meet them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_model::cast::Role;
use stickycas_model::params::{Params, ParamsSpec};
use stickycas_model::random::SplitMix64;
use stickycas_proto::names::InstanceId;
use tokio::time::Instant;

use crate::plan::{InstancePlan, Load, RoundPlan, millis};
use crate::violation::ViolationKind;

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
    /// Whether partitions of the network are among them.
    pub has_partitions: bool,
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
    /// Nothing comes through between a server and etcd until its lease has ended; its clients reach it.
    ServerCutFromEtcd,
    /// The same, and its lease ends at once: others own its shards while it still believes in its lease.
    ServerDeposed,
    /// Nothing comes through between a server and anybody else, until its lease has ended.
    ServerCutOff,
    /// What etcd sends to a server does not come through; what the server sends does.
    ServerReceivesNothing,
    /// Nothing comes through between a member of etcd and the others, or any server.
    MemberCutOff,
    /// What the others and the servers send to a member of etcd does not come through; what it sends does.
    MemberReceivesNothing,
}

/// What a round has in every ten faults: these, and one of the others in turn.
type FaultMix = ([FaultKind; 9], [FaultKind; 4]);

impl FaultKind {
    /// Those of servers are half of all.
    const WITH_MAJORITY: FaultMix = (
        [
            Self::ServerKilled,
            Self::ServerPaused,
            Self::MemberKilled,
            Self::ServerStopped,
            Self::ServerKilled,
            Self::EtcdPaused,
            Self::ServerKilled,
            Self::MemberPaused,
            Self::ServerPaused,
        ],
        [Self::ServerStopped; 4],
    );
    const WITH_ONE_MEMBER: FaultMix = (
        [
            Self::ServerKilled,
            Self::ServerPaused,
            Self::EtcdKilled,
            Self::ServerStopped,
            Self::ServerKilled,
            Self::EtcdPaused,
            Self::ServerKilled,
            Self::ServerPaused,
            Self::ServerKilled,
        ],
        [Self::ServerStopped; 4],
    );
    /// Each partition.
    const PARTITIONS_WITH_MAJORITY: FaultMix = (
        [
            Self::ServerKilled,
            Self::ServerPaused,
            Self::ServerStopped,
            Self::ServerCutFromEtcd,
            Self::ServerDeposed,
            Self::ServerCutOff,
            Self::ServerReceivesNothing,
            Self::MemberCutOff,
            Self::MemberReceivesNothing,
        ],
        [Self::MemberKilled, Self::EtcdPaused, Self::ServerKilled, Self::MemberPaused],
    );
    const PARTITIONS_WITH_ONE_MEMBER: FaultMix = (
        [
            Self::ServerKilled,
            Self::ServerPaused,
            Self::ServerStopped,
            Self::ServerCutFromEtcd,
            Self::ServerDeposed,
            Self::ServerCutOff,
            Self::ServerReceivesNothing,
            Self::EtcdKilled,
            Self::ServerKilled,
        ],
        [Self::MemberCutOff, Self::EtcdPaused, Self::MemberReceivesNothing, Self::ServerPaused],
    );

    /// The kinds of a round of this seed, not in their order.
    fn of_round(seed: u64, size: ClusterSize) -> Vec<Self> {
        let (each, others) = match (size.has_partitions, size.members > 2) {
            (false, true) => Self::WITH_MAJORITY,
            (false, false) => Self::WITH_ONE_MEMBER,
            (true, true) => Self::PARTITIONS_WITH_MAJORITY,
            (true, false) => Self::PARTITIONS_WITH_ONE_MEMBER,
        };
        let first = others.into_iter().cycle().skip((seed % 4) as usize);
        first.flat_map(|other| each.into_iter().chain([other])).take(size.faults).collect()
    }

    /// Whether it befalls a server, and no member of etcd.
    const fn is_of_server(self) -> bool {
        match self {
            Self::ServerKilled
            | Self::ServerPaused
            | Self::ServerStopped
            | Self::ServerCutFromEtcd
            | Self::ServerDeposed
            | Self::ServerCutOff
            | Self::ServerReceivesNothing => true,
            Self::MemberKilled
            | Self::MemberPaused
            | Self::EtcdKilled
            | Self::EtcdPaused
            | Self::MemberCutOff
            | Self::MemberReceivesNothing => false,
        }
    }

    /// Whether the server of such a fault is asked for instances whose shards others have by then.
    pub(crate) const fn asks_deposed(self) -> bool {
        matches!(
            self,
            Self::ServerPaused | Self::ServerCutFromEtcd | Self::ServerDeposed | Self::ServerReceivesNothing
        )
    }
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
            Self::ServerCutFromEtcd => "server cut off from etcd, not from clients",
            Self::ServerDeposed => "the same, with its lease ended at once",
            Self::ServerCutOff => "server cut off from all",
            Self::ServerReceivesNothing => "server receives nothing from etcd",
            Self::MemberCutOff => "member of etcd cut off from all",
            Self::MemberReceivesNothing => "member of etcd receives nothing",
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
    /// Whether others take the shards of its server before it is over.
    pub(crate) fn outlasts(&self, lease: Duration) -> bool {
        match self.kind {
            FaultKind::ServerDeposed => true,
            // It hands them over, and comes back soon.
            FaultKind::ServerStopped => false,
            kind => kind.is_of_server() && self.lasts > lease,
        }
    }

    fn draw(kind: FaultKind, size: ClusterSize, random: &mut SplitMix64) -> Self {
        let lease = u64::try_from(size.lease.as_millis()).unwrap_or(u64::MAX);
        let (least, most) = match kind {
            FaultKind::ServerKilled => (0, 2 * lease),
            FaultKind::ServerPaused
            | FaultKind::ServerCutFromEtcd
            | FaultKind::ServerDeposed
            | FaultKind::ServerCutOff
            | FaultKind::ServerReceivesNothing => (lease + lease / 2, 3 * lease),
            FaultKind::ServerStopped => (0, lease / 2),
            FaultKind::MemberKilled
            | FaultKind::MemberPaused
            | FaultKind::MemberCutOff
            | FaultKind::MemberReceivesNothing => (200, 4_000),
            FaultKind::EtcdKilled | FaultKind::EtcdPaused => (300, 2 * lease),
        };
        Self {
            kind,
            target: random.index(if kind.is_of_server() { size.servers } else { size.members }),
            // A server that has no shards yet cannot lose them.
            is_alone: random.below(3) > 0 || kind == FaultKind::ServerDeposed,
            after: millis(random, 100, 1_500),
            lasts: millis(random, least, most),
        }
    }
}

/// A fault that has hit a server.
#[derive(Clone)]
pub struct Hit {
    /// What hit it.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// Whether others had shards of it when it went on or was started again.
    pub is_deposed: bool,
    /// What it told then, when others had its shards.
    pub stale: Stale,
    owned: Arc<dyn Fn(InstanceId) -> bool + Send + Sync>,
}

impl Hit {
    /// A fault of this kind. `owned`: whether the server owned an instance then.
    pub fn new(
        kind: FaultKind,
        at: Instant,
        is_deposed: bool,
        owned: impl Fn(InstanceId) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { kind, at, is_deposed, stale: Stale::default(), owned: Arc::new(owned) }
    }

    /// Whether the server owned this instance.
    #[must_use]
    pub fn owned(&self, id: InstanceId) -> bool {
        (self.owned)(id)
    }
}

impl fmt::Debug for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, at, is_deposed, stale, owned: _ } = self;
        let mut shown = f.debug_struct("Hit");
        shown.field("kind", kind).field("at", at).field("is_deposed", is_deposed).field("stale", stale);
        shown.finish_non_exhaustive()
    }
}

/// What a server told that others had deposed.
#[derive(Clone, Debug, Default)]
pub struct Stale {
    /// Get and List, so many times.
    pub asked: u64,
    /// What it told that was old.
    pub told: Vec<(ViolationKind, String)>,
}

impl Stale {
    /// Adds what it told else.
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.told.extend(other.told);
    }
}

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

/// Somebody is waited for in vain, as a rule once: it begins so early that the round does not last longer for that.
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
