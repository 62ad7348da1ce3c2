//! The changes that are simulated, and the outcome of each.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::Cluster;
use super::model::Times;
use super::simulation::{Simulation, Tally};
use crate::summary::quantile;

/// Servers that die or join together.
const SEVERAL: usize = 10;

/// The outcome of a change; [`super`] explains the counts. Of a change that is repeated, each count is the
/// largest of all repetitions.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Outcome {
    pub(super) change: &'static str,
    pub(super) repetitions: usize,
    pub(super) moves: usize,
    pub(super) least: usize,
    pub(super) spread: usize,
    pub(super) claims_lost: usize,
    pub(super) placements: usize,
    /// Of all repetitions together.
    pub(super) pauses: usize,
    pub(super) pause_median_s: Seconds,
    pub(super) pause_p99_s: Seconds,
    pub(super) pause_worst_s: Seconds,
    /// The median of the longest pauses of all repetitions.
    pub(super) pause_median_worst_s: Seconds,
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
type Change = fn(&mut Simulation, &Cluster, &Times) -> anyhow::Result<usize>;

const CHANGES: [(&str, Change); 6] = [
    ("one dies", |simulation, _, _| die(simulation, 1)),
    ("ten die at once", |simulation, _, _| die(simulation, SEVERAL)),
    ("one is drained", |simulation, _, _| {
        let takers = simulation.takers();
        let leaving = takers[simulation.draw_index(takers.len())];
        drain(simulation, &[leaving])
    }),
    ("one joins", |simulation, cluster, _| join(simulation, &new(cluster, 1))),
    ("ten join at once", |simulation, cluster, _| join(simulation, &new(cluster, SEVERAL))),
    ("rolling restart", rolling_restart),
];

/// The time until etcd ends the lease of a dead server is drawn: it depends on the last renewal of the lease,
/// and on the moments at which etcd looks for leases that are over. So these changes are repeated.
const REPEATED: [&str; 2] = ["one dies", "ten die at once"];

/// The names of all changes.
pub(super) fn names() -> Vec<String> {
    CHANGES.iter().map(|(name, _)| (*name).to_owned()).collect()
}

/// The number of clusters of etcd, and the outcomes of the start and of each wanted change.
pub(super) fn all(
    cluster: &Cluster,
    times: &Times,
    wants: impl Fn(&str) -> bool,
) -> anyhow::Result<(usize, Vec<Outcome>)> {
    let servers = cluster.servers as usize;
    let (shards, per_etcd) = (cluster.shards as usize, cluster.shards_per_etcd as usize);
    let mut simulation = Simulation::new(servers + SEVERAL, shards, per_etcd, times.clone(), cluster.seed);
    let starting: Vec<usize> = (0..servers).collect();
    let started = Repetition::of(&mut simulation, |simulation| join(simulation, &starting))?;
    let mut outcomes = vec![Outcome::of("start", &[started])];
    for (name, change) in CHANGES.into_iter().filter(|(name, _)| wants(name)) {
        let repetitions = if REPEATED.contains(&name) { cluster.deaths } else { 1 };
        let mut all = Vec::new();
        for number in 0..repetitions {
            let mut simulation = simulation.clone();
            if number > 0 {
                simulation.draw_from(cluster.seed ^ (u64::from(number) << 32));
            }
            all.push(Repetition::of(&mut simulation, |simulation| change(simulation, cluster, times))?);
        }
        outcomes.push(Outcome::of(name, &all));
    }
    Ok((simulation.etcds(), outcomes))
}

/// The outcome of one repetition of a change.
#[derive(Debug)]
struct Repetition {
    least: usize,
    spread: usize,
    tally: Tally,
    quiet: Duration,
}

impl Repetition {
    fn of(
        simulation: &mut Simulation,
        make: impl FnOnce(&mut Simulation) -> anyhow::Result<usize>,
    ) -> anyhow::Result<Self> {
        let begin = simulation.now();
        let least = make(simulation)?;
        let tally = simulation.take_tally();
        let quiet = tally.last_served.saturating_sub(begin);
        Ok(Self { least, spread: simulation.spread(), tally, quiet })
    }
}

impl Outcome {
    fn of(change: &'static str, all: &[Repetition]) -> Self {
        let most = |of: fn(&Repetition) -> usize| all.iter().map(of).max().unwrap_or_default();
        let pauses: Vec<Duration> = all.iter().flat_map(|once| once.tally.pauses.iter().copied()).collect();
        let worst = all.iter().filter_map(|once| once.tally.pauses.iter().max().copied()).collect();
        let pause = |at| Seconds(quantile(pauses.clone(), at).unwrap_or_default());
        Self {
            change,
            repetitions: all.len(),
            moves: most(|once| once.tally.moves),
            least: most(|once| once.least),
            spread: most(|once| once.spread),
            claims_lost: most(|once| once.tally.claims_lost),
            placements: most(|once| once.tally.placements),
            pauses: pauses.len(),
            pause_median_s: pause(0.5),
            pause_p99_s: pause(0.99),
            pause_worst_s: pause(1.0),
            pause_median_worst_s: Seconds(quantile(worst, 0.5).unwrap_or_default()),
            quiet_s: Seconds(all.iter().map(|once| once.quiet).max().unwrap_or_default()),
        }
    }
}

/// Servers that have not run yet.
fn new(cluster: &Cluster, count: usize) -> Vec<usize> {
    let first = cluster.servers as usize;
    (first..first + count).collect()
}

fn join(simulation: &mut Simulation, joining: &[usize]) -> anyhow::Result<usize> {
    let least = simulation.least_moves(&[simulation.takers(), joining.to_vec()].concat());
    for &server in joining {
        simulation.join(server);
    }
    simulation.settle()?;
    Ok(least)
}

