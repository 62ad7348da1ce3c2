//! The plan of a round of the kill test, drawn from its seed: its faults, as the steps of a plan, and its
//! instances. The moment of a kill depends on the machine too, so a seed repeats the load and the steps, not
//! the outcome.
//!
//! | module | what |
//! | --- | --- |
//! | `kinds` | the kinds of faults of a cluster |
//! | `cluster` | a round with a cluster |
//! | `outage` | a server that is started again days later |

mod cluster;
mod kinds;
mod outage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use stickycas_model::byzantine::Strategy;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::params::{AppendWindow, Arbiter, Order, Params, ParamsSpec, Patience};
use stickycas_model::random::SplitMix64;
use stickycas_model::types::{ProcessId, Seed, Value};

pub use self::kinds::{ClusterSize, FaultKind};
use crate::plan::{Action, Service, Step, When};

/// How much there is to do in a round.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Instances.
    pub instances: usize,
    /// The most processes of one.
    pub processes: u32,
    /// How long processes are waited for.
    pub waiting: Waiting,
}

/// Patience and join timeout of the instances of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// In an instance that waits for a process in vain. Every round lasts as long, so it is short, and
    /// clients may spend it on a machine that gives them no turn.
    pub in_vain: Duration,
    /// In any other instance: long enough for every disturbance.
    pub otherwise: Duration,
}

impl Waiting {
    /// In real time, on a machine that is busy with other things.
    pub const REAL_TIME: Self = Self { in_vain: Duration::from_secs(5), otherwise: Duration::from_secs(600) };

    /// With servers and members of etcd that die and pause: longer than it takes until another server has
    /// taken over.
    pub const CLUSTER: Self = Self { in_vain: Duration::from_secs(20), otherwise: Duration::from_secs(600) };
}

/// A round.
#[derive(Clone, Debug)]
pub struct RoundPlan {
    /// Its seed.
    pub seed: u64,
    /// The faults, in order. Those [`When::Ended`] come last, before the histories are fetched.
    pub steps: Vec<Step>,
    /// How long all may take to come to their end after the last fault under load: far longer than they do.
    pub longest_end: Duration,
    /// The instances.
    pub instances: Vec<InstancePlan>,
}

/// An instance of a round.
#[derive(Clone, Debug)]
pub struct InstancePlan {
    /// Its number in the round, from 0.
    pub number: usize,
    /// How many steps are due when its time to begin comes; 0: it begins with the round.
    pub after_steps: usize,
    /// When it is created, after that.
    pub begin: Duration,
    /// Its parameters.
    pub params: Arc<Params>,
    /// The role of each process.
    pub truth: GroundTruth,
    /// The seed of its processes.
    pub seed: u64,
    /// The processes that make unary calls; the others are on Attach.
    pub unary: BTreeSet<ProcessId>,
    /// Correct processes whose client is killed so long after it began, and started again without its memory.
    /// Such a process counts as faulty (V4).
    pub killed_clients: BTreeMap<ProcessId, Duration>,
    /// A process that comes when the server has been killed for the last time.
    pub absent_before: Option<ProcessId>,
    /// Whether its end is waited for before the server is killed.
    pub ends_before: bool,
    /// The time from its creation until the creator closes it, with processes still playing; `None`: closed
    /// when the correct processes have decided.
    pub closed_after: Option<Duration>,
    /// Whether an observer watches it from its creation on.
    pub watched: bool,
}

impl RoundPlan {
    /// The round of this seed.
    #[must_use]
    pub fn draw(seed: u64, load: Load) -> Self {
        let random = &mut SplitMix64::new(seed ^ 0x6b69_6c6c);
        let mut kills = vec![When::Served(millis(random, 60, 350))];
        for _ in 0..1 + random.below(3) {
            kills.push(match random.below(5) {
                // Mostly it has not recovered yet.
                0 | 1 => When::After(millis(random, 0, 100)),
                _ => When::Served(millis(random, 20, 350)),
            });
        }
        // The restarts in between take about so long.
        let span = kills.iter().map(|kill| match kill {
            When::Served(after) => *after + Duration::from_millis(150),
            When::After(after) => *after,
            _ => Duration::ZERO,
        });
        let span = u64::try_from(span.sum::<Duration>().as_millis()).unwrap_or(u64::MAX);
        let instances = (0..load.instances).map(|number| {
            let begin = if number % 3 == 0 { millis(random, 0, 60) } else { millis(random, 0, span) };
            InstancePlan::draw(number, begin, load, random)
        });
        let instances = instances.collect();
        // Each of two Byzantine processes may use up its patience, behind the join timeout.
        let longest_end = Duration::from_secs(60) + 3 * load.waiting.in_vain;
        kills.extend((random.below(4) > 0).then_some(When::Ended));
        let steps = kills.into_iter().map(killed).collect();
        Self { seed, steps, longest_end, instances }
    }
}

