//! The changes that are simulated, and what becomes of each.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::Cluster;
use super::model::Times;
use super::world::World;
use crate::summary::quantile;

/// Servers that die or join together.
const SEVERAL: usize = 10;

/// What became of a change; see the module above.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    pub(super) change: &'static str,
    pub(super) moves: usize,
    pub(super) least: usize,
    pub(super) spread: usize,
    pub(super) claims_lost: usize,
    pub(super) placements: usize,
    pub(super) pauses: usize,
    pub(super) pause_median_s: Seconds,
    pub(super) pause_p99_s: Seconds,
    pub(super) pause_worst_s: Seconds,
    pub(super) quiet_s: Seconds,
}

/// A time, in the raw results in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.0.as_secs_f64())
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_secs_f64().serialize(serializer)
    }
}

/// A change of a cluster in which every shard is served; returns the least moves. It has settled in the end.
type Change = fn(&mut World, &Cluster, &Times) -> anyhow::Result<usize>;

const CHANGES: [(&str, Change); 6] = [
    ("one dies", |world, _, _| die(world, 1)),
    ("ten die at once", |world, _, _| die(world, SEVERAL)),
    ("one is drained", |world, _, _| {
        let takers = world.takers();
        let leaving = takers[world.draw_index(takers.len())];
        drain(world, &[leaving])
    }),
    ("one joins", |world, cluster, _| join(world, &new(cluster, 1))),
    ("ten join at once", |world, cluster, _| join(world, &new(cluster, SEVERAL))),
    ("rolling restart", rolling_restart),
];

/// The number of clusters of etcd, and what became of the start and of each change.
pub(super) fn all(cluster: &Cluster, times: &Times) -> anyhow::Result<(usize, Vec<Outcome>)> {
    let servers = cluster.servers as usize;
    let (shards, per_etcd) = (cluster.shards as usize, cluster.shards_per_etcd as usize);
    let mut world = World::new(servers + SEVERAL, shards, per_etcd, times.clone(), cluster.seed);
    let starting: Vec<usize> = (0..servers).collect();
    let mut outcomes = vec![outcome("start", &mut world, |world| join(world, &starting))?];
    for (name, change) in CHANGES {
        let mut world = world.clone();
        outcomes.push(outcome(name, &mut world, |world| change(world, cluster, times))?);
    }
    Ok((world.etcds(), outcomes))
}

fn outcome(
    change: &'static str,
    world: &mut World,
    make: impl FnOnce(&mut World) -> anyhow::Result<usize>,
) -> anyhow::Result<Outcome> {
    let begin = world.now();
    let least = make(world)?;
    let tally = world.take_tally();
    let pause = |at| Seconds(quantile(tally.pauses.clone(), at).unwrap_or_default());
    Ok(Outcome {
        change,
        moves: tally.moves,
        least,
        spread: world.spread(),
        claims_lost: tally.claims_lost,
        placements: tally.placements,
        pauses: tally.pauses.len(),
        pause_median_s: pause(0.5),
        pause_p99_s: pause(0.99),
        pause_worst_s: pause(1.0),
        quiet_s: Seconds(tally.last_served.saturating_sub(begin)),
    })
}

/// Servers that have not run yet.
fn new(cluster: &Cluster, count: usize) -> Vec<usize> {
    let first = cluster.servers as usize;
    (first..first + count).collect()
}

fn join(world: &mut World, joining: &[usize]) -> anyhow::Result<usize> {
    let least = world.least_moves(&[world.takers(), joining.to_vec()].concat());
    for &server in joining {
        world.join(server);
    }
    world.settle()?;
    Ok(least)
}

/// As many as are given, but one server stays.
fn die(world: &mut World, count: usize) -> anyhow::Result<usize> {
    let mut left = world.takers();
    let mut dying = Vec::new();
    for _ in 0..count.min(left.len() - 1) {
        dying.push(left.swap_remove(world.draw_index(left.len())));
    }
    let least = world.least_moves(&left);
    for server in dying {
        world.kill(server);
    }
    world.settle()?;
    Ok(least)
}

fn drain(world: &mut World, leaving: &[usize]) -> anyhow::Result<usize> {
    let stay: Vec<usize> = world.takers().into_iter().filter(|server| !leaving.contains(server)).collect();
    let least = world.least_moves(&stay);
    for &server in leaving {
        world.drain(server);
    }
    world.settle()?;
    for &server in leaving {
        world.stop(server)?;
    }
    Ok(least)
}

