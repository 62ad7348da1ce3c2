//! The program `stickycas-loadgen`: runs, measures and judges whole scenarios of StickyCAS.
//!
//! Only its command line is here; the work of the subcommands is done in the crates beside it:
//! `stickycas-harness` (one run), `stickycas-load` (many instances at once, timed), `stickycas-lab` (runs in
//! bulk) and `stickycas-faults` (faults of servers, and of the containers of the demo).

mod cli;

use std::process::ExitCode;

/// Most of what servers and clients allocate is small and short-lived, which this allocator is made for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Without it, writes beyond the limit of the size of files end the program.
    let _ = stickycas_program::install_signals(|| Ok(()));
    cli::main(std::env::args_os())
}
