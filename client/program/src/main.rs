//! `stickycas-client`: plays one process, or looks at instances and works on them by hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Without it, writes beyond the limit of the size of files end the program.
    let _ = stickycas_program::install_signals(|| Ok(()));
    run()
}

#[tokio::main(flavor = "current_thread")]
async fn run() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    stickycas_client_program::run_from(std::env::args_os(), &mut out, &mut err).await.into()
}
