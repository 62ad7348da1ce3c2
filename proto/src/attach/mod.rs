//! The hot messages: what goes to and fro on Attach, read and written without the generated types.
//!
//! Generated code builds a tree of messages, each value a shared buffer of its own, and walks it twice to write
//! it. Here a message of a client becomes one list of [`DecodedFrame`], and frames of the server are written straight
//! from where they stand. The wire is the same to the bit: what encoders write is read by hand (`wire_format`), and
//! whatever else protobuf allows (fields twice, in another order, unknown ones) is left to the generated types,
//! so both accept and refuse the same bytes. `tests/wire/attach.rs` compares the two.

mod client_frame;
mod codec;
mod response;
mod server_frame;
mod wire_format;

pub use client_frame::{
    DecodedFrame, DecodedRequest, MAX_FRAMES, encode_access, encode_decision, encode_hello,
};
pub use codec::{ClientCodec, EncodedRequest, EncodedResponse, ServerCodec, attach};
pub use response::{DecodedResponse, ResponseFrame, Values};
pub use server_frame::{
    EncodedParameters, ReadResponseEncoder, encode_answer, encode_decided, encode_frame, encode_welcome,
};

/// The server of `StickyCasService`, as far as its stream: the calls are not in it.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
mod server {
    include!(concat!(env!("OUT_DIR"), "/stickycas.v1.StickyCasService.rs"));
}

pub use server::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
