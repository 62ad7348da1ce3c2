//! Compiles what is said to etcd, without `protoc`, as `proto/build.rs` does; and notes which compiler was used.

use std::env;
use std::process::Command;

const PROTO: &str = "proto/etcd.proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={PROTO}");
    let rustc = Command::new(env::var("RUSTC")?).arg("--version").output()?;
    println!("cargo::rustc-env=STICKYCAS_BENCH_RUSTC={}", String::from_utf8(rustc.stdout)?.trim());
    let descriptors = protox::compile([PROTO], ["."])?;
    tonic_prost_build::configure().build_server(false).bytes(".").compile_fds(descriptors)?;
    Ok(())
}
