//! The codec of the unary calls on the list: protobuf, in buffers of the size of usual messages.
//!
//! tonic's own codec allocates 8 KiB for each direction of each call.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::ProstCodec;

/// Bytes that a buffer has at first.
const BUFFER: usize = 512;
/// Bytes that are encoded before they are handed on: more than a message that is not a long read.
const YIELD: usize = 32 * 1024;

/// See the module.
#[derive(Debug)]
pub struct UnaryCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for UnaryCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for UnaryCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = <ProstCodec<T, U> as Codec>::Encoder;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, YIELD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, YIELD))
    }
}
