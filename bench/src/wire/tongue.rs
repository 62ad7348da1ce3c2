//! The Attach client in two tongues: with the generated types, as anybody's client has it, and with those of
//! [`stickycas_loadgen::load::attach_codec`]. On the wire they are the same.
//!
//! The floor is stock on both sides. Ours is measured with its own.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use stickycas_loadgen::load::attach_codec::{
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

use crate::work::WARPS;

/// What a process does.
pub(super) enum Act {
    Append(Bytes),
    /// From the beginning.
    Read,
}

/// Who is told what a message says.
pub(super) trait Listener {
    fn appended(&mut self, channel: u32, phase: u64, result: &AppendResult) -> anyhow::Result<()>;

    /// The values are those of a sealed list, all of them.
    fn read<'a>(
        &mut self,
        channel: u32,
        phase: u64,
        values: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()>;

    fn decided(&mut self);
}

/// Frames that are to be sent, and how messages go to and fro.
pub(super) trait Tongue: Default + Send + 'static {
    type Said: Send + 'static;
    type Heard: Send + 'static;

    fn hello(&mut self, channel: u32, id: &str);

    fn access(&mut self, channel: u32, number: u64, act: Act);

    fn decide(&mut self, channel: u32, value: Bytes);

    /// All of them as one message; `None` if there are none.
    fn message(&mut self) -> Option<Self::Said>;

    /// Opens the stream.
    fn attach(
        channel: Channel,
        said: Request<UnboundedReceiverStream<Self::Said>>,
    ) -> impl Future<Output = Result<Response<Streaming<Self::Heard>>, Status>> + Send;

    /// Goes through a message.
    fn listen(heard: Self::Heard, listener: &mut impl Listener) -> anyhow::Result<()>;
}

/// The generated types.
#[derive(Default)]
pub(super) struct Stock(Vec<ClientFrame>);

impl Tongue for Stock {
    type Said = AttachRequest;
    type Heard = AttachResponse;

    fn hello(&mut self, channel: u32, id: &str) {
        self.0.push(Hello { channel, instance_id: id.to_owned(), incarnation: 1 }.into());
    }

    fn access(&mut self, channel: u32, number: u64, act: Act) {
        let op = match act {
            Act::Append(value) => access::Op::Append(Append { value }),
            Act::Read => access::Op::Read(Read { start: 0 }),
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
        said: Request<UnboundedReceiverStream<AttachRequest>>,
    ) -> Result<Response<Streaming<AttachResponse>>, Status> {
        StickyCasServiceClient::new(channel).attach(said).await
    }

    fn listen(heard: AttachResponse, listener: &mut impl Listener) -> anyhow::Result<()> {
        for frame in heard.frames {
            match frame.frame.context("an empty frame")? {
                Frame::Answer(answer) => match answer.result.context("an answer without a result")? {
                    answer::Result::Append(append) => {
                        listener.appended(answer.channel, answer.phase, &append)?;
                    }
                    answer::Result::Read(read) => {
                        is_last(read.start, read.length, read.sealed)?;
                        let values = read.values.iter().map(AsRef::as_ref);
                        listener.read(answer.channel, answer.phase, values)?;
                    }
                },
                Frame::Welcome(_) => {}
                Frame::Decided(_) => listener.decided(),
                refused @ (Frame::Refusal(_) | Frame::Replaced(_)) => bail!("refused: {refused:?}"),
            }
        }
        Ok(())
    }
}

/// Our own: what is said is written at once, what is heard stays where it is.
#[derive(Default)]
pub(super) struct Own(Vec<u8>);

impl Tongue for Own {
    type Said = EncodedRequest;
    type Heard = DecodedResponse;

    fn hello(&mut self, channel: u32, id: &str) {
        encode_hello(&mut self.0, channel, id, 1);
    }

    fn access(&mut self, channel: u32, number: u64, act: Act) {
        let op = match act {
            Act::Append(value) => RawOp::Append(RawValue::new(&value)),
            Act::Read => RawOp::Read(Position::new(0)),
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
        said: Request<UnboundedReceiverStream<EncodedRequest>>,
    ) -> Result<Response<Streaming<DecodedResponse>>, Status> {
        attach_codec::attach(channel, said).await
    }

    fn listen(heard: DecodedResponse, listener: &mut impl Listener) -> anyhow::Result<()> {
        for learnt in heard.frames() {
            match learnt {
                ResponseFrame::Append { channel, phase, result, .. } => {
                    listener.appended(*channel, *phase, result)?;
                }
                ResponseFrame::Read { channel, phase, start, values, length, sealed, .. } => {
                    is_last(*start, *length, *sealed)?;
                    listener.read(*channel, *phase, heard.values(values))?;
                }
                ResponseFrame::Decided { .. } => listener.decided(),
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
