//! The wire format: messages, and conversions between them and the types of the model. No rule of the service
//! is here, and no bytes that a peer sends make this crate panic.
//!
//! - [`v1`]: the code that the build generates from `proto/stickycas/v1/*.proto`.
//! - [`log`]: the same of `proto/stickycas/log/v1/*.proto`, which a server writes to its log and nobody
//!   sends.
//! - [`convert`]: wire to model and model to wire. A message is checked here once; behind it only checked
//!   types travel.
//! - [`status`]: errors, reasons of refusals, gRPC codes and statuses (SPEC section 11).
//! - [`names`]: ids and names of instances, which only the wire knows.
//! - [`principal`]: the metadata key of a principal, and how it is read.
//! - [`attach`]: the server's side of Attach, decoded and encoded without the generated types.
//! - [`unary_codec`]: the codec of unary calls on the list.
//! - [`wire_format`]: protobuf fields without the generated types, for the two above and for the load
//!   generator.

pub mod attach;
pub mod convert;
pub mod delimited;
pub mod names;
pub mod principal;
pub mod status;
pub mod unary_codec;
mod wire_error;
pub mod wire_format;

/// The generated messages, clients and servers of the protobuf package `stickycas.v1`. Their documentation is
/// that of the .proto files.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("stickycas.v1");
}

/// The messages that a server writes to its log; clients do not receive them.
pub mod log {
    /// The generated messages of the protobuf package `stickycas.log.v1`. Their documentation is that of the
    /// .proto files.
    #[allow(
        missing_docs,
        unreachable_pub,
        unused_qualifications,
        clippy::all,
        clippy::pedantic,
        rustdoc::all
    )]
    pub mod v1 {
        tonic::include_proto!("stickycas.log.v1");
    }
}

/// The metadata key of the index of the next event, which a server without a cluster sends at the beginning
/// of a Watch: a caller that has had that event before is at a server that has lost it.
pub const NEXT_EVENT_KEY: &str = "stickycas-next-event";

/// The compiled .proto files of the services and of the details of errors, with everything they import, for
/// server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("stickycas_descriptor");
