//! Compiles the .proto files with a compiler written in Rust, so that no `protoc` is needed.
//!
//! Writes to `OUT_DIR`: the generated messages, clients and servers, a file for each package; the descriptor
//! set for server reflection; and a second server of `StickyCasService`, for the codec of `src/attach`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;
use tonic_prost_build::manual;

/// The folder of the protobuf package of the services, below this one.
const SERVICES: &str = "stickycas/v1";
/// The folder of the protobuf package of a server's log: without services, and not part of reflection.
const LOG: &str = "stickycas/log/v1";
/// Google's messages for errors: in the details of statuses, which no file of the services imports.
const ERRORS: &str = "google/rpc";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={SERVICES}");
    println!("cargo::rerun-if-changed={LOG}");
    println!("cargo::rerun-if-changed={ERRORS}");
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    let described = protox::compile([sources(SERVICES)?, sources(ERRORS)?].concat(), ["."])?;
    fs::write(out_dir.join("stickycas_descriptor.bin"), described.encode_to_vec())?;
    let all = [sources(SERVICES)?, sources(LOG)?].concat();
    tonic_prost_build::configure()
        .bytes(".")
        // Rare and large: without a box every frame would be as large as these.
        .boxed("stickycas.v1.ServerFrame.frame.welcome")
        .boxed("stickycas.v1.ServerFrame.frame.refusal")
        .compile_fds(protox::compile(all, ["."])?)?;
    manual::Builder::new().build_client(false).compile(&[sticky_cas_service()]);
    Ok(())
}

/// `StickyCasService`, whose Attach has the types and the codec of `src/attach`.
fn sticky_cas_service() -> manual::Service {
    let unary = |name: &str, route: &str| {
        manual::Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::v1::{route}Request"))
            .output_type(format!("crate::v1::{route}Response"))
            .codec_path("crate::unary_codec::UnaryCodec")
            .build()
    };
    let attach = manual::Method::builder()
        .name("attach")
        .route_name("Attach")
        .input_type("crate::attach::DecodedRequest")
        .output_type("crate::attach::EncodedResponse")
        .codec_path("crate::attach::AttachCodec")
        .client_streaming()
        .server_streaming()
        .build();
    manual::Service::builder()
        .name("StickyCasService")
        .package("stickycas.v1")
        .method(unary("append", "Append"))
        .method(unary("read", "Read"))
        .method(unary("decide", "Decide"))
        .method(attach)
        .build()
}

fn sources(package: &str) -> std::io::Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(Path::new(package))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}
