//! The Attach client with two codecs: the generated types, as most clients have them, and the hand-written
//! codec of the load generator ([`stickycas_load::attach_codec`]). The bytes on the wire are the same.
//!
//! The floor is measured with the generated types on both sides, StickyCAS with the hand-written ones.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_load::attach_codec::{
    self, DecodedResponse, EncodedRequest, ResponseFrame, encode_access, encode_decision, encode_hello,
};
use stickycas_model::process::RawOp;
use stickycas_model::types::{Position, RawValue};
use stickycas_proto::v1::server_frame::Frame;
use stickycas_proto::v1::sticky_cas_service_client::StickyCasServiceClient;
use stickycas_proto::v1::{
    Access, Append, AppendResult, AttachRequest, AttachResponse, ClientFrame, Decision, Hello, Read, access,
    answer,
};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::workload::WARPS;

/// An access, as a process sends it.
pub(crate) enum Op {
    Append(Bytes),
    /// From the first position on.
    Read,
}

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
    type Response: Send + 'static;

    fn hello(&mut self, channel: u32, id: &str);

    fn access(&mut self, channel: u32, number: u64, op: Op);

    fn decide(&mut self, channel: u32, value: Bytes);

    /// The frames since the last message, as one message; `None` if there are none.
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
        self.0.push(Hello { channel, instance_id: id.to_owned(), incarnation: 1 }.into());
    }

    fn access(&mut self, channel: u32, number: u64, op: Op) {
        let op = match op {
            Op::Append(value) => access::Op::Append(Append { value }),
            Op::Read => access::Op::Read(Read { start: 0 }),
        };
        self.0.push(Access { channel, number, op: Some(op) }.into());
    }

    fn decide(&mut self, channel: u32, value: Bytes) {
        self.0.push(Decision { channel, value }.into());
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
                        is_last(read.start, read.length, read.sealed)?;
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

    fn access(&mut self, channel: u32, number: u64, op: Op) {
        let op = match op {
            Op::Append(value) => RawOp::Append(RawValue::new(&value)),
            Op::Read => RawOp::Read(Position::new(0)),
        };
        encode_access(&mut self.0, channel, number, &op);
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
                    is_last(*start, *length, *sealed)?;
                    visitor.read(*channel, *phase, message.values(values))?;
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

/// With r = W one read returns the whole list.
fn is_last(start: u32, length: u32, sealed: bool) -> anyhow::Result<()> {
    ensure!(sealed && length == WARPS && start == 0, "the first read is not the last");
    Ok(())
}
