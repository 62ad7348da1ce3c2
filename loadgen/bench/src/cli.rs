//! The command line: one subcommand for each measurement.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::serve::{self, ServerOptions, Service};
use crate::{attackers, cluster, engine, latency, scale, soak, start_up, tls, wire};

/// Measures StickyCAS beside the least that could do the work.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The service over the wire, against one that does nothing, and against etcd.
    Wire(wire::Options),
    /// One instance alone, in round trips of a service that does nothing.
    Latency(latency::Options),
    /// Instances of correct processes, beside attackers at full speed.
    Attackers(attackers::Options),
    /// A newcomer among clients that connect as fast as they can.
    Newcomer(attackers::NewcomerOptions),
    /// Memory for each principal and instance of one server, and what an access costs when many live.
    Scale(scale::Options),
    /// TLS with certificates of both sides, beside the same without.
    Tls(tls::Options),
    /// The engine of the log beside alternatives, without a server.
    Engine(engine::Options),
    /// The start of a server on a large log, and the disk that it takes.
    StartUp(start_up::Options),
    /// Disk, memory and the latency of accesses of a durable server under load.
    Soak(soak::Options),
    /// Three servers over three etcd, beside one server and the same consensus on bare etcd.
    Cluster(cluster::Options),
    /// Attacks a server until standard input ends: the attackers of `attackers`.
    #[command(hide = true)]
    Attack(attackers::AttackerOptions),
    /// Works on nothing until standard input ends.
    #[command(hide = true)]
    Busy,
    /// Connects until standard input ends: the clients of `newcomer`.
    #[command(hide = true)]
    FloodConnects(attackers::FloodOptions),
    /// Serves until standard input ends: the server of `attackers` and `newcomer`.
    #[command(hide = true)]
    ServeAttacked {
        /// The folder of its credentials.
        #[arg(long, value_name = "DIR")]
        credentials: PathBuf,
    },
    /// Serves until standard input ends: the other program of `--layout two-programs`.
    #[command(hide = true)]
    Serve {
        #[arg(value_enum)]
        service: Service,
        #[command(flatten)]
        options: ServerOptions,
    },
}

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Wire(options) => wire::run(&options),
            Command::Latency(options) => latency::run(&options),
            Command::Attackers(options) => attackers::run(&options),
            Command::Newcomer(options) => attackers::newcomer(&options),
            Command::Attack(options) => attackers::attack(options).map(|()| ExitCode::SUCCESS),
            Command::Busy => attackers::busy().map(|()| ExitCode::SUCCESS),
            Command::FloodConnects(options) => attackers::flood(&options).map(|()| ExitCode::SUCCESS),
            Command::ServeAttacked { credentials } => {
                attackers::serve_attacked(&credentials).map(|()| ExitCode::SUCCESS)
            }
            Command::Scale(options) => scale::run(&options),
            Command::Tls(options) => tls::run(&options),
            Command::Engine(options) => engine::run(&options),
            Command::StartUp(options) => start_up::run(&options),
            Command::Soak(options) => soak::run(&options),
            Command::Cluster(options) => cluster::run(&options),
            Command::Serve { service, options } => serve::run(service, options).map(|()| ExitCode::SUCCESS),
        }
    }
}