/// As many as are given, but one server stays.
fn die(simulation: &mut Simulation, count: usize) -> anyhow::Result<usize> {
    let mut left = simulation.takers();
    let mut dying = Vec::new();
    for _ in 0..count.min(left.len() - 1) {
        dying.push(left.swap_remove(simulation.draw_index(left.len())));
    }
    let least = simulation.least_moves(&left);
    for server in dying {
        simulation.kill(server);
    }
    simulation.settle()?;
    Ok(least)
}

fn drain(simulation: &mut Simulation, leaving: &[usize]) -> anyhow::Result<usize> {
    let stay: Vec<usize> =
        simulation.takers().into_iter().filter(|server| !leaving.contains(server)).collect();
    let least = simulation.least_moves(&stay);
    for &server in leaving {
        simulation.drain(server);
    }
    simulation.settle()?;
    for &server in leaving {
        simulation.stop(server)?;
    }
    Ok(least)
}

/// Some servers at a time are drained, are away, and join again; the next ones wait until every shard is
/// served.
fn rolling_restart(simulation: &mut Simulation, cluster: &Cluster, times: &Times) -> anyhow::Result<usize> {
    let servers = simulation.takers();
    let together = (cluster.restart_together as usize).min(servers.len().saturating_sub(1)).max(1);
    let mut least = 0;
    for restarting in servers.chunks(together) {
        least += drain(simulation, restarting)?;
        simulation.wait(times.restart);
        least += join(simulation, restarting)?;
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
        Cluster { servers, shards, shards_per_etcd, restart_together: 2, deaths: 3, seed }
    }

    fn of<'a>(outcomes: &'a [Outcome], change: &str) -> &'a Outcome {
        outcomes.iter().find(|outcome| outcome.change == change).unwrap()
    }

    #[test]
    fn a_seed_repeats_every_figure() {
        let run = |seed| all(&cluster(7, 100, 40, seed), &times(), |_| true).unwrap();
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
        assert_eq!(run(3).0, 3);
    }

    #[test]
    fn every_shard_is_even_in_the_end_and_few_move() {
        for seed in 0..20 {
            let (_, outcomes) = all(&cluster(12, 100, 30, seed), &times(), |_| true).unwrap();
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
            let (_, outcomes) = all(&cluster(5, 50, 50, seed), &times(), |_| true).unwrap();
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
    fn many_deaths_show_a_longer_pause_than_one() {
        let of_deaths = |deaths| {
            let cluster = Cluster { deaths, ..cluster(5, 50, 50, 1) };
            let (_, outcomes) = all(&cluster, &times(), |change| change == "one dies").unwrap();
            assert_eq!(outcomes.len(), 2, "the start and the death");
            outcomes.into_iter().next_back().unwrap()
        };
        let (one, many) = (of_deaths(1), of_deaths(100));
        assert_eq!((one.repetitions, one.pause_worst_s), (1, one.pause_median_worst_s));
        assert_eq!((many.repetitions, many.pauses), (100, 100 * one.pauses));
        assert!(one.pause_worst_s.0 < many.pause_worst_s.0, "{one:?} {many:?}");
        // The lease was kept alive just before a death, and etcd looks for leases that are over half a second
        // later.
        assert!(many.pause_worst_s.0 > times().lease + Duration::from_millis(400), "{many:?}");
        assert!(many.pause_median_worst_s.0 < many.pause_worst_s.0, "{many:?}");
    }

    #[test]
    fn a_slower_etcd_makes_pauses_longer() {
        let slow = Times { transactions_per_second: 20, ..times() };
        let run = |times: &Times| all(&cluster(5, 50, 50, 1), times, |_| true).unwrap().1;
        let (fast, slow) = (run(&times()), run(&slow));
        for (fast, slow) in fast.iter().zip(&slow) {
            assert!(fast.pause_worst_s.0 < slow.pause_worst_s.0, "{fast:?} {slow:?}");
        }
    }

    #[test]
    fn who_waits_for_others_to_start_claims_less_in_vain() {
        let lost = |times: &Times| {
            let (_, outcomes) = all(&cluster(30, 300, 100, 1), times, |_| true).unwrap();
            of(&outcomes, "start").claims_lost
        };
        let waiting = Times { settle: Duration::from_secs(1), ..times() };
        assert!(lost(&times()) > 0);
        assert_eq!(lost(&waiting), 0);
    }

    #[test]
    fn hand_overs_in_turn_pause_drained_shards_for_less() {
        let in_turn = Times { hand_overs: 2, ..times() };
        let run = |times: &Times| all(&cluster(5, 500, 500, 1), times, |_| true).unwrap().1;
        let (in_turn, at_once) = (run(&in_turn), run(&times()));
        let (in_turn, at_once) = (of(&in_turn, "one is drained"), of(&at_once, "one is drained"));
        assert_eq!((in_turn.moves, in_turn.spread), (at_once.moves, at_once.spread));
        assert!(in_turn.pause_worst_s.0 < at_once.pause_worst_s.0 / 2, "{in_turn:?} {at_once:?}");
        assert!(in_turn.quiet_s.0 > at_once.quiet_s.0, "{in_turn:?} {at_once:?}");
    }

    #[test]
    fn of_two_servers_one_owns_all_when_the_other_dies() {
        let (etcds, outcomes) = all(&cluster(2, 6, 10, 1), &times(), |_| true).unwrap();
        assert_eq!(etcds, 1);
        assert_eq!(of(&outcomes, "one dies").moves, 3);
        assert_eq!(of(&outcomes, "ten die at once").moves, 3);
    }
}
