//! Makes Rust of `baseline.binpb`, which holds what the .proto files say: `scripts/bless-proto` writes it,
//! and CI compares the two. So a build needs no compiler of .proto files. Beside it is a hash of their texts:
//! a build with others fails, as it would have the old schema.
//!
//! Writes to `OUT_DIR`: the generated messages, clients and servers, a file for each package; the descriptor
//! set for server reflection; and a second server of `StickyCasService`, for the codec of `src/attach`.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use prost::Message as _;
use tonic_prost_build::{FileDescriptorSet, manual};

const BASELINE: &str = "baseline.binpb";
const HASH: &str = "baseline.hash";
/// The folders with .proto files.
const SCHEMA: [&str; 2] = ["google", "stickycas"];
/// The protobuf package of a server's log: without services, and not part of reflection.
const LOG: &str = "stickycas.log.v1";
/// Google's messages for errors: in the details of statuses, which no file of the services imports.
const ERRORS: &str = "google.rpc";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for watched in [BASELINE, HASH].into_iter().chain(SCHEMA) {
        println!("cargo::rerun-if-changed={watched}");
    }
    let mut files = Vec::new();
    for folder in SCHEMA {
        find(Path::new(folder), &mut files)?;
    }
    if fs::read_to_string(HASH)?.trim() != hash(files)? {
        return Err(format!("{BASELINE} is not of these .proto files: run scripts/bless-proto").into());
    }
    let all = FileDescriptorSet::decode(fs::read(BASELINE)?.as_slice())?;
    let without = |package: &str| {
        let file = all.file.iter().filter(|file| file.package() != package).cloned().collect();
        FileDescriptorSet { file }
    };
    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out_dir.join("stickycas_descriptor.bin"), without(LOG).encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        // Rare and large: without a box every frame would be as large as these.
        .boxed("stickycas.v1.ServerFrame.frame.welcome")
        .boxed("stickycas.v1.ServerFrame.frame.refusal")
        .compile_fds(without(ERRORS))?;
    manual::Builder::new().build_client(false).compile(&[sticky_cas_service()]);
    Ok(())
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

/// FNV-1a, 64 bits, of the files behind one another, as `scripts/bless-proto` has it.
fn hash(mut files: Vec<PathBuf>) -> io::Result<String> {
    files.sort();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        hash = fs::read(file)?.iter().fold(hash, add);
    }
    Ok(format!("{hash:016x}"))
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
