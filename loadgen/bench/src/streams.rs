//! An Attach stream with the generated types, the frames that a process sends, and processes that play
//! instance after instance on open streams.

use std::collections::HashMap;
use std::time::Instant;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use stickycas_load::observations::ObservedRefusal;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AttachRequest, AttachResponse, ClientFrame, Decision, Hello, Read, access, answer,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use crate::principal::Principal;
use crate::workload::{Observation, proposal};

/// The sending half of a stream.
#[derive(Clone)]
pub(crate) struct FrameSender(UnboundedSender<AttachRequest>);

impl FrameSender {
    /// Sends these frames as one message; no message if there are none.
    pub(crate) fn send(&self, frames: Vec<ClientFrame>) -> anyhow::Result<()> {
        if frames.is_empty() { Ok(()) } else { self.message(frames) }
    }

    fn message(&self, frames: Vec<ClientFrame>) -> anyhow::Result<()> {
        self.0.send(AttachRequest { frames }).context("the stream is gone")
    }
}

/// An open Attach stream of one principal.
pub(crate) struct AttachStream {
    sender: FrameSender,
    answers: Streaming<AttachResponse>,
}

impl AttachStream {
    /// Opens it, and sends these frames as one message, which may be empty.
    pub(crate) async fn open(principal: &Principal, first: Vec<ClientFrame>) -> anyhow::Result<Self> {
        let (sender, opening) = Self::begin(principal.clone());
        sender.message(first)?;
        opening.await
    }

    /// Starts to open the stream; messages sent before it is open wait in a queue.
    pub(crate) fn begin(principal: Principal) -> (FrameSender, impl Future<Output = anyhow::Result<Self>>) {
        let (sender, outgoing) = unbounded_channel();
        let sender = FrameSender(sender);
        let opening = {
            let sender = sender.clone();
            async move {
                let request = principal.request(UnboundedReceiverStream::new(outgoing));
                let mut client = StickyCasServiceClient::new(principal.channel.clone());
                let answers = client.attach(request).await?.into_inner();
                Ok(Self { sender, answers })
            }
        };
        (sender, opening)
    }

    /// Sends these frames as one message.
    pub(crate) fn send(&self, frames: Vec<ClientFrame>) -> anyhow::Result<()> {
        self.sender.send(frames)
    }

    /// The frames of the next message. Refusals are errors: no measurement causes any.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<Vec<Frame>> {
        let frames = self.receive_any().await?;
        if let Some(refused) = frames.iter().find(|it| matches!(it, Frame::Refusal(_) | Frame::Replaced(_))) {
            bail!("refused: {refused:?}");
        }
        Ok(frames)
    }

    /// The frames of the next message, refusals included.
    pub(crate) async fn receive_any(&mut self) -> anyhow::Result<Vec<Frame>> {
        let message = self.answers.message().await?.context("the stream ended")?;
        Ok(message.frames.into_iter().filter_map(|frame| frame.frame).collect())
    }
}

pub(crate) fn hello(channel: u32, id: &str) -> ClientFrame {
    Hello { channel, instance_id: id.to_owned(), incarnation: 1 }.into()
}

pub(crate) fn append(channel: u32, value: Bytes) -> ClientFrame {
    Access { channel, number: 1, op: Some(access::Op::Append(Append { value })) }.into()
}

/// Reads from the first position on.
pub(crate) fn read(channel: u32, number: u64) -> ClientFrame {
    Access { channel, number, op: Some(access::Op::Read(Read { start: 0 })) }.into()
}

pub(crate) fn decide(channel: u32, value: Bytes) -> ClientFrame {
    Decision { channel, value }.into()
}

/// The next step of a process after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It has sent one access to a server that echoes, and leaves.
    Echo,
    /// It reads after its append, decides, and leaves.
    Wait,
    /// It has sent its read together with its append; it decides, and leaves.
    Ahead,
}

/// That a process has left an instance.
pub(crate) struct Departure {
    pub(crate) process: usize,
    pub(crate) channel: u32,
    pub(crate) seen: Observation,
    pub(crate) refused: Option<ObservedRefusal>,
    /// When it decided.
    pub(crate) at: Instant,
}

