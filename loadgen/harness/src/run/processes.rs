//! The processes of a run, whether they are child processes or tasks.

use stickycas_model::process::Report;
use stickycas_model::types::ProcessId;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::completion::ProcessEnding;

/// The processes of a run. Dropping it ends them all.
#[derive(Debug)]
pub(super) struct Processes {
    playing: JoinSet<ProcessEnding>,
    stop: CancellationToken,
}

impl Processes {
    pub(super) fn new() -> Self {
        Self { playing: JoinSet::new(), stop: CancellationToken::new() }
    }

    /// Starts a process, which tells at its end what it says and what went wrong.
    pub(super) fn start<F>(
        &mut self,
        process: ProcessId,
        start: impl FnOnce(CancellationToken) -> anyhow::Result<F>,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = (Option<Report>, Option<String>)> + Send + 'static,
    {
        let playing = start(self.stop.clone())?;
        self.playing.spawn(async move {
            let (report, trouble) = playing.await;
            ProcessEnding { process, report, trouble }
        });
        Ok(())
    }

    /// Whether none is left.
    pub(super) fn is_empty(&self) -> bool {
        self.playing.is_empty()
    }

    /// The next one that ends; `None` if none is left.
    pub(super) async fn next(&mut self) -> Option<ProcessEnding> {
        match self.playing.join_next().await? {
            Ok(ending) => Some(ending),
            // No task is cancelled alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    /// Stops those that are left.
    pub(super) async fn stop(mut self) -> Vec<ProcessEnding> {
        self.stop.cancel();
        let mut endings = Vec::new();
        while let Some(ending) = self.next().await {
            endings.push(ending);
        }
        endings
    }
}
