//! What goes where: results to standard output, everything else that people want to know to standard error.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// To standard output: the result.
pub(super) fn show(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// To standard error: what people want to know besides. If it is closed, the run goes on.
pub(super) fn tell(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.trim_end());
}

/// Warnings of server and clients; more if `RUST_LOG` says so.
pub(super) fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // A second call finds a subscriber in place, which serves as well.
    let _ = tracing_subscriber::fmt()
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .try_init();
}
