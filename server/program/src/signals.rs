//! Signals of the system from the first moment of a program on: a signal before its handler ends the program.
//!
//! SIGPIPE is ignored by the standard library already. SIGXFSZ would end a program that writes more into a
//! file than it may (RLIMIT_FSIZE), without a word and with half a file; with a handler the write fails, as
//! it does on a full disk.

use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

/// Lets writes beyond the limit of the size of files fail, and installs other handlers: `install` is called
/// where [`signal`] can be. A signal that a handler receives waits in its stream, for any runtime that polls
/// the stream.
///
/// Called first in `main`, and outside of any runtime.
///
/// # Errors
/// If no handler can be installed.
pub fn install_signals<T>(install: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _inside = runtime.enter();
    // The handler stays when its stream is dropped.
    drop(signal(SignalKind::from_raw(libc::SIGXFSZ))?);
    install()
}

/// Resolves when the program gets SIGINT or SIGTERM, from the call on; never if there can be no handler.
/// Called inside of a runtime.
pub fn asked_to_stop() -> impl Future<Output = ()> {
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    async {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
