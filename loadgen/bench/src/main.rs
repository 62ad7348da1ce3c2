//! `stickycas-bench`: the cost of StickyCAS beside that of the least that could do the work, in one run.
//!
//! ```text
//! cargo run --release -p stickycas-bench -- wire       the service over the wire, beside one that does nothing
//! cargo run --release -p stickycas-bench -- latency    one instance alone, in round trips
//! cargo run --release -p stickycas-bench -- tls        certificates of both sides, beside plain TCP
//! cargo run --release -p stickycas-bench -- attackers  the same beside every wire attack at full speed
//! cargo run --release -p stickycas-bench -- newcomer   a newcomer among clients that connect as fast as they can
//! target/release/stickycas-bench scale --finished 1000000    memory of each instance; see its header
//! cargo run --release -p stickycas-bench -- engine     the engine of the log beside alternatives
//! target/release/stickycas-bench start-up    a server on a large log; see its header
//! target/release/stickycas-bench cluster         three servers over three etcd, beside one server; see its header
//! target/release/stickycas-bench soak        disk, memory and p99 of a durable server under load; see its header
//! cargo run --release -p stickycas-bench -- help
//! ```
//!
//! Each subcommand has a folder, whose header says what it measures. All of them follow one rule: candidates
//! take turns in one run, and a ratio is taken within its round. The load of a shared machine changes within
//! minutes, so candidates that are measured one after the other are measured on different machines.
//!
//! It is a program, and not a benchmark of `cargo bench`, because it starts other programs and writes raw
//! results; and a package of its own, so that users of StickyCAS do not build it.

mod attach_stream;
mod attackers;
mod baseline;
mod cli;
mod cluster;
mod disk;
mod engine;
mod etcd;
mod fixture;
mod latency;
mod operators;
mod principal;
mod results;
mod rounds;
mod scale;
mod serve;
mod soak;
mod start_up;
mod stopwatch;
mod summary;
mod table;
mod tls;
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
