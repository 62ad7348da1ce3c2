//! Texts that are made from a command line: its completions for a shell, its man pages, and the end of every
//! help.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

/// The exit codes, which are the same in all three programs.
pub const EXIT_CODES: &str = "\
Exit codes, the same in all three programs:
  0  done; of a run: no promise was broken
  1  failed: a promise or a condition was not kept, or nothing was decided
  2  wrong usage: flags or files
  3  refused, or not possible: it did not happen
  4  unknown: it may have happened; of a run: it proves nothing
  5  of a server: its log could not be written any more";

/// The same command line; the help of each command ends with its own text, its examples and the exit codes.
/// `examples`: whole lines, those of all commands.
#[must_use]
pub fn with_examples(command: clap::Command, examples: &[&str]) -> clap::Command {
    let name = command.get_name().to_owned();
    with_end(command, &name, examples)
}

fn with_end(command: clap::Command, path: &str, examples: &[&str]) -> clap::Command {
    let mut end = command.get_after_help().map(|own| format!("{own}\n\n")).unwrap_or_default();
    if !command.has_subcommands() {
        let own =
            examples.iter().filter(|line| line.strip_prefix(path).is_some_and(|rest| rest.starts_with(' ')));
        let own: String = own.map(|line| format!("  {line}\n")).collect();
        if !own.is_empty() {
            end += &format!("Examples:\n{own}\n");
        }
    }
    let path = path.to_owned();
    let command = command.mut_subcommands(|below| {
        let path = format!("{path} {}", below.get_name());
        with_end(below, &path, examples)
    });
    command.after_help(end + EXIT_CODES)
}

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