/// The server is killed, and started again at once.
fn killed(when: When) -> Step {
    Step::lasting(when, Action::Kill, vec![Service::Server], Duration::ZERO)
}

/// A time between these, in milliseconds.
fn millis(random: &mut SplitMix64, least: u64, most: u64) -> Duration {
    Duration::from_micros(1_000 * least + random.below(1_000 * most.saturating_sub(least).max(1)))
}

impl InstancePlan {
    /// Whether its patience is so short that a slow machine may spend it.
    pub(crate) fn has_short_patience(&self) -> bool {
        matches!(self.params.spec().patience, Patience::Finite(patience) if patience < Waiting::REAL_TIME.otherwise)
    }

    fn draw(number: usize, begin: Duration, load: Load, random: &mut SplitMix64) -> Self {
        let n = 1 + below(random, load.processes);
        let p = 1 + below(random, n.min(3));
        // Every third instance is of correct processes alone, and finishes.
        let byzantine = match number % 3 {
            2 => 0,
            _ if n > 2 && random.below(4) == 0 => 2,
            _ => 1.min(n - 1),
        };
        let seed = random.next_u64();
        let mut faulty = BTreeSet::new();
        while faulty.len() < byzantine as usize {
            faulty.insert(random.index(n as usize));
        }
        // All strategies in turn, so that a round of some size has each.
        let mut turn = number;
        let assignments = (0..n as usize).map(|index| {
            let role = if faulty.contains(&index) {
                turn += 1;
                Role::Byzantine(strategy(turn, random))
            } else {
                Role::Correct
            };
            let proposal = ["v1", "v2", "v3"][random.index(3)];
            Assignment { role, proposal: value(proposal) }
        });
        let truth = GroundTruth::new(assignments.collect());
        let stays_away = |assignment: &Assignment| match &assignment.role {
            Role::Byzantine(strategy) => STAYING_AWAY.contains(&strategy.name()),
            Role::Correct | Role::Attacker(_) | Role::External => false,
        };
        let Waiting { in_vain, otherwise } = load.waiting;
        let waiting = if truth.assignments().any(|(_, assignment)| stays_away(assignment)) {
            in_vain
        } else {
            otherwise
        };
        let spec = ParamsSpec {
            order: Order::ALL[random.index(Order::ALL.len())],
            seed: Seed::new(random.next_u64() >> 1),
            arbiter: arbiter(n, random),
            append_window: if random.below(4) == 0 { AppendWindow::Open } else { AppendWindow::FirstAccess },
            patience: Patience::Finite(waiting),
            join_timeout: waiting,
            // Some go slowly, so that every kill hits them.
            pace: if random.below(5) == 0 { millis(random, 5, 40) } else { Duration::ZERO },
            ..ParamsSpec::new(n, p, 1 + below(random, n))
        };
        let append_rounds = match spec.append_window {
            AppendWindow::Open => 1,
            // Of what is drawn already.
            AppendWindow::FirstAccess => 1 + (spec.seed.get() % u64::from(p)) as u32,
        };
        let spec = ParamsSpec { append_rounds, ..spec };
        let params = Params::try_new(spec).expect("drawn parameters are in their ranges");
        // The client's calls append no empty value.
        let is_empty = |process: &ProcessId| match &truth.assignment(*process).expect("it is one of n").role {
            Role::Byzantine(strategy) => strategy.name() == "empty",
            Role::Correct | Role::Attacker(_) | Role::External => false,
        };
        let drawn = ProcessId::all(n).filter(|_| random.below(4) == 0);
        let unary = drawn.filter(|process| !is_empty(process)).collect();
        let closed_after = (random.below(12) == 0).then(|| millis(random, 0, 500));
        let watched = random.below(2) == 0;
        Self { begin, unary, closed_after, watched, ..Self::new(number, params, truth, seed) }
    }

    /// An instance that begins with the round, whose clients are all on Attach and stay to its end.
    pub(crate) fn new(number: usize, params: Params, truth: GroundTruth, seed: u64) -> Self {
        Self {
            number,
            after_steps: 0,
            begin: Duration::ZERO,
            params: Arc::new(params),
            truth,
            seed,
            unary: BTreeSet::new(),
            killed_clients: BTreeMap::new(),
            absent_before: None,
            ends_before: false,
            closed_after: None,
            watched: false,
        }
    }

    /// Its name, which is another one in every round.
    #[must_use]
    pub fn name(&self, round: u64) -> String {
        format!("crash-{round}-{}", self.number)
    }

