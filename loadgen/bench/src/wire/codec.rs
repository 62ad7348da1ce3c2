//! The Attach client with two codecs: the generated types, as most clients have them, and the hand-written
//! codec of the load generator ([`stickycas_load::attach_codec`]). The bytes on the wire are the same.
//!
//! The floor is measured with the generated types on both sides, StickyCAS with the hand-written ones.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use stickycas_load::attach_codec::{
    self, DecodedResponse, EncodedRequest, ResponseFrame, encode_access, encode_decision, encode_hello,
};
use stickycas_model::process::RawOp;
use stickycas_model::types::{Position, RawValue};
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{AppendResult, AttachRequest, AttachResponse, ClientFrame, answer};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::streams::{append, decide, hello, read};
use crate::workload::is_last;

/// Receives the frames of a message.
pub(crate) trait FrameVisitor {
    fn appended(&mut self, channel: u32, phase: u64, result: &AppendResult) -> anyhow::Result<()>;

    /// The values are those of a whole sealed list.
    fn read<'a>(
        &mut self,
        channel: u32,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()>;

    fn decided(&mut self, channel: u32);
}

/// Encodes the frames of a client, and decodes messages of the server.
pub(crate) trait FrameCodec: Default + Send + 'static {
    type Request: Send + 'static;
    type Response: Send;

    fn hello(&mut self, channel: u32, id: &str);
    /// The first access.
    fn append(&mut self, channel: u32, value: Bytes);
    /// The second access, from the first position on.
    fn read(&mut self, channel: u32);
    fn decide(&mut self, channel: u32, value: Bytes);

    /// The frames until now as one message, if there are any.
    fn message(&mut self) -> Option<Self::Request>;

    /// Opens an Attach stream.
    fn attach(
        channel: Channel,
        requests: Request<UnboundedReceiverStream<Self::Request>>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Response>>, Status>> + Send;

    /// Passes each frame of a message to the visitor.
    fn visit(message: Self::Response, visitor: &mut impl FrameVisitor) -> anyhow::Result<()>;
}

/// The generated types.
#[derive(Default)]
pub(crate) struct Generated(Vec<ClientFrame>);

impl FrameCodec for Generated {
    type Request = AttachRequest;
    type Response = AttachResponse;

    fn hello(&mut self, channel: u32, id: &str) {
        self.0.push(hello(channel, id));
    }

    fn append(&mut self, channel: u32, value: Bytes) {
        self.0.push(append(channel, value));
    }

    fn read(&mut self, channel: u32) {
        self.0.push(read(channel, 2));
    }

    fn decide(&mut self, channel: u32, value: Bytes) {
        self.0.push(decide(channel, value));
    }

    fn message(&mut self) -> Option<AttachRequest> {
        (!self.0.is_empty()).then(|| AttachRequest { frames: std::mem::take(&mut self.0) })
    }

    async fn attach(
        channel: Channel,
        requests: Request<UnboundedReceiverStream<AttachRequest>>,
    ) -> Result<Response<Streaming<AttachResponse>>, Status> {
        StickyCasServiceClient::new(channel).attach(requests).await
    }

    fn visit(message: AttachResponse, visitor: &mut impl FrameVisitor) -> anyhow::Result<()> {
        for frame in message.frames {
            match frame.frame.context("an empty frame")? {
                Frame::Answer(answer) => match answer.result.context("an answer without a result")? {
                    answer::Result::Append(append) => {
                        visitor.appended(answer.channel, answer.phase, &append)?;
                    }
                    answer::Result::Read(read) => {
                        is_last(read.start, read.length, read.values.len(), read.sealed)?;
                        let values = read.values.iter().map(AsRef::as_ref);
                        visitor.read(answer.channel, answer.phase, values)?;
                    }
                },
                Frame::Welcome(_) => {}
                Frame::Decided(decided) => visitor.decided(decided.channel),
                refused @ (Frame::Refusal(_) | Frame::Replaced(_)) => bail!("refused: {refused:?}"),
            }
        }
        Ok(())
    }
}

/// The codec of the load generator: frames are encoded at once, values stay in the bytes that were received.
#[derive(Default)]
pub(crate) struct HandWritten(Vec<u8>);

impl FrameCodec for HandWritten {
    type Request = EncodedRequest;
    type Response = DecodedResponse;

    fn hello(&mut self, channel: u32, id: &str) {
        encode_hello(&mut self.0, channel, id, 1);
    }

    fn append(&mut self, channel: u32, value: Bytes) {
        encode_access(&mut self.0, channel, 1, &RawOp::Append(RawValue::new(&value)));
    }

    fn read(&mut self, channel: u32) {
        encode_access(&mut self.0, channel, 2, &RawOp::Read(Position::new(0)));
    }

    fn decide(&mut self, channel: u32, value: Bytes) {
        encode_decision(&mut self.0, channel, &value);
    }

    fn message(&mut self) -> Option<EncodedRequest> {
        (!self.0.is_empty()).then(|| EncodedRequest(std::mem::take(&mut self.0)))
    }

    async fn attach(
        channel: Channel,
        requests: Request<UnboundedReceiverStream<EncodedRequest>>,
    ) -> Result<Response<Streaming<DecodedResponse>>, Status> {
        attach_codec::attach(channel, requests).await
    }

    fn visit(message: DecodedResponse, visitor: &mut impl FrameVisitor) -> anyhow::Result<()> {
        for frame in message.frames() {
            match frame {
                ResponseFrame::Append { channel, phase, result, .. } => {
                    visitor.appended(*channel, *phase, result)?;
                }
                ResponseFrame::Read { channel, phase, start, values, length, sealed, .. } => {
                    let values = message.values(values);
                    is_last(*start, *length, values.len(), *sealed)?;
                    visitor.read(*channel, *phase, values)?;
                }
                ResponseFrame::Decided { channel } => visitor.decided(*channel),
                ResponseFrame::Other(frame) => match frame.as_deref() {
                    Some(Frame::Welcome(_)) => {}
                    refused => bail!("refused: {refused:?}"),
                },
            }
        }
        Ok(())
    }
}
