//! `stickycas-bench`: the cost of StickyCAS beside that of the least that could do the work, in one run.
//!
//! ```text
//! cargo build --release -p stickycas-server -p stickycas-bench
//! target/release/stickycas-bench wire          the service over the wire, beside one that does nothing; with a log, with TLS
//! target/release/stickycas-bench latency       one instance alone, in round trips
//! target/release/stickycas-bench attackers     the same beside every wire attack at full speed, and newcomers
//! target/release/stickycas-bench scale --finished 1000000    memory of each instance, and the start on a large log; see its header
//! target/release/stickycas-bench soak          disk, memory and p99 of a durable server under load
//! target/release/stickycas-bench cluster       three servers over three etcd, beside one server
//! target/release/stickycas-bench engine        the engine of the log beside alternatives
//! target/release/stickycas-bench instructions  instructions and system calls for each access, against budgets
//! ```
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
mod principal;
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
