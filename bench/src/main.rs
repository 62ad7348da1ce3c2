//! `stickycas-bench`: what StickyCAS costs, beside the least that could do the work, in one run.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire       the service over the wire, beside one that does nothing
//! cargo run --release -p stickycas-bench -- latency    one instance alone, in round trips
//! target/release/stickycas-bench scale --finished 1000000    memory for each of them, see its header
//! cargo run --release -p stickycas-bench -- help
//! ```
//!
//! A folder or file for each subcommand, and what it measures in its header. All of them share a rule: what is
//! compared takes turns in one run, and a ratio is taken within its round. To measure one thing after the other
//! compares two machines: a minute later this one is another.
//!
//! It is a program of its own, and not a benchmark of `cargo bench`, so that it can start other programs and write
//! down what it found; and a package of its own, so that nobody who only uses StickyCAS builds it.

mod cli;
mod etcd;
mod floor;
mod latency;
mod results;
mod rig;
mod scale;
mod serve;
mod spread;
mod stopwatch;
mod table;
mod turns;
mod wire;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

/// As in the programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::Cli::parse().run().unwrap_or_else(|error| {
        // Where nobody can be told, the exit code tells.
        let _told = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}