/// Processes with an open stream each.
pub(crate) struct Players {
    streams: Vec<FrameSender>,
    mode: Mode,
    departures: UnboundedReceiver<anyhow::Result<Departure>>,
    // Aborted when this is dropped.
    _processes: JoinSet<()>,
}

impl Players {
    /// Opens the streams of these principals.
    pub(crate) fn open(principals: &[Principal], mode: Mode) -> Self {
        let (departed, departures) = unbounded_channel();
        let (mut processes, mut streams) = (JoinSet::new(), Vec::new());
        for (process, principal) in principals.iter().cloned().enumerate() {
            let (sender, opening) = AttachStream::begin(principal);
            streams.push(sender);
            let departed = departed.clone();
            processes.spawn(async move {
                if let Err(error) = play(process, opening, mode, &departed).await {
                    // Without a receiver the measurement has failed already.
                    let _sent = departed.send(Err(error.context(format!("process {process}"))));
                }
            });
        }
        Self { streams, mode, departures, _processes: processes }
    }

    /// The first `many` processes begin an instance on this channel: hello and append.
    pub(crate) fn begin(&self, channel: u32, id: &str, instance: usize, many: usize) -> anyhow::Result<()> {
        let message = |process| {
            let mut frames = vec![append(channel, proposal(process, instance))];
            if self.mode != Mode::Echo {
                frames.insert(0, hello(channel, id));
            }
            if self.mode == Mode::Ahead {
                frames.push(read(channel, 2));
            }
            frames
        };
        let messages: Vec<_> = (0..many.min(self.streams.len())).map(message).collect();
        self.streams.iter().zip(messages).try_for_each(|(stream, message)| stream.send(message))
    }

    /// The next process that leaves an instance.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Departure> {
        self.departures.recv().await.context("all streams are gone")?
    }
}

/// One process in all of its instances.
async fn play(
    process: usize,
    opening: impl Future<Output = anyhow::Result<AttachStream>>,
    mode: Mode,
    departed: &UnboundedSender<anyhow::Result<Departure>>,
) -> anyhow::Result<()> {
    let mut stream = opening.await?;
    let mut playing: HashMap<u32, Departure> = HashMap::new();
    loop {
        let mut frames = Vec::new();
        for frame in stream.receive_any().await? {
            let new = |channel| {
                move || Departure {
                    process,
                    channel,
                    seen: Observation::EMPTY,
                    refused: None,
                    at: Instant::now(),
                }
            };
            let left = match frame {
                Frame::Answer(answer) => {
                    let channel = answer.channel;
                    let own = playing.entry(channel).or_insert_with(new(channel));
                    match answer.result.context("an answer without a result")? {
                        answer::Result::Append(append) => {
                            own.seen.record_append_result(answer.phase, &append)?;
                            if mode == Mode::Wait {
                                frames.push(read(channel, 2));
                            }
                        }
                        answer::Result::Read(read) => {
                            let decision = own.seen.record_read_result(answer.phase, &read)?;
                            own.at = Instant::now();
                            frames.push(decide(channel, decision.bytes()));
                        }
                    }
                    if mode != Mode::Echo {
                        continue;
                    }
                    own.at = Instant::now();
                    channel
                }
                Frame::Decided(decided) => decided.channel,
                Frame::Refusal(refusal) => {
                    let RpcRefusal { reason, message, .. } = RpcRefusal::from_frame(&refusal);
                    let own = playing.entry(refusal.channel).or_insert_with(new(refusal.channel));
                    own.refused = Some(ObservedRefusal { reason, why: message });
                    refusal.channel
                }
                Frame::Welcome(_) => continue,
                Frame::Replaced(replaced) => bail!("another session took its place: {replaced:?}"),
            };
            if let Some(departure) = playing.remove(&left) {
                let _sent = departed.send(Ok(departure));
            }
        }
        stream.send(frames)?;
    }
}
