//! Being asked to end: for subcommands that stop at once and for those that first show what they have.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Completes when this program is asked to end, from the call on.
pub(super) fn asked_to_stop() -> impl Future<Output = io::Result<()>> {
    let signals = install();
    async {
        let (mut interrupt, mut terminate) = signals?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        Ok(())
    }
}

fn install() -> io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?))
}

/// Is set as soon as this program is asked to end.
pub(super) fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    // From here on, and not only once the thread runs, a signal is heard.
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        install()?
    };
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        heard.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
