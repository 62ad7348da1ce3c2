//! Compiles the .proto files with a compiler written in Rust, so that no `protoc` is needed.
//!
//! Writes two files to `OUT_DIR`: the generated code, and the descriptor set for server reflection.

use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message as _;

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
    Ok(())
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
