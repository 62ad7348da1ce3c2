//! On streams that stay open: messages there and back, and instances on Attach.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AttachRequest, ClientFrame, Decision, Hello, Read, access, answer, server_frame,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::Took;
use crate::rig::{Line, Rig};
use crate::work::{Saw, proposal};

/// Every instance has the same: it is free again before the next one begins.
const CHANNEL: u32 = 0;

/// What a process tells when it has left an instance.
struct Left {
    process: usize,
    saw: Saw,
    decided: Instant,
}

/// The open streams, one for each process.
struct Streams {
    requests: Vec<UnboundedSender<AttachRequest>>,
    left: UnboundedReceiver<anyhow::Result<Left>>,
    // They end with this.
    _readers: JoinSet<()>,
}

impl Streams {
    /// Opens them.
    fn open(rig: &Rig, conduct: Conduct) -> Self {
        let (tell, left) = unbounded_channel();
        let mut readers = JoinSet::new();
        let mut requests = Vec::new();
        for line in rig.lines.iter().cloned() {
            let (out, outgoing) = unbounded_channel();
            requests.push(out.clone());
            let tell = tell.clone();
            readers.spawn(async move {
                if let Err(error) = follow(line, outgoing, out, conduct, &tell).await {
                    // Who does not listen any more has failed already.
                    let _told = tell.send(Err(error));
                }
            });
        }
        Self { requests, left, _readers: readers }
    }

    /// Sends one message on each of the first `many` streams, and waits until all of their processes have left. What
    /// they saw, by process, and how long it took to the last decision.
    async fn once(
        &mut self,
        many: usize,
        message: impl Fn(usize) -> AttachRequest,
    ) -> anyhow::Result<(Vec<Saw>, Duration)> {
        let many = many.min(self.requests.len());
        let messages: Vec<_> = (0..many).map(message).collect();
        let started = Instant::now();
        for (out, message) in self.requests.iter().zip(messages) {
            out.send(message).context("the stream is gone")?;
        }
        let (mut saw, mut last) = (vec![Saw::NOTHING; many], started);
        for _ in 0..many {
            let left = self.left.recv().await.context("all streams are gone")??;
            *saw.get_mut(left.process).context("who was not asked has answered")? = left.saw;
            last = last.max(left.decided);
        }
        Ok((saw, last - started))
    }
}

/// How a process goes on once it is told something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Conduct {
    /// It sends one access, and is done when that is answered.
    Echo,
    /// It reads when its append has been answered, decides, and leaves.
    Wait,
    /// It has sent its read already.
    Ahead,
}

/// One process: opens its stream, and does on it what [`Conduct`] says, instance after instance.
async fn follow(
    line: Line,
    outgoing: UnboundedReceiver<AttachRequest>,
    out: UnboundedSender<AttachRequest>,
    conduct: Conduct,
    tell: &UnboundedSender<anyhow::Result<Left>>,
) -> anyhow::Result<()> {
    let mut client = StickyCasServiceClient::new(line.channel.clone());
    let request = line.request(UnboundedReceiverStream::new(outgoing));
    let mut answers = client.attach(request).await?.into_inner();
    let mut saw = Saw::NOTHING;
    let mut decided = Instant::now();
    let send =
        |frame: ClientFrame| out.send(AttachRequest { frames: vec![frame] }).context("the stream is gone");
    while let Some(response) = answers.message().await? {
        for frame in response.frames {
            match frame.frame.context("an empty frame")? {
                server_frame::Frame::Answer(answer) => match answer.result.context("no result")? {
                    answer::Result::Append(append) => {
                        saw.appended(answer.phase, &append)?;
                        match conduct {
                            Conduct::Echo => {
                                let decided = Instant::now();
                                let _told = tell.send(Ok(Left { process: line.process, saw, decided }));
                            }
                            Conduct::Wait => send(read().into())?,
                            Conduct::Ahead => {}
                        }
                    }
                    answer::Result::Read(read) => {
                        let value = saw.read(answer.phase, &read)?.bytes();
                        decided = Instant::now();
                        send(Decision { channel: CHANNEL, value }.into())?;
                    }
                },
                server_frame::Frame::Welcome(_) => {}
                server_frame::Frame::Decided(_) => {
                    let _told = tell.send(Ok(Left { process: line.process, saw, decided }));
                }
                refused @ (server_frame::Frame::Refusal(_) | server_frame::Frame::Replaced(_)) => {
                    bail!("refused: {refused:?}")
                }
            }
        }
    }
    bail!("the stream ended")
}

fn append(process: usize, instance: usize) -> Access {
    let value = proposal(process, instance);
    Access { channel: CHANNEL, number: 1, op: Some(access::Op::Append(Append { value })) }
}

fn read() -> Access {
    Access { channel: CHANNEL, number: 2, op: Some(access::Op::Read(Read { start: 0 })) }
}

/// A message on each of the first `many` streams, and back; so many times.
pub(super) async fn round_trips(rig: &Rig, times: usize, many: usize) -> anyhow::Result<Vec<Took>> {
    let mut streams = Streams::open(rig, Conduct::Echo);
    let mut took = Vec::new();
    for number in 0..times {
        let message = |process| AttachRequest { frames: vec![append(process, number).into()] };
        let (_, decide) = streams.once(many, message).await?;
        took.push(Took { create: Duration::ZERO, decide });
    }
    Ok(took)
}

/// Instances on Attach.
pub(super) struct Player {
    streams: Streams,
    /// Whether reads go out together with the appends.
    ahead: bool,
}

impl Player {
    pub(super) fn new(rig: &Rig, ahead: bool) -> Self {
        Self { streams: Streams::open(rig, if ahead { Conduct::Ahead } else { Conduct::Wait }), ahead }
    }
}

impl super::Player for Player {
    async fn play(&mut self, id: &str, instance: usize) -> anyhow::Result<(Vec<Saw>, Duration)> {
        let ahead = self.ahead;
        let message = |process| {
            let hello = Hello { channel: CHANNEL, instance_id: id.to_owned(), incarnation: 1 };
            let mut frames = vec![hello.into(), append(process, instance).into()];
            if ahead {
                frames.push(read().into());
            }
            AttachRequest { frames }
        };
        self.streams.once(usize::MAX, message).await
    }
}
