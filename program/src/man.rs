//! Man pages of a command line: one for the program and one for each of its subcommands.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::Args;

/// The arguments of the subcommand `man`.
#[derive(Clone, Debug, Args)]
pub struct ManPages {
    /// The folder that the pages are written to; it is made if it is missing.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl ManPages {
    /// Writes the pages.
    ///
    /// # Errors
    /// If they cannot be written; the message names the folder.
    pub fn write(&self, command: clap::Command) -> io::Result<()> {
        let written = fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(command, &self.directory));
        written.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write to {}: {error}", self.directory.display()))
        })
    }
}
