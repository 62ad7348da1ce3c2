//! The program `stickycas-loadgen`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stickycas_loadgen::cli::main(std::env::args_os())
}
