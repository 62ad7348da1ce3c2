//! Texts that are made from a command line: its completions for a shell, and its man pages.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// The arguments of the subcommand `completions`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Completions {
    /// The shell that is to complete the command line.
    shell: Shell,
}

impl Completions {
    /// Writes the script for the shell.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(self, mut command: clap::Command, out: &mut dyn Write) -> io::Result<()> {
        let name = command.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, name, &mut script);
        out.write_all(&script)
    }
}

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
