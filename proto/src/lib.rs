//! The wire and nothing else: messages, and what turns them into the types of the model and back.
//!
//! - [`v1`]: what the build generates from `proto/stickycas/v1/*.proto`.
//! - [`attach`]: the hot ones of these messages, read and written by hand.
//! - [`convert`]: wire to model and model to wire, the one place for it. What arrives is checked here once;
//!   behind it only checked types travel.
//! - [`names`]: instance ids and names, which only the wire knows.
//! - [`principal`]: the metadata key of a principal, and how it is read.
//! - [`reason`]: what each reason of a refusal means: its gRPC code, whether it happened, whether to retry.
//! - [`status`]: from an error to a gRPC status and back (SPEC section 11).
//!
//! No rule of the service is kept here, and nothing here panics on what a peer sent.

pub mod attach;
pub mod convert;
pub mod names;
pub mod principal;
pub mod reason;
pub mod status;

/// The generated messages, clients and servers of the protobuf package `stickycas.v1`. Their documentation
/// is that of the .proto files.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("stickycas.v1");
}

/// The compiled .proto files with everything they import, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("stickycas_descriptor");
