//! Signals that end the program.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves when the program gets SIGINT or SIGTERM, from the call on.
pub(super) fn asked_to_stop() -> impl Future<Output = ()> {
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
