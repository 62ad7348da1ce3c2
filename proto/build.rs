//! Compiles the .proto files with a compiler written in Rust, so that no `protoc` is needed.
//!
//! Writes three files to `OUT_DIR`: the generated code, the descriptor set for server reflection, and the server of
//! `StickyCasService` once more, whose stream has messages and a codec of our own.

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

/// As in `sticky_cas_service.proto`, but for the types of `Attach`.
fn sticky_cas_service() -> manual::Service {
    let method = |name, route: &str| manual::Method::builder().name(name).route_name(route);
    let call = |name, route: &str| {
        method(name, route)
            .input_type(format!("crate::v1::{route}Request"))
            .output_type(format!("crate::v1::{route}Response"))
            .codec_path("crate::attach::CallCodec")
            .build()
    };
    let attach = method("attach", "Attach")
        .input_type("crate::attach::Request")
        .output_type("crate::attach::Message")
        .codec_path("crate::attach::ServerCodec")
        .client_streaming()
        .server_streaming();
    manual::Service::builder()
        .name("StickyCasService")
        .package("stickycas.v1")
        .method(call("append", "Append"))
        .method(call("read", "Read"))
        .method(call("decide", "Decide"))
        .method(attach.build())
        .build()
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
