//! Compiles the .proto files with a compiler written in Rust, so that no `protoc` is needed.
//!
//! Writes three files to `OUT_DIR`: the generated messages, clients and servers; the descriptor set for server
//! reflection; and a second server of `StickyCasService`, for the codec of `src/attach`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;
use tonic_prost_build::manual;

/// The folders of the protobuf packages, below this one: the API, and the log of a server.
const PACKAGES: [&str; 2] = ["stickycas/v1", "stickycas/log/v1"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    PACKAGES.iter().for_each(|package| println!("cargo::rerun-if-changed={package}"));
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = protox::compile(sources()?, ["."])?;
    fs::write(out_dir.join("stickycas_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        // Rare and large: without a box every frame would be as large as these.
        .boxed("stickycas.v1.ServerFrame.frame.welcome")
        .boxed("stickycas.v1.ServerFrame.frame.refusal")
        .compile_fds(descriptors)?;
    manual::Builder::new().build_client(false).compile(&[attach_service()]);
    Ok(())
}

/// `StickyCasService` with the types and the codec of `src/attach`. Attach is its only method: the server frames
/// unary calls itself. Each other method would be built of its messages in `crate::v1` and `tonic_prost::ProstCodec`.
fn attach_service() -> manual::Service {
    let attach = manual::Method::builder()
        .name("attach")
        .route_name("Attach")
        .input_type("crate::attach::DecodedRequest")
        .output_type("crate::attach::EncodedResponse")
        .codec_path("crate::attach::AttachCodec")
        .client_streaming()
        .server_streaming()
        .build();
    manual::Service::builder().name("StickyCasService").package("stickycas.v1").method(attach).build()
}

fn sources() -> std::io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for package in PACKAGES {
        for entry in fs::read_dir(Path::new(package))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "proto") {
                sources.push(path);
            }
        }
    }
    sources.sort();
    Ok(sources)
}
