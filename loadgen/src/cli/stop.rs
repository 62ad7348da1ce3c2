//! Being asked to end: for subcommands that stop at once and for those that first show what they have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// Until somebody wants this program to end.
pub(super) async fn asked_to_stop() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted,
        _ = terminate.recv() => Ok(()),
    }
}

/// Is set as soon as somebody wants this program to end.
pub(super) fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    std::thread::spawn(move || {
        // Should the signals fail, nobody can be heard, and a kill still ends it.
        let _ = runtime.block_on(asked_to_stop());
        heard.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
