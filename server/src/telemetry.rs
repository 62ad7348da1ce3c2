//! Logs: structured, on standard error, so that standard output stays for results.

use std::io::IsTerminal as _;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

/// Sets up logging for the whole program. `filter` is a level or filters by module.
///
/// # Errors
/// If the filter has no meaning, or logging was set up before.
pub(crate) fn init(filter: &str, json: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?} is no filter"))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let set = if json { subscriber.json().try_init() } else { subscriber.try_init() };
    set.map_err(|error| anyhow::anyhow!("logging cannot be set up: {error}"))
}
