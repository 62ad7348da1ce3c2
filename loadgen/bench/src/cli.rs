//! The command line: one subcommand for each measurement.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::rounds::RoundOptions;
use crate::{attackers, cluster, engine, floor, instructions, latency, scale, soak, wire};

/// Measures StickyCAS beside the least that could do the work.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The service over the wire, against one that does nothing, and against etcd; with a log, with TLS.
    Wire(wire::Options),
    /// One instance alone, in round trips of a service that does nothing.
    Latency(RoundOptions),
    /// Instances of correct processes and newcomers, beside attackers at full speed.
    Attackers(attackers::Options),
    /// Memory for each principal and instance of one server, what an access costs when many live, and the
    /// start on a large log.
    Scale(scale::Options),
    /// Disk, memory and the latency of accesses of a durable server under load.
    Soak(soak::Options),
    /// Three servers over three etcd, beside one server and the same consensus on bare etcd.
    Cluster(cluster::Options),
    /// The engine of the log beside alternatives, without a server.
    Engine(RoundOptions),
    /// Instructions and system calls of the server for each access, against budgets.
    Instructions(instructions::Options),
    /// Attacks a server until standard input ends: the attackers of `attackers`.
    #[command(hide = true)]
    Attack(attackers::AttackerOptions),
    /// Works on nothing until standard input ends.
    #[command(hide = true)]
    Busy,
    /// Connects until standard input ends: those beside whom newcomers come.
    #[command(hide = true)]
    FloodConnects { address: SocketAddr },
    /// Serves until standard input ends, and does nothing.
    #[command(hide = true)]
    ServeFloor,
}

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self.command {
            Command::Wire(options) => wire::run(&options),
            Command::Latency(options) => latency::run(&options),
            Command::Attackers(options) => attackers::run(&options),
            Command::Scale(options) => scale::run(&options),
            Command::Soak(options) => soak::run(&options),
            Command::Cluster(options) => cluster::run(&options),
            Command::Engine(options) => engine::run(&options),
            Command::Instructions(options) => instructions::run(&options),
            Command::Attack(options) => attackers::attack(options).map(done),
            Command::Busy => attackers::busy().map(done),
            Command::FloodConnects { address } => attackers::flood(address).map(done),
            Command::ServeFloor => floor::serve().map(done),
        }
    }
}
