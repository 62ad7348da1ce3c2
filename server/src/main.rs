//! The StickyCAS server. See `stickycas_server`.

use std::process::ExitCode;

use clap::Parser as _;
use stickycas_server::cli::Cli;

/// Most of what a server allocates is small and short-lived, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    Cli::parse().run().await
}
