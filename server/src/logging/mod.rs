//! Logs: one line for each event, text or JSON, on standard error, so that standard output stays for results.
//!
//! A line takes three steps. [`rate`] lets through so many lines of a kind in a second and counts the others. The
//! formatter of `tracing-subscriber` makes the line. [`queue`] takes it, without control characters that a client may
//! have put into it, and a thread of its own writes it: if nobody reads standard error, lines are dropped and counted,
//! and the threads that serve never wait. [`panics`] are logged in the same way.
//!
//! The log belongs to the process and not to one server, and so do its [`counts`].

mod counts;
#[cfg(feature = "otlp")]
mod otlp;
mod panics;
mod queue;
mod rate;

use std::sync::Arc;

use anyhow::Context as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

pub(crate) use self::counts::counts;
use self::queue::{LineQueue, LogGuard};
use self::rate::RateLimit;

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogOptions {
    /// A level, or filters by module.
    pub(crate) filter: String,
    /// One JSON object a line.
    pub(crate) json: bool,
    /// Lines of one kind in a second.
    pub(crate) lines_per_second: u32,
}

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

/// Sets up logging for another program of ours on which strangers can call, the judge of runs: with this filter, on standard
/// error, and as the server does it.
///
/// # Errors
/// If the filter has no meaning, or logging was set up before.
pub fn log_to_stderr(filter: &str) -> anyhow::Result<Guard> {
    let options = LogOptions { filter: filter.to_owned(), json: false, lines_per_second: LINES_PER_SECOND };
    init(&options, None)
}

/// Lines of one kind in a second, unless a setting says otherwise.
pub(crate) const LINES_PER_SECOND: u32 = 100;

/// Sets up logging for the whole program. What is in the queue is written when the guard is dropped, unless that takes
/// long.
///
/// # Errors
/// If the filter has no meaning, or logging was set up before.
pub(crate) fn init(options: &LogOptions, otlp_endpoint: Option<&str>) -> anyhow::Result<Guard> {
    let filter = check_filter(&options.filter).map_err(anyhow::Error::msg)?;
    let limit = Arc::new(RateLimit::new(options.lines_per_second));
    let ansi = !options.json && stickycas_program::log_has_colours();
    let (queue, guard) = LineQueue::start(std::io::stderr(), ansi, Arc::clone(&limit))
        .context("cannot start the thread that writes the log")?;
    let format = tracing_subscriber::fmt::layer().with_ansi(ansi).with_writer(queue);
    let format = if options.json { format.json().boxed() } else { format.boxed() };
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
    panics::log_panics();
    Ok(Guard { _log: guard, _traces: traces })
}
