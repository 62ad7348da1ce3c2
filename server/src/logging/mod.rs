//! Logs: one line for each event, text or JSON, on standard error, so that standard output stays for results.
//!
//! A line takes three steps. [`rate`] lets through so many lines of a kind in a second and counts the others.
//! The formatter of `tracing-subscriber` makes the line. [`queue`] takes it, without control characters that
//! a client may have put into it, and a thread of its own writes it: if nobody reads standard error, lines
//! are dropped and counted, and the threads that serve never wait. Panics are logged in the same way.
//!
//! The log belongs to the process and not to one server, and so do its [`COUNTS`].

#[cfg(feature = "otlp")]
mod otlp;
mod queue;
mod rate;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::IsTerminal as _;
use std::panic::{PanicHookInfo, set_hook};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

use self::queue::{LineQueue, LogGuard};
use self::rate::RateLimit;

/// The counts of log lines, by their fate, since the program started.
#[derive(Debug)]
pub(crate) struct LogCounts {
    pub(crate) written: AtomicU64,
    /// Because the queue was full.
    pub(crate) dropped: AtomicU64,
    /// Because there were too many of their kind.
    pub(crate) left_out: AtomicU64,
}

/// The counts of the program's log.
pub(crate) static COUNTS: LogCounts =
    LogCounts { written: AtomicU64::new(0), dropped: AtomicU64::new(0), left_out: AtomicU64::new(0) };

/// Checks a filter.
///
/// # Errors
/// If it has no meaning.
pub(crate) fn check_filter(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter).map_err(|error| format!("{filter:?} is no filter: {error}"))
}

/// Has everything written when it is dropped, unless that takes long.
#[derive(Debug)]
#[must_use = "what is still in the queue is written when this is dropped"]
pub struct Guard {
    _log: LogGuard,
    #[cfg(feature = "otlp")]
    _traces: Option<otlp::TraceGuard>,
    #[cfg(not(feature = "otlp"))]
    _traces: (),
}

/// Sets up logging for another program of ours on which strangers can call, the judge of runs: with this
/// filter, on standard error, and as the server does it, but for people in a terminal.
///
/// # Errors
/// If the filter has no meaning, or logging was set up before.
pub fn log_to_stderr(filter: &str) -> anyhow::Result<Guard> {
    let form = if std::io::stderr().is_terminal() { LineForm::Plain } else { LineForm::Text };
    init(filter, form, LINES_PER_SECOND, None)
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineForm {
    /// Time, level, module, message.
    Text,
    /// The message alone.
    Plain,
    /// One JSON object.
    Json,
}

/// Lines of one kind in a second, unless a setting says otherwise.
pub(crate) const LINES_PER_SECOND: u32 = 100;

/// Sets up logging for the whole program: with a filter, lines of this form, and so many of one kind in a
/// second. The lines in the queue are written when the guard is dropped, unless that takes long.
///
/// # Errors
/// If the filter has no meaning, or logging was set up before.
pub(crate) fn init(
    filter: &str,
    form: LineForm,
    lines_per_second: u32,
    otlp_endpoint: Option<&str>,
) -> anyhow::Result<Guard> {
    let filter = check_filter(filter).map_err(anyhow::Error::msg)?;
    let limit = Arc::new(RateLimit::new(lines_per_second));
    let ansi = form != LineForm::Json && stickycas_program::log_has_colours();
    let guard = LineQueue::start(std::io::stderr(), ansi, Arc::clone(&limit))
        .context("cannot start the thread that writes the log")?;
    let format = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(guard.writer());
    let format = match form {
        LineForm::Text => format.boxed(),
        LineForm::Plain => format.without_time().with_level(false).with_target(false).boxed(),
        LineForm::Json => format.json().boxed(),
    };
    let registry = Registry::default().with(filter).with(rate::RateLayer(limit)).with(format);
    #[cfg(feature = "otlp")]
    let (registry, traces) = {
        let (layer, traces) = otlp_endpoint.map(otlp::layer).transpose()?.unzip();
        (registry.with(layer), traces)
    };
    // Without the feature no endpoint passes the checks of the settings.
    #[cfg(not(feature = "otlp"))]
    let (traces, _) = ((), otlp_endpoint);
    registry.try_init().map_err(|error| anyhow::anyhow!("logging cannot be set up: {error}"))?;
    set_hook(Box::new(log_panic));
    Ok(Guard { _log: guard, _traces: traces })
}

/// Panics are lines of the log. The hook of the standard library writes to standard error itself, and would
/// wait for ever if nobody reads it; and it has no limit.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("without a name");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    // Captured if RUST_BACKTRACE asks for it.
    let backtrace = Backtrace::capture();
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let message = panic_text(panic.payload());
    tracing::error!(thread, place, backtrace, "panicked: {message}");
}

/// The text of a panic.
fn panic_text(payload: &(dyn std::any::Any + Send)) -> &str {
    let formatted = payload.downcast_ref::<String>().map(String::as_str);
    formatted.or_else(|| payload.downcast_ref().copied()).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_found_in_both_of_its_forms() {
        assert_eq!(panic_text(&"as it stands"), "as it stands");
        assert_eq!(panic_text(&"with a number: 9".to_owned()), "with a number: 9");
        assert_eq!(panic_text(&9), "(no text)");
    }
}
