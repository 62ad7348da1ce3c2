//! `stickycas-client`: plays one process, or looks at instances and works on them by hand.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    stickycas_client_program::run_from(std::env::args_os(), &mut out, &mut err).await.into()
}
