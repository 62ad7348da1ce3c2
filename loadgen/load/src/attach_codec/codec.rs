//! The codec of the client's side as tonic takes it.

use bytes::{Buf as _, BufMut as _};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::{Body, Bytes, GrpcMethod, StdError, http};
use tonic::{IntoStreamingRequest, Response, Status};

use super::request::EncodedRequest;
use super::response::DecodedResponse;

#[derive(Clone, Copy, Debug)]
struct ClientCodec;

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

impl Encoder for ClientCodec {
    type Item = EncodedRequest;
    type Error = Status;

    fn encode(&mut self, message: EncodedRequest, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&message.0);
        Ok(())
    }
}

impl Decoder for ClientCodec {
    type Item = DecodedResponse;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DecodedResponse>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        DecodedResponse::decode(message).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Opens an Attach stream, as `StickyCasServiceClient::attach` does.
///
/// # Errors
/// The status with which the server refuses the stream, or with which the connection failed.
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
