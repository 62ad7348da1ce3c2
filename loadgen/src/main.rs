//! The program `stickycas-loadgen`.

use std::process::ExitCode;

/// Most of what servers and clients allocate is small and short-lived, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    stickycas_loadgen::cli::main(std::env::args_os())
}
