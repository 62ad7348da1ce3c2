//! An Attach stream with the codec of the load generator ([`stickycas_load::attach_codec`]).

use anyhow::{Context as _, bail};
use stickycas_client::raw::Connection;
use stickycas_load::attach_codec::{
    self, DecodedResponse, EncodedRequest, ResponseFrame, encode_access, encode_hello,
};
use stickycas_model::process::RawOp;
use stickycas_model::types::{Position, RawValue};
use stickycas_proto::v1::server_frame::Frame;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

/// An open stream of one principal.
pub(crate) struct AttachStream {
    out: UnboundedSender<EncodedRequest>,
    answers: Streaming<DecodedResponse>,
}

impl AttachStream {
    pub(crate) async fn open(connection: &Connection) -> anyhow::Result<Self> {
        let (out, requests) = unbounded_channel();
        let requests = UnboundedReceiverStream::new(requests);
        let answers = attach_codec::attach(connection.identified(), requests).await?.into_inner();
        Ok(Self { out, answers })
    }

    /// Sends these frames as one message; no message if there are none.
    pub(crate) fn send(&self, frames: &mut Vec<u8>) -> anyhow::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        self.out.send(EncodedRequest(std::mem::take(frames))).ok().context("the stream is gone")
    }

    /// The next message. Refusals are errors: no measurement causes any.
    pub(crate) async fn receive(&mut self) -> anyhow::Result<DecodedResponse> {
        let message = self.answers.message().await?.context("the stream ended")?;
        for frame in message.frames() {
            if let ResponseFrame::Other(frame) = frame
                && !matches!(frame.as_deref(), Some(Frame::Welcome(_)))
            {
                bail!("refused: {frame:?}");
            }
        }
        Ok(message)
    }
}

/// Adds a hello to the frames of a message.
pub(crate) fn hello(frames: &mut Vec<u8>, channel: u32, id: &str) {
    encode_hello(frames, channel, id, 1);
}

/// Adds the first access of a process.
pub(crate) fn append(frames: &mut Vec<u8>, channel: u32, value: &[u8]) {
    encode_access(frames, channel, 1, &RawOp::Append(RawValue::new(value)));
}

/// Adds a read from the first position on.
pub(crate) fn read(frames: &mut Vec<u8>, channel: u32, number: u64) {
    encode_access(frames, channel, number, &RawOp::Read(Position::new(0)));
}
