//! The StickyCAS server. See `stickycas_server`.

use std::process::ExitCode;

use clap::Parser as _;
use stickycas_server::cli::Cli;

#[tokio::main]
async fn main() -> ExitCode {
    Cli::parse().run().await
}
