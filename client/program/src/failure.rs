//! What ends a subcommand early.

use stickycas_client::Error;

/// See the module.
#[derive(Debug)]
pub(super) enum Failure {
    Client(Error),
    Output(std::io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}
