//! An Attach stream with the generated types, and the frames that a process sends.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AttachRequest, AttachResponse, ClientFrame, Decision, Hello, Read, access,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use crate::principal::Principal;

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

pub(crate) fn append(channel: u32, number: u64, value: Bytes) -> ClientFrame {
    Access { channel, number, op: Some(access::Op::Append(Append { value })) }.into()
}

/// Reads from the first position on.
pub(crate) fn read(channel: u32, number: u64) -> ClientFrame {
    Access { channel, number, op: Some(access::Op::Read(Read { start: 0 })) }.into()
}

pub(crate) fn decide(channel: u32, value: Bytes) -> ClientFrame {
    Decision { channel, value }.into()
}
