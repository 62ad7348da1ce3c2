//! The hot messages: what goes to and fro on Attach, read and written without the generated types.
//!
//! Generated code builds a tree of messages, each value a shared buffer of its own, and walks it twice to write
//! it. Here a message of a client becomes one list of [`Asked`], and frames of the server are written straight
//! from where they stand. The wire is the same to the bit: what encoders write is read by hand (`plain`), and
//! whatever else protobuf allows (fields twice, in another order, unknown ones) is left to the generated types,
//! so both accept and refuse the same bytes. `tests/wire/attach.rs` compares the two.

mod asked;
mod codec;
mod heard;
mod plain;
mod told;

pub use asked::{Asked, FRAMES_READ, Request, write_access, write_decision, write_hello};
pub use codec::{ClientCodec, Message, ServerCodec, attach};
pub use heard::{Heard, Learnt, Values};
pub use told::{ReadResponse, WrittenParameters, write_answer, write_decided, write_frame, write_welcome};

/// The server of `StickyCasService`, as far as its stream: the calls are not in it.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
mod server {
    include!(concat!(env!("OUT_DIR"), "/stickycas.v1.StickyCasService.rs"));
}

pub use server::sticky_cas_service_server::{StickyCasService, StickyCasServiceServer};
