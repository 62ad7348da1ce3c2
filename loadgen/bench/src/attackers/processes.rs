//! The correct processes: their instances begin at a fixed rate, whether or not the instances before have
//! ended.
//!
//! Each process has a connection and an Attach stream. When its instance is created it sends hello and
//! append, reads when these are answered, and decides the mode of the read list (D1). The observations of the
//! processes are judged as in loads; late processes are counted besides, since a verdict allows them within
//! the bound on f.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_client::Client;
use stickycas_load::observations::ObservedRefusal;
use stickycas_model::bounds;
use stickycas_model::judge::Outcome;
use stickycas_model::params::{Params, Patience};
use stickycas_model::predicates;
use tokio::task::JoinSet;

use crate::fixture::{connect, principal};
use crate::servers::Server;
use crate::streams::{Departure, Mode, Players};
use crate::workload::{Observation, Shape, judge_one};

/// Timers are no finer.
const TIMER: Duration = Duration::from_millis(1);
/// The longest wait for open instances when no more begin.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The results of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// From the beginning of the Create to the last decision, of each instance in which all have decided.
    pub(super) latencies: Vec<Duration>,
    /// Instances in which not all have decided, the ones that could not be created included.
    pub(super) undecided: usize,
    /// Processes whose first phase passed without an access of theirs, over all instances.
    pub(super) late: usize,
    /// Processes that missed a later phase of theirs, and so decided after phase W * (1 + c), as D2 allows
    /// them.
    pub(super) missed: usize,
    /// Instances that are not valid: a rule broke, D2 among them.
    pub(super) not_valid: usize,
    /// A few of the failures, in words.
    pub(super) reasons: Vec<String>,
}

impl Turn {
    const REASONS: usize = 8;

    /// Whether all processes decided alike, none later than D2 allows, and none was late.
    pub(super) fn is_clean(&self) -> bool {
        self.undecided + self.late + self.not_valid == 0
    }

    fn note(&mut self, reason: String) {
        if self.reasons.len() < Self::REASONS && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}

/// An instance under way.
struct Open {
    began: Instant,
    last: Instant,
    left: usize,
    /// By process.
    seen: Vec<(Observation, Option<ObservedRefusal>)>,
}

/// See the module.
pub(super) struct Processes {
    params: Params,
    roster: Vec<String>,
    coordinator: Client,
    players: Players,
    /// The number of the next instance, which is its channel.
    next: u32,
}

impl Processes {
    /// Connects so many. `patience`: that of their instances.
    pub(super) async fn connect(
        server: &Server,
        processes: u8,
        coordinator: Client,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let shape = Shape { processes: processes.into(), warp_size: 2, read_size: 8, pipeline: 0 };
        let params = shape.params(Patience::Finite(patience))?;
        let principals = connect(server, 0..processes.into()).await?;
        let players = Players::open(&principals, Mode::Wait);
        let roster = (0..processes.into()).map(principal).collect();
        Ok(Self { params, roster, coordinator, players, next: 0 })
    }

    /// Plays this many instances, of which `rate` begin in a second.
    pub(super) async fn turn(&mut self, instances: usize, rate: f64) -> anyhow::Result<Turn> {
        let (mut turn, mut open) = (Turn::default(), BTreeMap::<u32, Open>::new());
        let (mut creating, mut begun, mut ended) = (JoinSet::new(), 0, 0);
        let apart = Duration::from_secs_f64(1.0 / rate);
        let mut planned = Instant::now();
        let mut give_up = planned + LONGEST_WAIT;
        while ended < instances {
            let next = tokio::time::sleep_until(planned.into());
            tokio::select! {
                () = next, if begun < instances => {
                    // A timer that fires late is no delay of the server's, unless it is late by more.
                    let began = Instant::now().min(planned + TIMER);
                    creating.spawn(self.create(began));
                    begun += 1;
                    planned += apart;
                    give_up = planned + LONGEST_WAIT;
                }
                Some(created) = creating.join_next() => match created? {
                    Ok((began, id)) => {
                        let channel = self.next;
                        self.next += 1;
                        self.players.begin(channel, &id, channel as usize, usize::MAX)?;
                        let seen = vec![(Observation::EMPTY, None); self.roster.len()];
                        open.insert(channel, Open { began, last: began, left: 0, seen });
                    }
                    Err(error) => {
                        turn.undecided += 1;
                        ended += 1;
                        turn.note(format!("not created: {error:#}"));
                    }
                },
                left = self.players.next() => {
                    let Departure { process, channel, seen, refused, at } = left?;
                    let instance = open.get_mut(&channel).context("an answer in no instance")?;
                    instance.last = instance.last.max(at);
                    instance.left += 1;
                    instance.seen[process] = (seen, refused);
                    if instance.left == self.roster.len() && let Some(instance) = open.remove(&channel) {
                        ended += 1;
                        self.judge(channel, instance, &mut turn)?;
                    }
                }
                () = tokio::time::sleep_until(give_up.into()), if begun == instances => {
                    turn.undecided += instances - ended;
                    turn.note(format!("{} instances under way after {LONGEST_WAIT:?}", instances - ended));
                    break;
                }
            }
        }
        Ok(turn)
    }

    /// Creates an instance.
    fn create(&self, began: Instant) -> impl Future<Output = anyhow::Result<(Instant, String)>> + use<> {
        let create = self.coordinator.create_instance().roster(self.roster.clone()).params(&self.params);
        async move { Ok((began, create.send().await?.instance.id.to_string())) }
    }

    fn judge(&self, channel: u32, instance: Open, turn: &mut Turn) -> anyhow::Result<()> {
        let Open { began, last, seen, .. } = instance;
        if seen.iter().all(|(seen, _)| seen.has_decided()) {
            turn.latencies.push(last - began);
        } else {
            turn.undecided += 1;
        }
        let bound = bounds::phase_bound(&self.params, 0);
        for (process, (seen, refused)) in seen.iter().enumerate() {
            let (first, final_phase) = (seen.phases().next(), seen.phases().last());
            let punctual = first.is_some_and(|it| predicates::is_first_of_warp(&self.params, it));
            turn.late += usize::from(!punctual);
            turn.missed += usize::from(final_phase.is_some_and(|it| !predicates::is_in_time(it, bound)));
            if let Some(ObservedRefusal { reason, why }) = refused {
                turn.note(format!("process {} was refused {}: {why}", process + 1, reason.name()));
            }
        }
        let finding = judge_one(&self.params, channel as usize, seen)?;
        if finding.outcome != Outcome::Valid {
            turn.not_valid += 1;
            turn.note(format!("{}: {}", finding.outcome, finding.reasons.join("; ")));
        }
        Ok(())
    }
}
