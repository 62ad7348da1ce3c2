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

impl FaultKind {
    /// Seven of every ten faults of a round.
    const SEVEN: [Self; 7] = [
        Self::ServerKilled,
        Self::ServerPaused,
        Self::ServerStopped,
        Self::ServerCutFromEtcd,
        Self::ServerDeposed,
        Self::ServerCutOff,
        Self::ServerReceivesNothing,
    ];

    /// The kinds of a round of this seed, not in their order.
    pub(super) fn of_round(seed: u64, size: ClusterSize) -> Vec<Self> {
        let (two, others) = if size.members > 2 {
            (
                [Self::MemberCutOff, Self::MemberReceivesNothing],
                [Self::MemberKilled, Self::EtcdPaused, Self::ServerKilled, Self::MemberPaused],
            )
        } else {
            (
                [Self::EtcdKilled, Self::ServerKilled],
                [Self::MemberCutOff, Self::EtcdPaused, Self::MemberReceivesNothing, Self::ServerPaused],
            )
        };
        let first = others.into_iter().cycle().skip((seed % 4) as usize);
        let kinds = first.flat_map(|other| Self::SEVEN.into_iter().chain(two).chain([other]));
        let possible = |kind: Self| if size.has_partitions { kind } else { kind.without_partition() };
        kinds.take(size.faults).map(possible).collect()
    }

    /// The fault that takes the place of a partition where there can be none.
    const fn without_partition(self) -> Self {
        match self {
            Self::ServerCutFromEtcd | Self::ServerDeposed => Self::ServerKilled,
            Self::ServerCutOff => Self::ServerPaused,
            Self::ServerReceivesNothing => Self::EtcdPaused,
            Self::MemberCutOff => Self::MemberKilled,
            Self::MemberReceivesNothing => Self::MemberPaused,
            kind => kind,
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
        f.pad(self.row().1)
    }
}

/// Whom a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hits {
    Server,
    Member,
    /// All members.
    Etcd,
}

/// A kind, its name for people, whom it hits, what is done, and from which network somebody is cut off by it.
type Row = (FaultKind, &'static str, Hits, Action, Option<&'static str>);

use FaultKind as Kind;

#[rustfmt::skip]
const ROWS: [Row; 13] = [
    (Kind::ServerKilled, "SIGKILL of a server", Hits::Server, Action::Kill, None),
    (Kind::ServerPaused, "SIGSTOP of a server, past its lease", Hits::Server, Action::Pause, None),
    (Kind::ServerStopped, "SIGTERM of a server", Hits::Server, Action::Stop, None),
    (Kind::MemberKilled, "SIGKILL of a member of etcd", Hits::Member, Action::Kill, None),
    (Kind::MemberPaused, "SIGSTOP of a member of etcd", Hits::Member, Action::Pause, None),
    (Kind::EtcdKilled, "SIGKILL of the only member of etcd", Hits::Etcd, Action::Kill, None),
    (Kind::EtcdPaused, "SIGSTOP of all of etcd", Hits::Etcd, Action::Pause, None),
    (Kind::ServerCutFromEtcd, "server cut off from etcd, not from clients", Hits::Server, Action::Disconnect, Some("etcd")),
    (Kind::ServerDeposed, "the same, with its lease ended at once", Hits::Server, Action::Depose, Some("etcd")),
    (Kind::ServerCutOff, "server cut off from all", Hits::Server, Action::Disconnect, None),
    (Kind::ServerReceivesNothing, "server receives nothing from etcd", Hits::Server, Action::DropIncoming, Some("etcd")),
    (Kind::MemberCutOff, "member of etcd cut off from all", Hits::Member, Action::Disconnect, None),
    (Kind::MemberReceivesNothing, "member of etcd receives nothing", Hits::Member, Action::DropIncoming, None),
];

impl FaultKind {
    /// The kind of the fault of a step, in a cluster with so many members of etcd; `None`: the step is none.
    #[must_use]
    pub fn of(step: &Step, members: usize) -> Option<Self> {
        let is_of_server = matches!(step.services.first()?, Service::ServerOfCluster(_));
        let number = step.services.len();
        let fits = |(_, _, hits, action, network): &&Row| {
            let is_hit = match hits {
                Hits::Server => is_of_server && number == 1,
                Hits::Member => !is_of_server && number == 1,
                Hits::Etcd => !is_of_server && number == members,
            };
            is_hit && (*action, *network) == (step.action, step.network.as_deref())
        };
        // With one member a fault of it is one of all of etcd, if there is such a kind.
        let row = ROWS.iter().filter(fits).max_by_key(|row| row.2 == Hits::Etcd)?;
        step.lasts.map(|_| row.0)
    }

    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.0 == self).expect("each kind has a row")
    }

    /// Whether others take the shards of its server before it is over.
    pub(crate) fn outlasts(self, lasts: Duration, lease: Duration) -> bool {
        match self {
            Self::ServerDeposed => true,
            // It hands them over, and comes back soon.
            Self::ServerStopped => false,
            kind => kind.row().2 == Hits::Server && lasts > lease,
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
        let (_, _, hits, action, network) = *self.row();
        let target = random.index(if hits == Hits::Server { size.servers } else { size.members });
        // A server that has no shards yet cannot lose them.
        let is_alone = random.below(3) > 0 || self == Self::ServerDeposed;
        let after = millis(random, 100, 1_500);
        let lasts = millis(random, least, most);
        let services = match hits {
            Hits::Server => vec![Service::server_of_cluster(target)],
            Hits::Member => vec![Service::etcd(target)],
            Hits::Etcd => (0..size.members).map(Service::etcd).collect(),
        };
        let when = if is_alone { When::Served(after) } else { When::After(after) };
        Step { network: network.map(str::to_owned), ..Step::lasting(when, action, services, lasts) }
    }
}
