//! A load while it runs: the view for people, lines of JSON, and figures for Prometheus.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context as _;
use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use clap::Args;
use stickycas_harness::run::ServerHandle;
use stickycas_load::report::json_lines;
use stickycas_load::report::metrics::{self, LoadMetrics};
use stickycas_load::report::progress_view::ProgressView;
use stickycas_load::{LoadOutcome, LoadProgress, Profile};
use stickycas_program::asked_to_stop;
use stickycas_view::serve_plain;
use tokio::net::TcpListener;

use super::output::tell;

/// Who else is told how a load goes on.
#[derive(Debug, Args)]
pub(super) struct LiveArgs {
    /// Write an object of JSON for each second, in one line, to this file; -: to standard output, and the
    /// report to standard error
    #[arg(long, value_name = "FILE")]
    json_lines: Option<PathBuf>,
    /// Show the figures of the load to Prometheus at http://ADDRESS/metrics, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<String>,
}

impl LiveArgs {
    /// Whether standard output has lines of JSON.
    pub(super) fn is_on_stdout(&self) -> bool {
        self.json_lines.as_deref() == Some(Path::new("-"))
    }
}

/// See the module.
pub(super) struct Live {
    lines: Option<RefCell<Lines>>,
    metrics: Option<LoadMetrics>,
}

/// Where lines of JSON go, and the first error there.
struct Lines {
    to: Box<dyn Write>,
    failed: io::Result<()>,
}

impl Live {
    /// Opens the file and the listener; the second is served from now on.
    pub(super) async fn begin(args: &LiveArgs) -> anyhow::Result<Self> {
        let lines = match &args.json_lines {
            None => None,
            Some(_) if args.is_on_stdout() => Some(Box::new(io::stdout()) as Box<dyn Write>),
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
                Some(Box::new(file) as Box<dyn Write>)
            }
        };
        let metrics = match &args.metrics {
            None => None,
            Some(address) => Some(serve(address).await?),
        };
        Ok(Self { lines: lines.map(|to| RefCell::new(Lines { to, failed: Ok(()) })), metrics })
    }

    /// Puts the load of a profile on a server, from this moment on if there is one.
    pub(super) async fn put_on(
        &self,
        handle: &ServerHandle,
        profile: &Profile,
        begin: Option<SystemTime>,
    ) -> anyhow::Result<LoadOutcome> {
        let view = ProgressView::new(profile);
        stickycas_load::run_at(handle, profile, begin, asked_to_stop(), |progress| {
            self.show(progress);
            view.show(progress, tell);
        })
        .await
    }

    fn show(&self, progress: &LoadProgress<'_>) {
        if let Some(metrics) = &self.metrics {
            metrics.update(progress);
        }
        let Some(mut lines) = self.lines.as_ref().map(RefCell::borrow_mut) else { return };
        if let (Some(line), Ok(())) = (json_lines::line(progress), &lines.failed) {
            lines.failed = lines.to.write_all(line.as_bytes()).and_then(|()| lines.to.flush());
        }
    }

    /// The error of the first line that could not be written; a reader who has read enough is none.
    pub(super) fn end(self) -> anyhow::Result<()> {
        match self.lines.map(|lines| lines.into_inner().failed) {
            Some(Err(error)) if error.kind() != ErrorKind::BrokenPipe => {
                Err(error).context("cannot write the lines of JSON")
            }
            _ => Ok(()),
        }
    }
}

/// Serves the figures of a load at this address, as long as the runtime is there.
async fn serve(address: &str) -> anyhow::Result<LoadMetrics> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--metrics {address}: give an address of this machine and a free port"))?;
    tell(&format!("metrics: http://{}/metrics", listener.local_addr()?));
    let metrics = LoadMetrics::default();
    let shown = metrics.clone();
    let page = get(async move || match shown.text() {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, metrics::CONTENT_TYPE)], text),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, "text/plain")], error.to_string()),
    });
    tokio::spawn(serve_plain(listener, Router::new().route("/metrics", page)));
    Ok(metrics)
}
