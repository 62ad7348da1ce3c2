//! Compiles the .proto files with a compiler written in Rust, so that no `protoc` is needed.
//!
//! Writes three files to `OUT_DIR`: the generated code, the descriptor set for server reflection, and a server of
//! Attach, whose messages and codec are our own.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;
use tonic_prost_build::manual;

/// The folder of the protobuf package, below this one.
const PACKAGE: &str = "stickycas/v1";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PACKAGE}");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let descriptors = protox::compile(sources()?, ["."])?;
    fs::write(out_dir.join("stickycas_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        // Rare and large: without a box every frame would be as large as these.
        .boxed("stickycas.v1.ServerFrame.frame.welcome")
        .boxed("stickycas.v1.ServerFrame.frame.refusal")
        .compile_fds(descriptors)?;
    manual::Builder::new().build_client(false).compile(&[sticky_cas_service()]);
    Ok(())
}

/// Of `sticky_cas_service.proto` the stream, in types of our own. The server reads and writes the calls itself.
fn sticky_cas_service() -> manual::Service {
    let attach = manual::Method::builder()
        .name("attach")
        .route_name("Attach")
        .input_type("crate::attach::DecodedRequest")
        .output_type("crate::attach::EncodedResponse")
        .codec_path("crate::attach::ServerCodec")
        .client_streaming()
        .server_streaming()
        .build();
    manual::Service::builder().name("StickyCasService").package("stickycas.v1").method(attach).build()
}

fn sources() -> std::io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(Path::new(PACKAGE))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
