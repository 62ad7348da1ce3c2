//! Being asked to end, for subcommands that first show what they have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use stickycas_program::asked_to_stop;

/// Is set as soon as this program is asked to end.
pub(super) fn stop_when_asked() -> anyhow::Result<Arc<AtomicBool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the runtime")?;
    // From here on, and not only once the thread runs, a signal is heard.
    let asked = {
        let _inside = runtime.enter();
        asked_to_stop()
    };
    let stop = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&stop);
    std::thread::spawn(move || {
        runtime.block_on(asked);
        heard.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
