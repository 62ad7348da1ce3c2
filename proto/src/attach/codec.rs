//! The messages of Attach as tonic takes them, on either side.

use bytes::{Buf as _, BufMut as _};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::{Body, Bytes, GrpcMethod, StdError, http};
use tonic::{IntoStreamingRequest, Response, Status};

use super::{DecodedRequest, DecodedResponse};

/// An encoded `AttachRequest`: see [`encode_access`](super::encode_access), `encode_hello` and `encode_decision`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedRequest(pub Vec<u8>);

/// An encoded `AttachResponse`: see [`encode_answer`](super::encode_answer) and its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedResponse(pub Vec<u8>);

/// How the server reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerCodec;

/// How a client reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCodec;

/// Bytes of the buffers of one stream, which lie there as long as it is open, whether or not it says anything.
const STREAM: usize = 1024;

/// As much is handed to the transport in one piece, about. tonic's own figure.
const PIECE: usize = 32 * 1024;

impl Codec for ServerCodec {
    type Encode = EncodedResponse;
    type Decode = DecodedRequest;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Codec for ClientCodec {
    type Encode = EncodedRequest;
    type Decode = DecodedResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ServerCodec {
    type Item = EncodedResponse;
    type Error = Status;

    fn encode(&mut self, message: EncodedResponse, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message.0);
        Ok(())
    }
    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(STREAM, PIECE)
    }
}

impl Encoder for ClientCodec {
    type Item = EncodedRequest;
    type Error = Status;

    fn encode(&mut self, message: EncodedRequest, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message.0);
        Ok(())
    }
}

impl Decoder for ServerCodec {
    type Item = DecodedRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DecodedRequest>, Status> {
        // tonic hands over a whole message, in one piece.
        let message = buffer.chunk();
        debug_assert_eq!(message.len(), buffer.remaining());
        let request = DecodedRequest::read(message).map_err(|error| Status::internal(error.to_string()))?;
        buffer.advance(buffer.remaining());
        Ok(Some(request))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(STREAM, PIECE)
    }
}

impl Decoder for ClientCodec {
    type Item = DecodedResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DecodedResponse>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        DecodedResponse::read(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Opens an Attach stream: what the generated client does, in these types.
///
/// # Errors
/// The status with which the server refuses it, or what became of the connection.
pub async fn attach<T>(
    channel: T,
    messages: impl IntoStreamingRequest<Message = EncodedRequest>,
) -> Result<Response<Streaming<DecodedResponse>>, Status>
where
    T: tonic::client::GrpcService<tonic::body::Body>,
    T::Error: Into<StdError>,
    T::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    let mut client = tonic::client::Grpc::new(channel);
    let ready = client.ready().await.map_err(Into::into);
    ready.map_err(|error| Status::unknown(format!("the channel is not ready: {error}")))?;
    let mut request = messages.into_streaming_request();
    request.extensions_mut().insert(GrpcMethod::new("stickycas.v1.StickyCasService", "Attach"));
    let path = http::uri::PathAndQuery::from_static("/stickycas.v1.StickyCasService/Attach");
    client.streaming(request, path, ClientCodec).await
}
