//! The wire and nothing else.
//!
//! Module `v1` is what the build generates from `proto/stickycas/v1/*.proto`.

/// The generated messages, clients and servers of the protobuf package `stickycas.v1`. Their documentation
/// is that of the .proto files.
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod v1 {
    tonic::include_proto!("stickycas.v1");
}

/// The compiled .proto files with everything they import, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("stickycas_descriptor");
