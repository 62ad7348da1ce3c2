//! `stickycas-bench`: the cost of StickyCAS beside that of the least that could do the work, in one run.
//!
//! The header of each module says what it measures. All of them follow one rule: candidates take turns in one
//! run, and a ratio is taken within its round ([`rounds`]); and all have one form of results ([`results`]).
//! The servers are programs of their own ([`servers`]).

mod appends;
mod attackers;
mod cluster;
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
mod tasks;
mod wire;
mod workload;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;

/// That of the measured programs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures StickyCAS beside the least that could do the work.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// The service over the wire, against one that does nothing, and against etcd; with a log, with TLS.
    Wire(wire::Options),
    /// One instance alone, in round trips of a service that does nothing.
    Latency(rounds::RoundOptions),
    /// Appends to an ordered log, beside puts of etcd.
    Appends(appends::Options),
    /// Instances of correct processes and newcomers, beside attackers at full speed.
    Attackers(attackers::Options),
    /// Memory for each principal and instance of one server, what an access costs when many live, and the
    /// start on a large log.
    Scale(scale::Options),
    /// Disk, memory and the latency of accesses of a durable server under load.
    Soak(soak::Options),
    /// Three servers over three etcd, beside one server and the same consensus on bare etcd.
    Cluster(cluster::Options),
    /// Instructions and system calls of the server for each access, against budgets.
    #[command(mut_arg("rounds", |rounds| rounds.default_value("1")))]
    Instructions(instructions::Options),
    /// Attacks a server until standard input ends: the attackers of `attackers`.
    #[command(hide = true)]
    Attack { orders: String },
    /// Connects until standard input ends: those beside whom newcomers come.
    #[command(hide = true)]
    FloodConnects { address: SocketAddr },
    /// Serves until standard input ends, and does nothing.
    #[command(hide = true)]
    ServeFloor,
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    // Every connection is a file, also of the programs that this one starts.
    let _files = stickycas_server::allow_all_files();
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Wire(options) => wire::run(&options),
        Command::Latency(options) => latency::run(&options),
        Command::Appends(options) => appends::run(&options),
        Command::Attackers(options) => attackers::run(&options),
        Command::Scale(options) => scale::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Instructions(options) => instructions::run(&options),
        Command::Attack { orders } => attackers::attack(&orders).map(done),
        Command::FloodConnects { address } => attackers::flood(address).map(done),
        Command::ServeFloor => floor::serve().map(done),
    }
}

fn main() -> ExitCode {
    run(Command::parse()).unwrap_or_else(|error| {
        // Without a standard error the exit code has to do.
        let _told = writeln!(std::io::stderr(), "error: {error:#}");
        ExitCode::FAILURE
    })
}
