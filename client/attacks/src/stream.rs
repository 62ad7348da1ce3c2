//! An Attach stream on which anything can be said.

use std::collections::VecDeque;
use std::time::Duration;

use stickycas_model::types::AccessNumber;
use stickycas_proto::convert::member_state::WelcomeData;
use stickycas_proto::status::RpcRefusal;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::{self, RefusalReason};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::context::AttackContext;
use stickycas_client::Error;

/// The channel of the one instance that is opened.
const CHANNEL: u32 = 0;

/// See the module.
pub(super) struct Stream {
    outgoing: mpsc::UnboundedSender<v1::AttachRequest>,
    answers: Streaming<v1::AttachResponse>,
    /// Frames that have come and were not asked for yet.
    frames: VecDeque<Frame>,
    context: AttackContext,
}

/// The outcome of an access.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    Answered(v1::Answer),
    Refused(RpcRefusal),
}

impl Stream {
    /// A stream on which nothing is open.
    pub(super) async fn new(context: &AttackContext) -> Result<Self, Error> {
        Self::saying(context, Vec::new()).await
    }

    /// A stream with a session of the process at the instance, at the server that owns it by now.
    pub(super) async fn open(context: &AttackContext) -> Result<(Self, WelcomeData), Error> {
        let mut context = context.clone();
        loop {
            match Self::open_once(&context).await {
                Err(error) if error.reason() == Some(RefusalReason::NotOwner) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let owner = context.client.at_owner(context.instance).await?;
                    context.connection = owner.connection().clone();
                }
                opened => return opened,
            }
        }
    }

    async fn open_once(context: &AttackContext) -> Result<(Self, WelcomeData), Error> {
        let mut stream = Self::saying(context, vec![hello(context)]).await?;
        loop {
            match stream.next().await? {
                Frame::Welcome(welcome) => return Ok((stream, WelcomeData::try_from(&*welcome)?)),
                Frame::Refusal(refusal) => return Err(RpcRefusal::from_frame(&refusal).into()),
                _ => {}
            }
        }
    }

    async fn saying(context: &AttackContext, frames: Vec<v1::ClientFrame>) -> Result<Self, Error> {
        let (outgoing, incoming) = mpsc::unbounded_channel();
        if !frames.is_empty() {
            // The other end is at hand.
            let _ = outgoing.send(v1::AttachRequest { frames });
        }
        let attached = context.connection.list().attach(UnboundedReceiverStream::new(incoming)).await;
        let answers = attached.map_err(|status| context.connection.error(&status))?.into_inner();
        Ok(Self { outgoing, answers, frames: VecDeque::new(), context: context.clone() })
    }

    /// Says these frames in one message, and counts them as attempts.
    pub(super) fn say(&self, frames: Vec<v1::ClientFrame>) -> Result<(), Error> {
        self.context.tally.attempts(frames.len() as u64);
        let sent = self.outgoing.send(v1::AttachRequest { frames });
        sent.map_err(|_| self.context.connection.no_answer("the stream is closed"))
    }

    /// The next frame from the server.
    pub(super) async fn next(&mut self) -> Result<Frame, Error> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Ok(frame);
            }
            match self.answers.message().await {
                Ok(Some(response)) => {
                    self.frames.extend(response.frames.into_iter().filter_map(|frame| frame.frame));
                }
                Ok(None) => return Err(self.context.connection.no_answer("the server ended the stream")),
                Err(status) => {
                    self.context.tally.ended(&status);
                    self.context.tally.cut();
                    return Err(self.context.connection.error(&status));
                }
            }
        }
    }

    /// The next answer or refusal of any access. Refusals are counted.
    pub(super) async fn reply(&mut self) -> Result<Reply, Error> {
        self.numbered_reply().await.map(|(_, reply)| reply)
    }

    /// The same, with the number of the access.
    pub(super) async fn numbered_reply(&mut self) -> Result<(u64, Reply), Error> {
        loop {
            match self.next().await? {
                Frame::Answer(answer) => return Ok((answer.number, Reply::Answered(answer))),
                Frame::Refusal(refusal) => {
                    let refused = RpcRefusal::from_frame(&refusal);
                    self.context.tally.refused(&refused);
                    return Ok((refusal.access_number, Reply::Refused(refused)));
                }
                Frame::Welcome(_) | Frame::Decided(_) | Frame::Replaced(_) => {}
            }
        }
    }
}

/// A hello of a new life of the client.
pub(super) fn hello(context: &AttackContext) -> v1::ClientFrame {
    let incarnation = rand::random_range(1..=u64::MAX);
    v1::Hello { channel: CHANNEL, instance_id: context.instance.to_string(), incarnation }.into()
}

/// An append under this number.
pub(super) fn append(number: AccessNumber, value: &[u8]) -> v1::ClientFrame {
    access(number, v1::access::Op::Append(v1::Append { value: value.to_vec().into() }))
}

/// A read from the beginning under this number.
pub(super) fn read(number: AccessNumber) -> v1::ClientFrame {
    access(number, v1::access::Op::Read(v1::Read { start: 0 }))
}

fn access(number: AccessNumber, op: v1::access::Op) -> v1::ClientFrame {
    v1::Access { channel: CHANNEL, number: number.get(), op: Some(op) }.into()
}
