//! The codec of the server's side as tonic takes it.

use bytes::{Buf as _, BufMut as _};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::request::DecodedRequest;
use super::response::EncodedResponse;

/// Decodes requests and encodes responses of Attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachCodec;

/// The first size of the buffers of a stream, in bytes. A stream keeps them while it is idle, so they are
/// smaller than tonic's.
const BUFFER_BYTES: usize = 1024;

/// About as many bytes are handed to the transport at once. tonic's own figure.
const YIELD_BYTES: usize = 32 * 1024;

impl Codec for AttachCodec {
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

impl Encoder for AttachCodec {
    type Item = EncodedResponse;
    type Error = Status;

    fn encode(&mut self, response: EncodedResponse, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&response.0);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}

impl Decoder for AttachCodec {
    type Item = DecodedRequest;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<DecodedRequest>, Status> {
        // tonic hands over a whole message, in one piece.
        let message = buffer.chunk();
        debug_assert_eq!(message.len(), buffer.remaining());
        let request = DecodedRequest::decode(message).map_err(|error| Status::internal(error.to_string()))?;
        buffer.advance(buffer.remaining());
        Ok(Some(request))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
    }
}
