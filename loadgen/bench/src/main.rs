//! `stickycas-bench`: the cost of StickyCAS beside that of the least that could do the work, in one run.
//!
//! The header of each module says what it measures. All of them follow one rule: candidates take turns in one
//! run, and a ratio is taken within its round ([`rounds`]); and all have one form of results ([`results`]).
//! The servers are programs of their own ([`servers`]).
//!
//! It is a program, and not a benchmark of `cargo bench`, because it starts other programs and writes raw
//! results; and a package of its own, so that users of StickyCAS do not build it.

mod attackers;
mod cli;
mod cluster;
mod engine;
mod etcd;
mod fixture;
mod floor;
mod instructions;
mod latency;
mod metrics;
mod results;
mod rounds;
mod scale;
mod servers;
mod soak;
mod stopwatch;
mod streams;
mod wire;
mod workload;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

/// The allocator of the measured programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::Cli::parse().run().unwrap_or_else(|error| {
        // Without a standard error the exit code has to do.
        let _told = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}
