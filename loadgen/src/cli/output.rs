//! The streams: results go to standard output, everything else that people want to know to standard error.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use stickycas_harness::report::grid::counted;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// To standard output: the result.
pub(super) fn show(text: &str) -> anyhow::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Shows a result: to standard output the report for people, or its JSON and the report to standard error.
pub(super) fn show_result(report: &str, json: Option<String>) -> anyhow::Result<()> {
    let Some(json) = json else { return show(report) };
    tell(report);
    show(&json)
}

/// Writes to standard error the news that people want besides results. If it is closed, the run goes on.
pub(super) fn tell(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{}", text.trim_end());
}

/// The log of a run: warnings of server and clients, kept for the run folder.
#[derive(Clone, Debug, Default)]
pub(super) struct RunLog(Arc<Mutex<Vec<u8>>>);

/// More than this of a log is not kept.
const LONGEST_LOG: usize = 1 << 20;

impl RunLog {
    /// Begins to keep the log; if `RUST_LOG` says what to log, everything goes to standard error instead.
    pub(super) fn begin() -> Self {
        let log = Self::default();
        if std::env::var_os("RUST_LOG").is_some() {
            log_to_stderr();
            return log;
        }
        let writer = log.clone();
        let _ = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(LevelFilter::WARN)
            .with_writer(move || writer.clone())
            .try_init();
        log
    }

    /// Puts the log into the run folder, if there is anything in it, and says so.
    pub(super) fn keep(&self, folder: &Path) -> io::Result<()> {
        let log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_empty() {
            return Ok(());
        }
        let lines = log.iter().filter(|&&byte| byte == b'\n').count();
        let file = folder.join("log.txt");
        fs::write(&file, log.as_slice())?;
        tell(&format!("log: {}, in {}", counted(lines as u64, "warning"), file.display()));
        Ok(())
    }
}

impl Write for RunLog {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() + text.len() <= LONGEST_LOG {
            log.extend_from_slice(text);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter of warnings and of what this variable names, unless that has no meaning.
pub(super) fn warnings_and(variable: &str) -> String {
    let warnings = LevelFilter::WARN.to_string();
    let more = std::env::var(variable).ok().filter(|more| EnvFilter::try_new(more).is_ok());
    more.map_or_else(|| warnings.clone(), |more| format!("{warnings},{more}"))
}

/// Warnings of server and clients, in plain lines; the log that `RUST_LOG` asks for, if it does.
pub(super) fn log_to_stderr() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    // A second call finds a subscriber in place, which serves as well.
    let log = tracing_subscriber::fmt()
        .with_ansi(stickycas_program::log_has_colours())
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let _ = match std::env::var_os("RUST_LOG") {
        None => log.without_time().with_level(false).with_target(false).try_init(),
        Some(_) => log.try_init(),
    };
}