/// Some servers at a time are drained, are away, and join again; the next ones wait until every shard is served.
fn rolling_restart(world: &mut World, cluster: &Cluster, times: &Times) -> anyhow::Result<usize> {
    let servers = world.takers();
    let together = (cluster.restart_together as usize).min(servers.len().saturating_sub(1)).max(1);
    let mut least = 0;
    for restarting in servers.chunks(together) {
        least += drain(world, restarting)?;
        world.wait(times.restart);
        least += join(world, restarting)?;
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn times() -> Times {
        let matches = Times::augment_args(clap::Command::new("test")).get_matches_from(["test"]);
        Times::from_arg_matches(&matches).unwrap()
    }

    fn cluster(servers: u32, shards: u32, shards_per_etcd: u32, seed: u64) -> Cluster {
        Cluster { servers, shards, shards_per_etcd, restart_together: 2, seed }
    }

    fn of<'a>(outcomes: &'a [Outcome], change: &str) -> &'a Outcome {
        outcomes.iter().find(|outcome| outcome.change == change).unwrap()
    }

    #[test]
    fn a_seed_repeats_every_figure() {
        let run = |seed| all(&cluster(7, 100, 40, seed), &times()).unwrap();
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert_eq!(run(3).0, 3);
    }

    #[test]
    fn every_shard_is_even_in_the_end_and_few_move() {
        for seed in 0..20 {
            let (_, outcomes) = all(&cluster(12, 100, 30, seed), &times()).unwrap();
            assert_eq!(outcomes.len(), CHANGES.len() + 1);
            for outcome in &outcomes {
                assert!(outcome.spread <= 1, "seed {seed}: {outcome:?}");
                assert!(outcome.moves >= outcome.least, "seed {seed}: {outcome:?}");
                assert!(outcome.pauses >= outcome.moves, "seed {seed}: {outcome:?}");
            }
            let (died, joined) = (of(&outcomes, "one dies"), of(&outcomes, "one joins"));
            assert!((8..=9).contains(&died.least), "seed {seed}: {died:?}");
            assert_eq!(joined.least, 7, "seed {seed}");
        }
    }

    #[test]
    fn a_dead_servers_shards_wait_for_the_lease() {
        for seed in 0..20 {
            let (_, outcomes) = all(&cluster(5, 50, 50, seed), &times()).unwrap();
            let lease = times().lease;
            let died = of(&outcomes, "one dies");
            assert!(died.pause_median_s.0 >= lease * 2 / 3, "{died:?}");
            // The rest of a second: looking for leases that are over, telling, claims, reading back.
            assert!(died.pause_worst_s.0 <= lease + Duration::from_secs(1), "{died:?}");
            let drained = of(&outcomes, "one is drained");
            assert!(drained.pause_worst_s.0 < lease / 2, "{drained:?}");
        }
    }

    #[test]
    fn a_slower_etcd_makes_pauses_longer() {
        let slow = Times { transactions_per_second: 20, ..times() };
        let run = |times: &Times| all(&cluster(5, 50, 50, 1), times).unwrap().1;
        let (fast, slow) = (run(&times()), run(&slow));
        for (fast, slow) in fast.iter().zip(&slow) {
            assert!(fast.pause_worst_s.0 < slow.pause_worst_s.0, "{fast:?} {slow:?}");
        }
    }

    #[test]
    fn who_waits_for_others_to_start_claims_less_in_vain() {
        let lost = |times: &Times| {
            let (_, outcomes) = all(&cluster(30, 300, 100, 1), times).unwrap();
            of(&outcomes, "start").claims_lost
        };
        let waiting = Times { settle: Duration::from_secs(1), ..times() };
        assert!(lost(&times()) > 0);
        assert_eq!(lost(&waiting), 0);
    }

    #[test]
    fn of_two_servers_one_owns_all_when_the_other_dies() {
        let (etcds, outcomes) = all(&cluster(2, 6, 10, 1), &times()).unwrap();
        assert_eq!(etcds, 1);
        assert_eq!(of(&outcomes, "one dies").moves, 3);
        assert_eq!(of(&outcomes, "ten die at once").moves, 3);
    }
}
