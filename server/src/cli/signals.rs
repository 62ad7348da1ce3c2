//! SIGTERM and SIGINT, which end the server, and SIGHUP, by which it reads its credentials again.

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    pub(super) fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Two futures: one completes with the first signal, one with the second.
    pub(super) fn split(mut self) -> (impl Future<Output = ()>, impl Future<Output = ()>) {
        let (first, first_received) = tokio::sync::oneshot::channel();
        let (second, second_received) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            self.next().await;
            tracing::info!("told to stop: draining; a second signal ends it at once");
            let _ = first.send(());
            self.next().await;
            let _ = second.send(());
        });
        let wait = |signal: tokio::sync::oneshot::Receiver<()>| async { signal.await.unwrap_or_default() };
        (wait(first_received), wait(second_received))
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// SIGHUP.
pub(super) struct HangUps(tokio::signal::unix::Signal);

impl HangUps {
    pub(super) fn install() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::hangup()).map(Self)
    }

    /// Completes with the next one.
    pub(super) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}
