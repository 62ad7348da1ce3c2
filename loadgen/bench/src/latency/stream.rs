//! Round trips and instances on Attach streams that stay open.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{ClientFrame, answer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::variant::Timing;
use crate::attach_stream::{AttachStream, FrameSender, append, decide, hello, read};
use crate::fixture::Fixture;
use crate::workload::{Observation, proposal};

/// The channel of every instance: free again before the next instance begins.
const CHANNEL: u32 = 0;

/// That a process has left an instance.
struct Departure {
    process: usize,
    observation: Observation,
    decided: Instant,
}

/// The open streams, one for each process.
struct Streams {
    requests: Vec<FrameSender>,
    departures: UnboundedReceiver<anyhow::Result<Departure>>,
    // Aborted when this is dropped.
    _processes: JoinSet<()>,
}

impl Streams {
    /// Opens the streams of processes of this mode.
    fn open(fixture: &Fixture, mode: Mode) -> Self {
        let (departed, departures) = unbounded_channel();
        let mut processes = JoinSet::new();
        let mut requests = Vec::new();
        for connection in fixture.connections.iter().cloned() {
            let (sender, opening) = AttachStream::begin(connection.principal);
            requests.push(sender);
            let departed = departed.clone();
            processes.spawn(async move {
                if let Err(error) = run_process(connection.process, opening, mode, &departed).await {
                    // Without a receiver the measurement has failed already.
                    let _sent = departed.send(Err(error));
                }
            });
        }
        Self { requests, departures, _processes: processes }
    }

    /// Sends one message on each of the first `many` streams, and waits until their processes have left.
    /// Returns their observations, by process, and the time to the last decision.
    async fn once(
        &mut self,
        many: usize,
        message: impl Fn(usize) -> Vec<ClientFrame>,
    ) -> anyhow::Result<(Vec<Observation>, Duration)> {
        let many = many.min(self.requests.len());
        let messages: Vec<_> = (0..many).map(message).collect();
        let started = Instant::now();
        for (out, message) in self.requests.iter().zip(messages) {
            out.send(message)?;
        }
        let (mut observations, mut last) = (vec![Observation::EMPTY; many], started);
        for _ in 0..many {
            let departure = self.departures.recv().await.context("all streams are gone")??;
            *observations.get_mut(departure.process).context("an answer of a process that did not ask")? =
                departure.observation;
            last = last.max(departure.decided);
        }
        Ok((observations, last - started))
    }
}

/// The next step of a process after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// It has sent one access, and leaves.
    Echo,
    /// It reads after its append, decides, and leaves.
    Wait,
    /// It has sent its read together with its append; it decides, and leaves.
    Ahead,
}

/// One process: waits for its stream, and plays instance after instance in this mode.
async fn run_process(
    process: usize,
    opening: impl Future<Output = anyhow::Result<AttachStream>>,
    mode: Mode,
    departed: &UnboundedSender<anyhow::Result<Departure>>,
) -> anyhow::Result<()> {
    let mut stream = opening.await?;
    let mut observation = Observation::EMPTY;
    let mut decided = Instant::now();
    loop {
        for frame in stream.receive().await? {
            match frame {
                Frame::Answer(answer) => match answer.result.context("no result")? {
                    answer::Result::Append(append) => {
                        observation.record_append_result(answer.phase, &append)?;
                        match mode {
                            Mode::Echo => {
                                let decided = Instant::now();
                                let _sent = departed.send(Ok(Departure { process, observation, decided }));
                            }
                            Mode::Wait => stream.send(vec![read(CHANNEL, 2)])?,
                            Mode::Ahead => {}
                        }
                    }
                    answer::Result::Read(read) => {
                        let value = observation.record_read_result(answer.phase, &read)?.bytes();
                        decided = Instant::now();
                        stream.send(vec![decide(CHANNEL, value)])?;
                    }
                },
                Frame::Decided(_) => {
                    let _sent = departed.send(Ok(Departure { process, observation, decided }));
                }
                // A refusal has ended the stream already.
                Frame::Welcome(_) | Frame::Refusal(_) | Frame::Replaced(_) => {}
            }
        }
    }
}

/// A message on each of the first `many` streams and back, this many times.
pub(super) async fn round_trips(fixture: &Fixture, times: usize, many: usize) -> anyhow::Result<Vec<Timing>> {
    let mut streams = Streams::open(fixture, Mode::Echo);
    let mut timings = Vec::new();
    for number in 0..times {
        let message = |process| vec![append(CHANNEL, 1, proposal(process, number))];
        let (_, decide) = streams.once(many, message).await?;
        timings.push(Timing { create: Duration::ZERO, decide });
    }
    Ok(timings)
}

/// Instances on Attach.
pub(super) struct Player {
    streams: Streams,
    /// Whether reads are sent together with the appends.
    ahead: bool,
}

impl Player {
    pub(super) fn new(fixture: &Fixture, ahead: bool) -> Self {
        Self { streams: Streams::open(fixture, if ahead { Mode::Ahead } else { Mode::Wait }), ahead }
    }
}

impl super::Player for Player {
    async fn play(&mut self, id: &str, instance: usize) -> anyhow::Result<(Vec<Observation>, Duration)> {
        let ahead = self.ahead;
        let message = |process| {
            let mut frames = vec![hello(CHANNEL, id), append(CHANNEL, 1, proposal(process, instance))];
            if ahead {
                frames.push(read(CHANNEL, 2));
            }
            frames
        };
        self.streams.once(usize::MAX, message).await
    }
}
