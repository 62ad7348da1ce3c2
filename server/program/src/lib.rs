//! The common parts of the three programs of StickyCAS: the version with its commit, shell completions and
//! man pages, made from the command line as clap knows it; the names of environment variables; durations;
//! whether a log has colours; the width of tables; exit codes and examples in helps; signals; and [`files`]
//! in TOML.

mod command_line;
mod duration;
pub mod files;
mod signals;
mod variables;

pub use command_line::{Completions, EXIT_CODES, ManPages, with_examples};
pub use duration::{LONGEST_DURATION, parse_duration};
pub use signals::{asked_to_stop, install_signals};
pub use variables::{UnknownVariables, check_variables, is_variable, variables_of, variables_of_server};

/// The commit that the program is built from, `-dirty` behind it if tracked files differed; `unknown` if the
/// build does not know: see `build.rs`.
pub const COMMIT: &str = env!("STICKYCAS_COMMIT");

/// The version of the program with its commit, as `--version` prints it.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("STICKYCAS_COMMIT"), ")");

/// Whether a log on standard error has colours: on a terminal that knows them, unless `NO_COLOR` is set;
/// `CLICOLOR` and `CLICOLOR_FORCE` as usual.
#[must_use]
pub fn log_has_colours() -> bool {
    anstream::AutoStream::choice(&std::io::stderr()) != anstream::ColorChoice::Never
}

/// The columns in a line of standard output: those that `COLUMNS` says, else those of the terminal. `None`:
/// it is no terminal.
#[must_use]
pub fn terminal_width() -> Option<usize> {
    let set = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into());
    set.or_else(terminal).filter(|width| *width > 0)
}

/// The commit; `None` if the build does not know it.
#[must_use]
pub fn commit() -> Option<&'static str> {
    Some(COMMIT).filter(|commit| *commit != "unknown")
}
