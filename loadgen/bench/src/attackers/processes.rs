//! The correct processes: their instances begin at a fixed rate, whether or not the instances before have
//! ended.
//!
//! Each process has a connection and an Attach stream. When its instance is created it sends hello and
//! append, reads when these are answered, and decides the mode of the read list (D1). The observations of the
//! processes are judged as in loads; late processes are counted besides, since a verdict allows them within
//! the bound on f.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use stickycas_client::Client;
use stickycas_load::observations::{self, AnsweredAccess, ObservedRefusal, ProcessObservation};
use stickycas_model::access::{AppendAnswer, ReadAnswer};
use stickycas_model::bounds;
use stickycas_model::ground_truth::{Assignment, GroundTruth, Role};
use stickycas_model::judge::Outcome;
use stickycas_model::params::{Params, ParamsSpec, Patience};
use stickycas_model::predicates;
use stickycas_model::process::mode;
use stickycas_model::types::{Phase, Position, ProcessId, Value};
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{Answer, ReadResult, answer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use crate::attach_stream::{AttachStream, FrameSender, append, decide, hello, read};
use crate::principal::Principal;

/// p, and r: as many entries as there are warps of 16 processes.
const WARP_SIZE: u32 = 2;
const READ_SIZE: u32 = 8;
const VALUES: [&str; 3] = ["value  a", "value  b", "value  c"];
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

/// A process has decided, or was refused.
struct Left {
    channel: u32,
    seen: ProcessObservation,
    at: Instant,
}

/// An instance under way.
struct Open {
    began: Instant,
    last: Instant,
    seen: Vec<ProcessObservation>,
}

/// See the module.
pub(super) struct Processes {
    params: Params,
    roster: Vec<String>,
    coordinator: Client,
    streams: Vec<FrameSender>,
    left: UnboundedReceiver<anyhow::Result<Left>>,
    /// The number of the next instance, which is its channel.
    next: u32,
    // Aborted when this is dropped.
    _processes: JoinSet<()>,
}

impl Processes {
    /// Connects these principals, whose credentials are in `clients`. `patience`: that of their instances.
    pub(super) async fn connect(
        url: &str,
        clients: &std::path::Path,
        roster: Vec<String>,
        coordinator: Client,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let n = u32::try_from(roster.len())?;
        let patience = Patience::Finite(patience);
        let spec = ParamsSpec { patience, ..ParamsSpec::new(n, WARP_SIZE, READ_SIZE) };
        let params = Params::try_new(spec)?;
        let (leaves, left) = unbounded_channel();
        let (mut processes, mut streams) = (JoinSet::new(), Vec::new());
        for (process, name) in ProcessId::all(n).zip(&roster) {
            let principal = Principal::certified(url, name, Some(clients)).await?;
            let (sender, opening) = AttachStream::begin(principal);
            streams.push(sender);
            let leaves = leaves.clone();
            processes.spawn(async move {
                if let Err(error) = play(process, opening, &leaves).await {
                    // Without a receiver the turn has failed already.
                    let _sent = leaves.send(Err(error.context(format!("process {process}"))));
                }
            });
        }
        Ok(Self { params, roster, coordinator, streams, left, next: 0, _processes: processes })
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
                        let channel = self.begin(&id)?;
                        open.insert(channel, Open { began, last: began, seen: Vec::new() });
                    }
                    Err(error) => {
                        turn.undecided += 1;
                        ended += 1;
                        turn.note(format!("not created: {error:#}"));
                    }
                },
                left = self.left.recv() => {
                    let Left { channel, seen, at } = left.context("all streams are gone")??;
                    let instance = open.get_mut(&channel).context("an answer in no instance")?;
                    instance.last = instance.last.max(at);
                    instance.seen.push(seen);
                    if instance.seen.len() == self.roster.len()
                        && let Some(instance) = open.remove(&channel)
                    {
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

    /// All processes say hello and append; returns the channel.
    fn begin(&mut self, id: &str) -> anyhow::Result<u32> {
        let channel = self.next;
        self.next += 1;
        for (process, stream) in self.streams.iter().enumerate() {
            let value = Bytes::from_static(proposal(process, channel).as_bytes());
            stream.send(vec![hello(channel, id), append(channel, 1, value)])?;
        }
        Ok(channel)
    }

    fn judge(&self, channel: u32, Open { began, last, seen }: Open, turn: &mut Turn) -> anyhow::Result<()> {
        if seen.iter().all(|seen| seen.decision.is_some()) {
            turn.latencies.push(last - began);
        } else {
            turn.undecided += 1;
        }
        let bound = bounds::phase_bound(&self.params, 0);
        for process in &seen {
            let phases: Vec<Phase> = process.accesses.iter().filter_map(phase).collect();
            let punctual = phases.first().is_some_and(|it| predicates::is_first_of_warp(&self.params, *it));
            turn.late += usize::from(!punctual);
            turn.missed += usize::from(phases.last().is_some_and(|it| !predicates::is_in_time(*it, bound)));
            if let Some(refused) = &process.refused {
                let why = &refused.why;
                turn.note(format!(
                    "process {} was refused {}: {why}",
                    process.process,
                    refused.reason.name()
                ));
            }
        }
        let finding = observations::judge(&self.params, &truth(self.roster.len(), channel)?, &seen);
        if finding.outcome != Outcome::Valid {
            turn.not_valid += 1;
            turn.note(format!("{}: {}", finding.outcome, finding.reasons.join("; ")));
        }
        Ok(())
    }
}

fn proposal(process: usize, channel: u32) -> &'static str {
    VALUES[(process + channel as usize) % VALUES.len()]
}

/// The roles and proposals in an instance.
fn truth(processes: usize, channel: u32) -> anyhow::Result<GroundTruth> {
    let assignment = |process| {
        let proposal = Value::parse(proposal(process, channel)).context("an empty proposal")?;
        Ok(Assignment { role: Role::Correct, proposal })
    };
    Ok(GroundTruth::new((0..processes).map(assignment).collect::<anyhow::Result<_>>()?))
}

fn phase(access: &AnsweredAccess) -> Option<Phase> {
    match access {
        AnsweredAccess::Append { phase, .. } => Some(*phase),
        AnsweredAccess::Read { phase, .. } => *phase,
    }
}

/// One process in all of its instances.
async fn play(
    process: ProcessId,
    opening: impl Future<Output = anyhow::Result<AttachStream>>,
    leaves: &UnboundedSender<anyhow::Result<Left>>,
) -> anyhow::Result<()> {
    let mut stream = opening.await?;
    let mut playing: HashMap<u32, (ProcessObservation, Instant)> = HashMap::new();
    let new = || {
        (ProcessObservation { process, accesses: Vec::new(), decision: None, refused: None }, Instant::now())
    };
    loop {
        let mut frames = Vec::new();
        for frame in stream.receive_any().await? {
            let left = match frame {
                Frame::Answer(answer) => {
                    let channel = answer.channel;
                    let (seen, at) = playing.entry(channel).or_insert_with(new);
                    let access = access(answer)?;
                    if let AnsweredAccess::Read { entries, .. } = &access {
                        seen.decision = mode(entries).cloned();
                        *at = Instant::now();
                        let decision = seen.decision.as_ref().context("the list is empty")?;
                        frames.push(decide(channel, Bytes::copy_from_slice(decision.as_bytes())));
                    } else {
                        frames.push(read(channel, 2));
                    }
                    seen.accesses.push(access);
                    continue;
                }
                Frame::Decided(decided) => decided.channel,
                Frame::Refusal(refusal) => {
                    let RpcRefusal { reason, message, .. } = RpcRefusal::from_frame(&refusal);
                    let (seen, _) = playing.entry(refusal.channel).or_insert_with(new);
                    seen.refused = Some(ObservedRefusal { reason, why: message });
                    refusal.channel
                }
                Frame::Welcome(_) => continue,
                Frame::Replaced(replaced) => bail!("another session took its place: {replaced:?}"),
            };
            if let Some((seen, at)) = playing.remove(&left) {
                let _sent = leaves.send(Ok(Left { channel: left, seen, at }));
            }
        }
        stream.send(frames)?;
    }
}

/// An answer in the type of the judge.
fn access(answer: Answer) -> anyhow::Result<AnsweredAccess> {
    let phase = Phase::new(answer.phase).context("answered in no phase")?;
    Ok(match answer.result.context("an answer without a result")? {
        answer::Result::Append(append) => {
            AnsweredAccess::Append { phase, answer: AppendAnswer::try_from(&append)? }
        }
        answer::Result::Read(ReadResult { start, values, length, sealed }) => {
            let count = u32::try_from(values.len())?;
            let answer = ReadAnswer { start: Position::new(start), count, length, sealed };
            let entries = values.iter().map(|value| Value::new(value).context("an empty value"));
            AnsweredAccess::Read {
                phase: Some(phase),
                answer,
                entries: entries.collect::<anyhow::Result<_>>()?,
            }
        }
    })
}
