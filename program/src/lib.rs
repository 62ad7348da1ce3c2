//! What the three programs of StickyCAS share: the version with its commit, shell completions and man pages, made from
//! the command line as clap knows it; and the names of environment variables.

mod completions;
mod man;
mod variables;

pub use completions::Completions;
pub use man::ManPages;
pub use variables::{UnknownVariables, check_variables, is_variable, variables_of, variables_of_server};

/// The commit that the program is built from, `-dirty` behind it if tracked files differed; `unknown` if the build does
/// not know: see `build.rs`.
pub const COMMIT: &str = env!("STICKYCAS_COMMIT");

/// The version of the program with its commit, as `--version` prints it.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (commit ", env!("STICKYCAS_COMMIT"), ")");

/// The commit; `None` if the build does not know it.
#[must_use]
pub fn commit() -> Option<&'static str> {
    Some(COMMIT).filter(|commit| *commit != "unknown")
}
