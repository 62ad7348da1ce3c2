//! Notes which compiler was used.

use std::env;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rustc = Command::new(env::var("RUSTC")?).arg("--version").output()?;
    println!("cargo::rustc-env=STICKYCAS_BENCH_RUSTC={}", String::from_utf8(rustc.stdout)?.trim());
    Ok(())
}