    /// The principal of a process.
    #[must_use]
    pub fn principal(&self, round: u64, process: ProcessId) -> String {
        format!("{}-p{process}", self.name(round))
    }
}

fn arbiter(n: u32, random: &mut SplitMix64) -> Arbiter {
    match random.below(3) {
        0 => Arbiter::FirstCome,
        1 => Arbiter::Uniform,
        _ => {
            let mut order: Vec<ProcessId> = ProcessId::all(n).collect();
            for last in (1..order.len()).rev() {
                order.swap(last, random.index(last + 1));
            }
            Arbiter::Priority(order)
        }
    }
}

/// Strategies for which the others may wait in vain.
const STAYING_AWAY: [&str; 9] =
    ["absent", "silent", "crash", "empty", "mixed", "late-append", "reader", "stall", "adaptive"];

/// The strategy whose turn it is.
fn strategy(turn: usize, random: &mut SplitMix64) -> Strategy {
    let k = 2 + random.below(3);
    let named = |name: &'static str| match name {
        "crash" => format!("crash(access={})", k - 1),
        "collude" | "mimic" => format!("{name}(value={})", if name == "mimic" { "v1" } else { "0" }),
        "mixed" => "mixed(collude=0, mimic=v1)".to_owned(),
        "late-append" => format!("late-append(access={k}, value=0)"),
        "adaptive" => format!("adaptive(phase={k}, then=late-append(access={k}, value=0))"),
        name => name.to_owned(),
    };
    let text = named(Strategy::ALL_NAMES[turn % Strategy::ALL_NAMES.len()]);
    text.parse().expect("every strategy is written with its arguments here")
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).expect("it is not empty")
}

fn below(random: &mut SplitMix64, bound: u32) -> u32 {
    u32::try_from(random.below(u64::from(bound))).expect("it is below a u32")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    const LOAD: Load = Load { instances: 120, processes: 6, waiting: Waiting::REAL_TIME };

    #[test]
    fn a_round_follows_its_seed() {
        let drawn = |seed| format!("{:?}", RoundPlan::draw(seed, LOAD));
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn a_round_has_every_strategy_both_ways_in_and_a_correct_one() {
        let plan = RoundPlan::draw(1, LOAD);
        let mut played = BTreeSet::new();
        for instance in &plan.instances {
            assert!(instance.truth.correct().next().is_some());
            played.extend(instance.truth.assignments().filter_map(
                |(_, assignment)| match &assignment.role {
                    Role::Byzantine(strategy) => Some(strategy.name()),
                    _ => None,
                },
            ));
        }
        assert_eq!(played, Strategy::ALL_NAMES.into_iter().collect());
        let unary: usize = plan.instances.iter().map(|instance| instance.unary.len()).sum();
        let all: u32 = plan.instances.iter().map(|instance| instance.params.processes()).sum();
        assert!(unary > 20 && unary * 2 < all as usize, "{unary} of {all}");
    }

    #[test]
    fn servers_are_killed_several_times_and_sometimes_before_they_serve() {
        let plans: Vec<RoundPlan> = (0..40).map(|seed| RoundPlan::draw(seed, LOAD)).collect();
        let at_end = |step: &Step| step.when == When::Ended;
        let under_load = |plan: &RoundPlan| plan.steps.iter().filter(|step| !at_end(step)).count();
        assert!(plans.iter().all(|plan| (2..=4).contains(&under_load(plan))));
        assert!(plans.iter().any(|plan| matches!(plan.steps[1].when, When::After(_))));
        let killed_at_end = |plan: &&RoundPlan| plan.steps.last().is_some_and(at_end);
        assert!((1..plans.len()).contains(&plans.iter().filter(killed_at_end).count()));
    }

    #[test]
    fn some_instances_of_a_round_have_a_short_patience() {
        let plan = RoundPlan::draw(7, LOAD);
        let short = plan.instances.iter().filter(|instance| instance.has_short_patience()).count();
        assert!(short > 0 && short < plan.instances.len(), "{short}");
    }

    #[test]
    fn a_drawn_plan_is_read_as_it_was_written() {
        let size = |members| {
            let lease = Duration::from_secs(2);
            ClusterSize { servers: 3, members, lease, faults: 40, has_partitions: true }
        };
        let drawn = (0..10).flat_map(|seed| {
            let days = Duration::from_secs(2 * 24 * 3600);
            [
                RoundPlan::draw(seed, LOAD),
                RoundPlan::outage(seed, LOAD, days),
                RoundPlan::cluster(seed, LOAD, size(1)),
                RoundPlan::cluster(seed, LOAD, size(3)),
            ]
        });
        for round in drawn {
            let plan = Plan::drawn(round.seed, round.steps);
            assert_eq!(Plan::parse("drawn.toml", &plan.text()).unwrap(), plan);
        }
    }
}
