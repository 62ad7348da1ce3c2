//! `client`: the client's own command line within this program, so that one program plays every part.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

/// The arguments of `client`, passed on as they are.
#[derive(Debug, Args)]
pub(super) struct ClientArgs {
    /// The client's own arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

pub(super) fn run(args: ClientArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    let arguments = std::iter::once(OsString::from("stickycas-loadgen client")).chain(args.arguments);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    Ok(runtime.block_on(stickycas_client_program::run_from(arguments, &mut out, &mut err)).into())
}
