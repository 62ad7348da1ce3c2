//! Completions of a command line for a shell.

use std::io::{self, Write};

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
