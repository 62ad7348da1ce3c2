//! The program `stickycas-virtual`: the kill test in virtual time.
//!
//! The real server and the real clients run in one thread, on a paused clock, over a simulated network and a
//! simulated disk; a seed decides everything that is left to chance, so a run can be repeated exactly.
//! Rounds, clients, their facts and the checks are those of the kill test (`stickycas-faults`). See
//! docs/internals/fault-tests.md.
//!
//! | module | what |
//! | --- | --- |
//! | `os` | the clock and the random numbers of the operating system, replaced |
//! | `network` | the simulated network |
//! | `disk` | the simulated disk, and what may be left of it at any moment |
//! | `server` | the server on them |
//! | `plan`, `round` | the plan of a seed; one seed, from its plan to its result |
//! | `cluster` (feature `cluster`) | the same of several servers over a model of etcd |
//! | `trace` | every message with its time |
//! | `test` | the kind of a run: one server, or a cluster |
//! | `seeds` | many seeds, each in a process of its own |
//! | `cli` | the command line |

mod cli;
#[cfg(feature = "cluster")]
mod cluster;
mod disk;
mod network;
mod os;
mod plan;
mod round;
mod seeds;
mod server;
mod test;
mod trace;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
