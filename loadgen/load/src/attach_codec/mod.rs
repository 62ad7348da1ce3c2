//! The client's side of Attach, encoded and decoded without the generated types.
//!
//! Replaces `StickyCasServiceClient::attach` of the generated code, for a load generator that shares its
//! machine with the server under test: the cheaper the client, the higher the load that one machine can make.
//! A request is written straight into one buffer; the values of a response stay in the message in which they
//! came. On the wire nothing differs: frames that the reader does not know are decoded with the generated
//! types, and `tests/attach_codec.rs` compares both over every kind of frame and over damaged messages. A
//! client that plays one process has no use for it.

mod codec;
mod request;
mod response;

pub use self::codec::attach;
pub use self::request::{EncodedRequest, encode_access, encode_decision, encode_hello};
pub use self::response::{DecodedResponse, ResponseFrame, Values};
