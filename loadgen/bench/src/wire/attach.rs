//! Processes that append, read and decide on one Attach stream each, as fast as they can.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_proto::v1::AppendResult;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::codec::{FrameCodec, FrameVisitor};
use super::steps::Steps;
use crate::fixture::Fixture;
use crate::principal::Principal;
use crate::workload::{Observation, proposal};

/// How processes play.
#[derive(Clone, Debug, Default)]
pub(crate) struct Play {
    /// Instances at a time.
    pub(crate) in_flight: usize,
    /// All frames that follow from one message of the server leave as one message; else each access is a
    /// message of its own.
    pub(crate) batch: bool,
    /// Whether each access is timed.
    pub(crate) timed: bool,
    /// Whether all processes send together, each when all that it sent before is answered.
    pub(crate) steps: Option<Arc<Steps>>,
}

/// What one process did.
pub(crate) struct Played {
    pub(crate) process: usize,
    /// By instance.
    pub(crate) observations: Vec<Observation>,
    /// When each access was answered, and how long that took, if they are timed.
    pub(crate) times: Vec<(Instant, Duration)>,
    /// Its stream, which is open as long as this is there.
    _stream: Box<dyn Any + Send>,
}

/// Plays all instances of a fixture. Returns the observations, by process and then by instance.
pub(crate) async fn play_all<T: FrameCodec>(
    fixture: &Fixture,
    play: Play,
) -> anyhow::Result<Vec<Vec<Observation>>> {
    let ids = fixture.ids.clone();
    let played = play_these::<T>(&fixture.principals, ids, fixture.is_real(), play).await?;
    Ok(played.into_iter().map(|played| played.observations).collect())
}

/// Plays instances whose processes are these principals; by process.
pub(crate) async fn play_these<T: FrameCodec>(
    principals: &[Principal],
    ids: Arc<[String]>,
    real: bool,
    play: Play,
) -> anyhow::Result<Vec<Played>> {
    let mut streams = JoinSet::new();
    for (process, principal) in principals.iter().cloned().enumerate() {
        let (out, requests) = unbounded_channel();
        let player = Process::<T> {
            process,
            observations: vec![Observation::EMPTY; ids.len()],
            ids: ids.clone(),
            out,
            play: play.clone(),
            real,
            channels: Vec::new(),
            free: Vec::new(),
            frames: T::default(),
            open: 0,
            sent: Vec::new(),
            times: Vec::new(),
            held: Vec::new(),
            asked: 0,
            asked_before: 0,
            answers: 0,
        };
        streams.spawn(player.play(principal, requests.into()));
    }
    let mut played = Vec::new();
    while let Some(stream) = streams.join_next().await {
        played.push(stream??);
    }
    played.sort_by_key(|played| played.process);
    Ok(played)
}

/// The client of one process.
struct Process<T: FrameCodec> {
    process: usize,
    ids: Arc<[String]>,
    out: UnboundedSender<T::Request>,
    play: Play,
    /// Whether it also sends hello and decision: the floor knows neither.
    real: bool,
    /// The instance of each channel.
    channels: Vec<usize>,
    /// Channels on which the server has answered the decision, so that they may be used again.
    free: Vec<u32>,
    /// Frames of the next message.
    frames: T,
    /// Instances that have begun and not ended.
    open: usize,
    /// By instance.
    observations: Vec<Observation>,
    /// By channel, when its last access was sent; empty if accesses are not timed.
    sent: Vec<Instant>,
    times: Vec<(Instant, Duration)>,
    /// Messages of the next step.
    held: Vec<T::Request>,
    /// Accesses and decisions until now, those until the last step, and answers.
    asked: usize,
    asked_before: usize,
    answers: usize,
}

impl<T: FrameCodec> Process<T> {
    /// Plays all instances.
    async fn play(
        mut self,
        principal: Principal,
        requests: UnboundedReceiverStream<T::Request>,
    ) -> anyhow::Result<Played> {
        for slot in 0..self.play.in_flight {
            self.open(slot)?;
        }
        self.flush()?;
        self.step().await?;
        let requests = principal.request(requests);
        let mut answers = T::attach(principal.channel.clone(), requests).await?.into_inner();
        while self.open > 0 {
            let message = answers.message().await?.context("the stream ended")?;
            T::visit(message, &mut self)?;
            self.flush()?;
            self.step().await?;
        }
        let Self { process, observations, times, out, .. } = self;
        Ok(Played { process, observations, times, _stream: Box::new((out, answers)) })
    }

    /// Begins an instance on a free channel: hello and append.
    fn open(&mut self, instance: usize) -> anyhow::Result<()> {
        let Some(id) = self.ids.get(instance) else { return Ok(()) };
        let channel = match self.free.pop() {
            Some(channel) => channel,
            None => {
                self.channels.push(instance);
                u32::try_from(self.channels.len() - 1)?
            }
        };
        self.channels[channel as usize] = instance;
        self.open += 1;
        if self.real {
            self.frames.hello(channel, id);
        }
        self.frames.append(channel, proposal(self.process, instance));
        self.after_access(channel)
    }

    fn after_access(&mut self, channel: u32) -> anyhow::Result<()> {
        self.asked += 1;
        if self.play.timed {
            let channel = channel as usize;
            self.sent.resize(self.sent.len().max(channel + 1), Instant::now());
            self.sent[channel] = Instant::now();
        }
        if self.play.batch { Ok(()) } else { self.flush() }
    }

    /// Sends the frames as one message, or with the next step.
    fn flush(&mut self) -> anyhow::Result<()> {
        match self.frames.message() {
            Some(message) if self.play.steps.is_some() => self.held.push(message),
            Some(message) => self.out.send(message).ok().context("the stream is gone")?,
            None => {}
        }
        Ok(())
    }

    /// Sends the messages of the next step, once everything before is answered.
    async fn step(&mut self) -> anyhow::Result<()> {
        if let Some(steps) = &self.play.steps
            && !self.held.is_empty()
            && self.answers == self.asked_before
        {
            steps.next().await?;
            self.asked_before = self.asked;
            for message in self.held.drain(..) {
                self.out.send(message).ok().context("the stream is gone")?;
            }
        }
        Ok(())
    }

    /// The instance of an answer.
    fn answered(&mut self, channel: u32) -> anyhow::Result<usize> {
        self.answers += 1;
        if self.play.timed {
            let now = Instant::now();
            self.times.push((now, now - self.sent[channel as usize]));
        }
        self.channels.get(channel as usize).copied().context("an answer on no channel")
    }
}

impl<T: FrameCodec> FrameVisitor for Process<T> {
    fn appended(&mut self, channel: u32, phase: u64, result: &AppendResult) -> anyhow::Result<()> {
        let instance = self.answered(channel)?;
        self.observations[instance].record_append_result(phase, result)?;
        self.frames.read(channel);
        self.after_access(channel)
    }

    fn read<'a>(
        &mut self,
        channel: u32,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()> {
        let instance = self.answered(channel)?;
        let decision = self.observations[instance].record_list(phase, values)?;
        self.asked += 1;
        if self.real {
            self.frames.decide(channel, decision.bytes());
        } else {
            self.decided(channel);
        }
        self.open(instance + self.play.in_flight)
    }

    fn decided(&mut self, channel: u32) {
        self.answers += 1;
        self.open -= 1;
        self.free.push(channel);
    }
}
