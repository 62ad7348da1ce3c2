//! Processes that append, read and decide on one Attach stream each, as fast as they can.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_client::raw::Connection;
use stickycas_load::attach_codec::{DecodedResponse, ResponseFrame, encode_decision};
use tokio::task::JoinSet;

use super::steps::Steps;
use crate::fixture::Fixture;
use crate::streams::{AttachStream, append, hello, read};
use crate::tasks::{in_order, in_parallel};
use crate::workload::{Observation, is_last, proposal};

/// How processes play.
#[derive(Clone, Debug, Default)]
pub(crate) struct Play {
    /// Instances at a time.
    pub(crate) in_flight: usize,
    /// All frames that follow from one message of the server leave as one message; else each access is a
    /// message of its own.
    pub(crate) batch: bool,
    /// The read is sent together with the append (F7).
    pub(crate) ahead: bool,
    /// Whether the server is the floor, which knows neither hello nor decision.
    pub(crate) floor: bool,
    /// Whether each access is timed.
    pub(crate) timed: bool,
    /// Whether all processes send together, each when all that it sent before is answered.
    pub(crate) steps: Option<Arc<Steps>>,
}

/// What one process did.
pub(crate) struct Played {
    /// By instance.
    pub(crate) observations: Vec<Observation>,
    /// When each access was answered, and how long that took, if they are timed.
    pub(crate) times: Vec<(Instant, Duration)>,
    /// Its stream, which is open as long as this is there.
    pub(crate) stream: AttachStream,
}

/// Plays all instances of a fixture. Returns the observations, by process and then by instance.
pub(crate) async fn play_all(fixture: &Fixture, play: &Play) -> anyhow::Result<Vec<Vec<Observation>>> {
    let play = Play { floor: !fixture.is_real(), ..play.clone() };
    let streams = open_all(&fixture.principals).await?;
    let played = play_these(streams, &fixture.ids, 0, &play).await?;
    Ok(played.into_iter().map(|played| played.observations).collect())
}

/// Opens a stream of each of these principals.
pub(crate) async fn open_all(principals: &[Connection]) -> anyhow::Result<Vec<AttachStream>> {
    let (all, many) = (principals.to_vec(), principals.len());
    let open = move |number: usize| {
        let principal = all[number].clone();
        async move { AttachStream::open(&principal).await }
    };
    in_parallel(many, many, open).await
}

/// Plays instances on the streams of their processes; by process. `first`: the number of the first instance,
/// which the proposals depend on.
pub(crate) async fn play_these(
    streams: Vec<AttachStream>,
    ids: &Arc<[String]>,
    first: usize,
    play: &Play,
) -> anyhow::Result<Vec<Played>> {
    let mut processes = JoinSet::new();
    for (process, stream) in streams.into_iter().enumerate() {
        let own = Process {
            process,
            first,
            ids: ids.clone(),
            play: play.clone(),
            played: Played { observations: vec![Observation::EMPTY; ids.len()], times: Vec::new(), stream },
            channels: Vec::new(),
            free: Vec::new(),
            frames: Vec::new(),
            open: 0,
            sent: Vec::new(),
            held: Vec::new(),
            asked: 0,
            asked_before: 0,
            answers: 0,
        };
        processes.spawn(async move { Ok((process, own.play().await?)) });
    }
    in_order(processes).await
}

/// The client of one process.
struct Process {
    process: usize,
    first: usize,
    ids: Arc<[String]>,
    play: Play,
    played: Played,
    /// The instance of each channel.
    channels: Vec<usize>,
    /// Channels on which the server has answered the decision, so that they may be used again.
    free: Vec<u32>,
    /// Frames of the next message.
    frames: Vec<u8>,
    /// Instances that have begun and not ended.
    open: usize,
    /// By channel, when its last access was sent; empty if accesses are not timed.
    sent: Vec<Instant>,
    /// Messages of the next step.
    held: Vec<Vec<u8>>,
    /// Accesses and decisions until now, those until the last step, and answers.
    asked: usize,
    asked_before: usize,
    answers: usize,
}

impl Process {
    /// Plays all instances.
    async fn play(mut self) -> anyhow::Result<Played> {
        for instance in 0..self.play.in_flight {
            self.open(instance)?;
        }
        self.flush()?;
        self.step().await?;
        while self.open > 0 {
            let message = self.played.stream.receive().await?;
            self.take(&message)?;
            self.flush()?;
            self.step().await?;
        }
        Ok(self.played)
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
        if !self.play.floor {
            hello(&mut self.frames, channel, id);
        }
        append(&mut self.frames, channel, &proposal(self.process, self.first + instance));
        if self.play.ahead {
            self.asked += 1;
            read(&mut self.frames, channel, 2);
        }
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
        if self.play.steps.is_none() {
            return self.played.stream.send(&mut self.frames);
        }
        if !self.frames.is_empty() {
            self.held.push(std::mem::take(&mut self.frames));
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
            self.held.drain(..).try_for_each(|mut message| self.played.stream.send(&mut message))?;
        }
        Ok(())
    }

    /// Goes on with the answers of a message.
    fn take(&mut self, message: &DecodedResponse) -> anyhow::Result<()> {
        for frame in message.frames() {
            match frame {
                ResponseFrame::Append { channel, phase, result, .. } => {
                    let instance = self.answered(*channel)?;
                    self.played.observations[instance].record_append_result(*phase, result)?;
                    if !self.play.ahead {
                        read(&mut self.frames, *channel, 2);
                        self.after_access(*channel)?;
                    }
                }
                ResponseFrame::Read { channel, phase, start, values, length, sealed, .. } => {
                    let instance = self.answered(*channel)?;
                    let values = message.values(values);
                    is_last(*start, *length, values.len(), *sealed)?;
                    let decision = self.played.observations[instance].record_list(*phase, values)?;
                    self.asked += 1;
                    if self.play.floor {
                        self.decided(*channel);
                    } else {
                        encode_decision(&mut self.frames, *channel, &decision);
                    }
                    self.open(instance + self.play.in_flight)?;
                }
                ResponseFrame::Decided { channel } => self.decided(*channel),
                ResponseFrame::Other(_) => {}
            }
        }
        Ok(())
    }

    /// The instance of an answer.
    fn answered(&mut self, channel: u32) -> anyhow::Result<usize> {
        self.answers += 1;
        if self.play.timed {
            let now = Instant::now();
            self.played.times.push((now, now - self.sent[channel as usize]));
        }
        self.channels.get(channel as usize).copied().context("an answer on no channel")
    }

    fn decided(&mut self, channel: u32) {
        self.answers += 1;
        self.open -= 1;
        self.free.push(channel);
    }
}
