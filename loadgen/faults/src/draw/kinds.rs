//! The kinds of faults of a cluster: which are drawn for a round, and their steps.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stickycas_model::random::SplitMix64;

use super::millis;
use crate::plan::{Action, Service, Step, When};

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
    const ALL: [Self; 13] = [
        Self::ServerKilled,
        Self::ServerPaused,
        Self::ServerStopped,
        Self::MemberKilled,
        Self::MemberPaused,
        Self::EtcdKilled,
        Self::EtcdPaused,
        Self::ServerCutFromEtcd,
        Self::ServerDeposed,
        Self::ServerCutOff,
        Self::ServerReceivesNothing,
        Self::MemberCutOff,
        Self::MemberReceivesNothing,
    ];
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

impl FaultKind {
    /// The kind of the fault of a step, in a cluster with so many members of etcd; `None`: the step is none.
    #[must_use]
    pub fn of(step: &Step, members: usize) -> Option<Self> {
        let is_of_server = matches!(step.services.first()?, Service::ServerOfCluster(_));
        let hits_all = step.services.len() == members;
        let fits = |kind: &Self| {
            let hits = match kind {
                Self::EtcdKilled | Self::EtcdPaused => hits_all,
                Self::MemberKilled | Self::MemberPaused => !hits_all,
                _ => step.services.len() == 1,
            };
            hits && kind.is_of_server() == is_of_server
                && kind.operation() == (step.action, step.network.as_deref())
        };
        Self::ALL.into_iter().find(fits).filter(|_| step.lasts.is_some())
    }

    /// What is done, and from which network a server or member is cut off by it.
    const fn operation(self) -> (Action, Option<&'static str>) {
        match self {
            Self::ServerKilled | Self::MemberKilled | Self::EtcdKilled => (Action::Kill, None),
            Self::ServerPaused | Self::MemberPaused | Self::EtcdPaused => (Action::Pause, None),
            Self::ServerStopped => (Action::Stop, None),
            Self::ServerCutFromEtcd => (Action::Disconnect, Some("etcd")),
            Self::ServerDeposed => (Action::Depose, Some("etcd")),
            Self::ServerCutOff | Self::MemberCutOff => (Action::Disconnect, None),
            Self::ServerReceivesNothing => (Action::DropIncoming, Some("etcd")),
            Self::MemberReceivesNothing => (Action::DropIncoming, None),
        }
    }

    /// Whether others take the shards of its server before it is over.
    pub(crate) fn outlasts(self, lasts: Duration, lease: Duration) -> bool {
        match self {
            Self::ServerDeposed => true,
            // It hands them over, and comes back soon.
            Self::ServerStopped => false,
            kind => kind.is_of_server() && lasts > lease,
        }
    }

    /// A fault of this kind.
    pub(crate) fn draw(self, size: ClusterSize, random: &mut SplitMix64) -> Step {
        let lease = u64::try_from(size.lease.as_millis()).unwrap_or(u64::MAX);
        let (least, most) = match self {
            Self::ServerKilled => (0, 2 * lease),
            Self::ServerPaused
            | Self::ServerCutFromEtcd
            | Self::ServerDeposed
            | Self::ServerCutOff
            | Self::ServerReceivesNothing => (lease + lease / 2, 3 * lease),
            Self::ServerStopped => (0, lease / 2),
            Self::MemberKilled | Self::MemberPaused | Self::MemberCutOff | Self::MemberReceivesNothing => {
                (200, 4_000)
            }
            Self::EtcdKilled | Self::EtcdPaused => (300, 2 * lease),
        };
        let of_server = self.is_of_server();
        let target = random.index(if of_server { size.servers } else { size.members });
        // A server that has no shards yet cannot lose them.
        let is_alone = random.below(3) > 0 || self == Self::ServerDeposed;
        let after = millis(random, 100, 1_500);
        let lasts = millis(random, least, most);
        let service = if of_server { Service::server_of_cluster } else { Service::etcd };
        let services = match self {
            Self::EtcdKilled | Self::EtcdPaused => (0..size.members).map(service).collect(),
            _ => vec![service(target)],
        };
        let (action, network) = self.operation();
        let when = if is_alone { When::Served(after) } else { When::After(after) };
        Step { network: network.map(str::to_owned), ..Step::lasting(when, action, services, lasts) }
    }
}
