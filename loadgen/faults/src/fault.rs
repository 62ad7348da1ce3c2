//! The faults of a cluster, drawn from the seed of a round, and the instances that meet them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_model::random::SplitMix64;
use stickycas_proto::names::InstanceId;
use tokio::time::Instant;

use crate::violation::ViolationKind;

/// The servers of a cluster and its etcd.
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

/// A kind of fault of a cluster.
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
    /// Messages between a server and etcd are lost until its lease has ended; its clients reach it.
    ServerCutFromEtcd,
    /// The same, and its lease ends at once: others own its shards while it still believes in its lease.
    ServerDeposed,
    /// Messages between a server and all others are lost until its lease has ended.
    ServerCutOff,
    /// Messages from etcd to a server are lost; messages of the server arrive.
    ServerReceivesNothing,
    /// Messages between a member of etcd and the others, or any server, are lost.
    MemberCutOff,
    /// Messages of the others and of servers to a member of etcd are lost; messages of the member arrive.
    MemberReceivesNothing,
}

/// The mix of every ten faults of a round: these nine, and one of the other four in turn.
pub(crate) type FaultMix = ([FaultKind; 9], [FaultKind; 4]);

impl FaultKind {
    /// Those of servers are half of all.
    pub(crate) const WITH_MAJORITY: FaultMix = (
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
    pub(crate) const WITH_ONE_MEMBER: FaultMix = (
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
    pub(crate) fn of_round(seed: u64, size: ClusterSize) -> Vec<Self> {
        let (each, others) = match (size.has_partitions, size.members > 2) {
            (false, true) => Self::WITH_MAJORITY,
            (false, false) => Self::WITH_ONE_MEMBER,
            (true, true) => Self::PARTITIONS_WITH_MAJORITY,
            (true, false) => Self::PARTITIONS_WITH_ONE_MEMBER,
        };
        let first = others.into_iter().cycle().skip((seed % 4) as usize);
        first.flat_map(|other| each.into_iter().chain([other])).take(size.faults).collect()
    }

    /// Whether it hits a server, and no member of etcd.
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

    /// Whether the server of such a fault is asked for instances whose shards other servers own by then.
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
    /// Its kind.
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

    pub(crate) fn draw(kind: FaultKind, size: ClusterSize, random: &mut SplitMix64) -> Self {
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
    /// The kind of the fault.
    pub kind: FaultKind,
    /// When.
    pub at: Instant,
    /// Whether others had shards of it when it went on or was started again.
    pub is_deposed: bool,
    /// Its stale answers at that time, if others had its shards.
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

/// The answers of a deposed server.
#[derive(Clone, Debug, Default)]
pub struct Stale {
    /// The number of Get and List requests.
    pub asked: u64,
    /// The stale answers.
    pub told: Vec<(ViolationKind, String)>,
}

impl Stale {
    /// Adds the answers to other requests.
    pub fn add(&mut self, other: Self) {
        self.asked += other.asked;
        self.told.extend(other.told);
    }
}

pub(crate) fn millis(random: &mut SplitMix64, least: u64, most: u64) -> Duration {
    Duration::from_micros(1_000 * least + random.below(1_000 * most.saturating_sub(least).max(1)))
}
