//! The plan of a seed: the round of the kill test, and the disturbances of the network and of clients.

use std::time::Duration;

use stickycas_faults::{CREATOR, Load, RoundPlan, Waiting};
use stickycas_model::random::SplitMix64;
use stickycas_server::Config;

use crate::network::Direction;

/// Connections of clients, that of the probe, and that of the witness.
pub(crate) const HOSTS: usize = stickycas_faults::CONNECTIONS + 2;
/// The connection of the probe, which asks whether the server serves; it is never disturbed.
pub(crate) const PROBE: usize = HOSTS - 2;
/// The connection of the witness, which has no delay either.
pub(crate) const WITNESS: usize = HOSTS - 1;

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Clients and kills.
    pub(crate) round: RoundPlan,
    /// The longest delay of a message.
    pub(crate) slowest: Duration,
    /// The longest commit, mostly.
    pub(crate) slowest_commit: Duration,
    /// The disturbances of the network, in order of time.
    pub(crate) disturbances: Vec<(Duration, Disturbance)>,
    pub(crate) limits: ServerLimits,
}

/// The drawn limits of servers.
#[derive(Clone, Debug)]
pub(crate) struct ServerLimits {
    /// Bytes of the log from which on a server writes checkpoints.
    pub(crate) log_tail_bytes: usize,
    /// Bytes of steps that may wait for their commit.
    pub(crate) uncommitted_bytes: usize,
    /// How long patience stands still after a restart.
    pub(crate) rejoin: Duration,
}

impl ServerLimits {
    /// Some, with one of these sizes of the log.
    pub(crate) fn draw(log_tail_bytes: &[usize], random: &mut SplitMix64) -> Self {
        Self {
            log_tail_bytes: log_tail_bytes[random.index(log_tail_bytes.len())],
            uncommitted_bytes: [2_048, 64 * 1_024 * 1_024][random.index(2)],
            rejoin: millis(random, 6_000),
        }
    }

    /// The configuration of a server.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::insecure([CREATOR.to_owned()]);
        config.limits.log_tail_bytes = self.log_tail_bytes;
        config.limits.uncommitted_bytes = self.uncommitted_bytes;
        config.limits.rejoin = self.rejoin;
        config.drain = Duration::from_secs(1);
        config
    }
}

/// A disturbance of the connections of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disturbance {
    Reset(usize),
    Hold(usize, Direction, Duration),
    /// As `Hold`, of all hosts.
    HoldAll(Direction, Duration),
}

/// Small, so that a run takes little; many seeds make up for it.
const LOAD: Load = Load {
    instances: 16,
    processes: 6,
    // Virtual time costs nothing. Longer than all disturbances together.
    waiting: Waiting { in_vain: Duration::from_secs(90), otherwise: Duration::from_secs(180) },
};
/// Disturbances begin in this time, in which the kills fall too.
const DISTURBED: u64 = 5_000;
/// A client that is killed is killed within this time, in milliseconds.
const CLIENT_KILLED: u64 = 300;

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x7669_7274);
        let mut round = RoundPlan::draw(seed, LOAD);
        kill_clients(&mut round, CLIENT_KILLED, random);
        let disturbances = Disturbance::draw_some(DISTURBED, random);
        Self {
            round,
            slowest: Duration::from_millis([2, 20, 200][random.index(3)]),
            slowest_commit: Duration::from_millis([1, 10, 50][random.index(3)]),
            disturbances,
            limits: ServerLimits::draw(&[4_096, 64 * 1_024, 64 * 1_024 * 1_024], random),
        }
    }
}

/// In a quarter of the instances a correct process's client is killed, within so many milliseconds.
pub(crate) fn kill_clients(round: &mut RoundPlan, within: u64, random: &mut SplitMix64) {
    for instance in &mut round.instances {
        let correct: Vec<_> = instance.truth.correct().collect();
        if correct.len() > 1 && random.below(4) == 0 {
            let process = correct[random.index(correct.len())];
            instance.killed_clients.insert(process, millis(random, within));
            instance.truth = instance.truth.clone().with_faulty([process].into());
        }
    }
}

impl Disturbance {
    /// Some within so many milliseconds, in order of time.
    pub(crate) fn draw_some(within: u64, random: &mut SplitMix64) -> Vec<(Duration, Self)> {
        let drawn = (0..random.below(12)).map(|_| (millis(random, within), Self::draw(random)));
        let mut disturbances: Vec<_> = drawn.collect();
        disturbances.sort_by_key(|(at, _)| *at);
        disturbances
    }

    fn draw(random: &mut SplitMix64) -> Self {
        let host = random.index(PROBE);
        let direction = [Direction::ToServer, Direction::ToClient, Direction::Both][random.index(3)];
        let time = millis(random, 3_000);
        match random.below(6) {
            0 => Self::HoldAll(direction, time),
            1 | 2 => Self::Hold(host, direction, time),
            _ => Self::Reset(host),
        }
    }
}

/// Up to so many milliseconds.
pub(crate) fn millis(random: &mut SplitMix64, most: u64) -> Duration {
    Duration::from_micros(random.below(most * 1_000))
}
