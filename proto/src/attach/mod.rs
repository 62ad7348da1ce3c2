//! The server's side of Attach, decoded and encoded without the generated types.
//!
//! Replaces `v1::sticky_cas_service_server` with its `v1::AttachRequest` and `v1::AttachResponse`, on the one
//! path that every access takes. Generated code builds a tree of messages, each value a shared buffer of its
//! own, and visits it twice to encode it. Here a request becomes one list of [`DecodedFrame`]s, and a
//! response is written straight into its buffer from the list of the instance ([`encode_answer`] and its
//! neighbours).
//!
//! On the wire nothing differs. [`DecodedRequest::decode`] reads what encoders usually write and leaves
//! everything else that protobuf allows to the generated types, so both accept and refuse the same bytes;
//! `tests/wire/attach.rs` compares both over every kind of frame and over damaged messages.
//!
//! To remove it: delete this module and the service of its own in `build.rs`, and serve
//! `v1::sticky_cas_service_server` with `DecodedFrame::from` for each frame of a request.

mod codec;
mod request;
mod response;

pub use self::codec::AttachCodec;
pub use self::request::{DecodedRequest, MAX_FRAMES};
pub use self::response::{
    EncodedParameters, EncodedResponse, encode_answer, encode_decided, encode_frame, encode_welcome,
};
pub use crate::convert::client_frame::DecodedFrame;

/// The generated server of `StickyCasService` with the types of this module. It has the method Attach alone.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
mod server {
    include!(concat!(env!("OUT_DIR"), "/stickycas.v1.StickyCasService.rs"));
}

pub use self::server::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
