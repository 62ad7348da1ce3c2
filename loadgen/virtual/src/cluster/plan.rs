//! The plan of a seed: the round of the kill test for a cluster, and the disturbances of its network.

use std::time::Duration;

use stickycas_cluster::model::Faults;
use stickycas_faults::{Action, ClusterSize, Load, RoundPlan, Waiting, When};
use stickycas_model::random::SplitMix64;

use super::names::Contest;
use crate::plan::{Disturbance, ServerLimits, kill_clients, millis};

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    /// Clients, and the faults of servers and etcd.
    pub(crate) round: RoundPlan,
    pub(super) size: ClusterSize,
    /// The longest delay of a message between clients and servers.
    pub(super) slowest: Duration,
    /// Between servers and etcd: delays, requests and answers that are lost.
    pub(super) etcd: Faults,
    pub(super) shards: u32,
    /// The disturbances of the connections between clients and each server, in order of time.
    pub(super) disturbances: Vec<Vec<(Duration, Disturbance)>>,
    /// Names that several creators want.
    pub(super) contests: Vec<Contest>,
    /// When etcd is full, and for how long.
    pub(super) full: Vec<(Duration, Duration)>,
    pub(super) limits: ServerLimits,
}

/// Small, so that a run takes little; many seeds make up for it.
const LOAD: Load = Load {
    instances: 60,
    processes: 6,
    // Virtual time costs little. Longer than all disturbances together.
    waiting: Waiting { in_vain: Duration::from_secs(60), otherwise: Duration::from_secs(600) },
};
/// Shorter than in real clusters, so that a run takes less.
const LEASE: Duration = Duration::from_secs(1);
/// Each kind that the kill test has for a cluster.
const FAULTS: usize = 10;
/// Disturbances begin in this time, in milliseconds.
const DISTURBED: u64 = 40_000;
/// A client that is killed is killed within this time, in milliseconds: the instances go slowly.
const CLIENT_KILLED: u64 = 3_000;
/// Names that several creators want.
const CONTESTS: usize = 4;
/// How often etcd is full at most, and for how long at most, in milliseconds.
const FULL: u64 = 3;
const LONGEST_FULL: u64 = 3_000;

impl ClusterPlan {
    /// The plan of this seed with so many servers.
    pub(crate) fn draw(seed: u64, servers: usize) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x7669_636c);
        let size =
            ClusterSize { servers, members: 1, lease: LEASE, faults: FAULTS, has_partitions: servers > 1 };
        let mut round = RoundPlan::cluster(seed, LOAD, size);
        kill_clients(&mut round, CLIENT_KILLED, random);
        for step in &mut round.steps {
            // Most follow each other closely: a server that has come back waits for many leases until it has
            // shards again, and few instances would be under way by then. One that has no shards cannot lose
            // them.
            let is_alone = step.action == Action::Depose || random.below(4) == 0;
            if let (When::Served(after), false) = (step.when, is_alone) {
                step.when = When::After(after);
            }
        }
        let delay = Duration::from_millis([1, 10, 80][random.index(3)]);
        let etcd = Faults {
            delay,
            lost: [0, 10, 40][random.index(3)],
            time_limit: Duration::from_millis(500),
            lease_slack: Duration::from_millis(300),
        };
        Self {
            round,
            size,
            slowest: Duration::from_millis([2, 20, 200][random.index(3)]),
            etcd,
            shards: [6, 12, 24][random.index(3)],
            disturbances: (0..servers).map(|_| Disturbance::draw_some(DISTURBED, random)).collect(),
            contests: (0..CONTESTS).map(|number| Contest::draw(number, DISTURBED, random)).collect(),
            limits: ServerLimits::draw(&[0, 64 * 1_024 * 1_024], random),
            full: {
                let times = random.below(FULL + 1);
                // Each in a part of the time of its own.
                let part = DISTURBED / times.max(1);
                let begins = |time| Duration::from_millis(time * part);
                (0..times)
                    .map(|time| {
                        let after = millis(random, part - LONGEST_FULL);
                        (begins(time) + after, millis(random, LONGEST_FULL))
                    })
                    .collect()
            },
        }
    }
}
