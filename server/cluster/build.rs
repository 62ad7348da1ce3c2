//! Makes Rust of what is said to etcd, as `proto/build.rs` does: `etcd.binpb` holds what `proto/etcd.proto`
//! says.

use prost::Message as _;

const DESCRIPTORS: &str = "etcd.binpb";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={DESCRIPTORS}");
    let descriptors = tonic_prost_build::FileDescriptorSet::decode(std::fs::read(DESCRIPTORS)?.as_slice())?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
