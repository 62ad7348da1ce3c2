//! Makes Rust of what is said to etcd, as `proto/build.rs` does: `etcd.binpb` holds what `proto/etcd.proto`
//! says, and a build with another one fails.

use prost::Message as _;

const DESCRIPTORS: &str = "etcd.binpb";
const HASH: &str = "etcd.hash";
const SCHEMA: &str = "proto/etcd.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for watched in [DESCRIPTORS, HASH, SCHEMA] {
        println!("cargo::rerun-if-changed={watched}");
    }
    // FNV-1a, 64 bits, as `scripts/bless-proto` has it.
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = std::fs::read(SCHEMA)?.iter().fold(0xcbf2_9ce4_8422_2325, add);
    if std::fs::read_to_string(HASH)?.trim() != format!("{hash:016x}") {
        return Err(format!("{DESCRIPTORS} is not of {SCHEMA}: run scripts/bless-proto").into());
    }
    let descriptors = tonic_prost_build::FileDescriptorSet::decode(std::fs::read(DESCRIPTORS)?.as_slice())?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
